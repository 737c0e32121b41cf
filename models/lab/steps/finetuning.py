"""Fine-tuning of Llama in BF16 on one GPU, from the READMEs of torchtune on PyPI (BSD-3-Clause): 0.6.1 for
Llama 3.2 3B on an A100, each row with one more feature than the row before, and for Llama 3.1 8B on an RTX
4090; 0.3.0 for Llama 2 7B on an RTX 4090. Sequences are packed; LoRA and QLoRA follow the single-device
recipes.

Models are never trained on these steps. Left out are padded batches of unknown length; optimizers of other
libraries, in 8 bits or on the host; and an "A6000", whose rows need more than the peak of an RTX A6000. LoRA
and QLoRA on the A100 also move activations to the host, which costs 0.1 % according to the row that adds it;
their peaks do not include it. The peaks of 0.3.0 measure something else: they are 2 to 5 GB above a step of
today.
"""

import torch

A100, RTX_4090 = "a100-sxm4-80gb", "rtx-4090"
COMPILED = ("compile", "chunks", "checkpoints")
# GPU, model, batch, length, tokens per second, peak memory in GiB, and enabled features.
ROWS = {
    "llama-3.2-3b-eager": (A100, "llama3_2_3b", 2, 4096, 7075, 60.0, ()),
    "llama-3.2-3b-compiled": (A100, "llama3_2_3b", 2, 4096, 8998, 51.0, COMPILED[:1]),
    "llama-3.2-3b-chunked-loss": (A100, "llama3_2_3b", 2, 4096, 9174, 42.9, COMPILED[:2]),
    "llama-3.2-3b-checkpointed": (A100, "llama3_2_3b", 2, 4096, 7210, 24.9, COMPILED),
    "llama-3.2-3b-lora": (A100, "lora_llama3_2_3b", 2, 4096, 8210, None, COMPILED),
    "llama-3.2-3b-qlora": (A100, "qlora_llama3_2_3b", 2, 4096, 8035, None, COMPILED),
    "llama-3.1-8b-lora": (RTX_4090, "lora_llama3_1_8b", 2, 2048, 3083, 16.2, COMPILED),
    "llama-3.1-8b-qlora": (RTX_4090, "qlora_llama3_1_8b", 2, 2048, 2413, 7.4, COMPILED),
    "llama-2-7b-lora-eager": (RTX_4090, "lora_llama2_7b", 4, 2048, 2582, None, ("checkpoints",)),
    "llama-2-7b-qlora": (RTX_4090, "qlora_llama2_7b", 4, 2048, 3155, None, ("compile", "checkpoints")),
}
# Modules with LoRA, and its rank, as in the recipes.
LORA = {
    "llama3_2_3b": (["q_proj", "v_proj", "output_proj"], True, 64),
    "llama3_1_8b": (["q_proj", "v_proj", "output_proj"], True, 8),
    "lora_llama2_7b": (["q_proj", "v_proj"], False, 8),
    "qlora_llama2_7b": (["q_proj", "v_proj", "k_proj", "output_proj"], True, 8),
}


def model(name):
    from torchtune.models import llama2, llama3_1, llama3_2
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    make = next(getattr(place, name) for place in (llama2, llama3_1, llama3_2) if hasattr(place, name))
    if "lora" not in name:
        return make()
    modules, mlp, rank = LORA.get(name) or LORA[name.split("lora_")[1]]
    network = make(modules, apply_lora_to_mlp=mlp, lora_rank=rank, lora_alpha=2 * rank)
    set_trainable_params(network, get_adapter_params(network))
    return network


def finetune(name, batch, length, parts):
    """One step of the recipes full_finetune_single_device and lora_finetune_single_device."""
    from torchtune.modules import TransformerSelfAttentionLayer
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.training import set_activation_checkpointing

    torch.set_default_dtype(torch.bfloat16)
    network = model(name)
    if "checkpoints" in parts:
        set_activation_checkpointing(network, auto_wrap_policy={TransformerSelfAttentionLayer})
    loss_of = CEWithChunkedOutputLoss() if "chunks" in parts else torch.nn.CrossEntropyLoss()
    if "chunks" in parts:
        network.set_num_output_chunks(loss_of.num_output_chunks)
    if "compile" in parts:
        for layer in network.modules():
            if isinstance(layer, TransformerSelfAttentionLayer):
                layer.compile()
        if "chunks" in parts:
            loss_of.compute_cross_entropy = torch.compile(loss_of.compute_cross_entropy)
        else:
            loss_of = torch.compile(loss_of)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, fused=True)
    tokens, labels = torch.randint(0, 32000, (2, batch, length))
    positions = torch.arange(length).expand(batch, length)

    def step():
        logits, wanted = network(tokens, input_pos=positions), labels
        if "chunks" not in parts:
            logits, wanted = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)
        loss = loss_of(logits, wanted)
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def cases():
    return [
        {
            "case": name,
            "build": lambda batch_size=batch, args=(model, batch, length, parts): finetune(*args),
            "network": name,
            "family": "transformer",
            "mode": "training",
            "gpu": gpu,
            "precision": "bf16-pure",
            "layout": "nchw",
            "step_ms": "%.1f" % (batch * length / tokens_a_second * 1e3),
            "source": "torchtune",
            "software": "torchtune",
            "compiled": "torch.compile" if "compile" in parts else "",
            # The source does not name the A100; 60 GiB were used.
            "quality": "B",
        }
        for name, (gpu, model, batch, length, tokens_a_second, _, parts) in ROWS.items()
    ]


def peaks(traced):
    """Computed and measured peak memory, a line per case, from the op lists."""
    for name, (_, _, _, _, _, measured, _) in ROWS.items():
        computed = sum(traced[name]["info"]["memory"]["kinds"].values()) / 2**30
        if measured:
            change = 100 * (computed / measured - 1)
            yield "%s: peak %.1f GiB computed, %.1f measured (%+.1f %%)" % (name, computed, measured, change)
