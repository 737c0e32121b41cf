"""Fine-tuning of Llama in BF16 on one GPU, as the READMEs of torchtune on PyPI have it (BSD-3-Clause): those of 0.6.1
for Llama 3.2 3B on an A100, batches of packed sequences, eager and by `torch.compile`, each row with something more
than the one before it; that of 0.3.0 for LoRA of Llama 2 7B on an RTX 4090.

Models are never trained with these steps. Left out are padded batches, whose lengths are not told, what moves data to
the host, and 8-bit optimizers and 4-bit weights, whose kernels are those of other libraries. The row of LoRA on the
A100 moves activations to the host too, which costs 0.1 % by the row that adds it; its peak is without them. The peak
on the RTX 4090 may be of what was reserved. Left out is Llama 3.1 8B on an "A6000": its rows would need more than
90 % of the peak of an RTX A6000.
"""

import torch

A100, RTX_4090 = "a100-sxm4-80gb", "rtx-4090"
THREE, SEVEN = "llama-3.2-3b", "llama-2-7b"
# GPU, model, batch, length, tokens a second, peak memory in GiB, and what is on.
ROWS = {
    "eager": (A100, THREE, 2, 4096, 7075, 60.0, ()),
    "compiled": (A100, THREE, 2, 4096, 8998, 51.0, ("compile",)),
    "chunked-loss": (A100, THREE, 2, 4096, 9174, 42.9, ("compile", "chunks")),
    "checkpointed": (A100, THREE, 2, 4096, 7210, 24.9, ("compile", "chunks", "checkpoints")),
    "lora": (A100, THREE, 2, 4096, 8210, None, ("compile", "chunks", "checkpoints", "lora")),
    "lora-eager": (RTX_4090, SEVEN, 4, 2048, 2582, None, ("checkpoints", "lora")),
}


def model(name, parts):
    """With LoRA where the recipes llama3_2/3B_lora_single_device and llama2/7B_lora_single_device have it."""
    from torchtune.models import llama2, llama3_2
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    if "lora" not in parts:
        return llama3_2.llama3_2_3b()
    attention = ["q_proj", "v_proj", "output_proj"]
    if name == THREE:
        network = llama3_2.lora_llama3_2_3b(attention, apply_lora_to_mlp=True, lora_rank=64, lora_alpha=128)
    else:
        network = llama2.lora_llama2_7b(attention[:2], lora_rank=8, lora_alpha=16)
    set_trainable_params(network, get_adapter_params(network))
    return network


def finetune(name, batch, length, parts):
    """One step as the recipes full_finetune_single_device and lora_finetune_single_device make it."""
    from torchtune.modules import TransformerSelfAttentionLayer
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.training import set_activation_checkpointing

    torch.set_default_dtype(torch.bfloat16)
    network = model(name, parts)
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
            "case": model + "-" + name,
            "build": lambda batch_size=batch, args=(model, batch, length, parts): finetune(*args),
            "network": model + " " + name,
            "family": "transformer",
            "mode": "training",
            "gpu": gpu,
            "precision": "bf16-pure",
            "layout": "nchw",
            "step_ms": "%.1f" % (batch * length / tokens_a_second * 1e3),
            "source": "torchtune",
            "software": "torchtune",
            "compiled": "torch.compile" if "compile" in parts else "",
            # Which A100 is not told; 60 GiB were used.
            "quality": "B",
        }
        for name, (gpu, model, batch, length, tokens_a_second, _, parts) in ROWS.items()
    ]


def peaks(traced):
    """Computed and measured peak memory in lines, from the op lists by case."""
    for name, (_, model, _, _, _, measured, _) in ROWS.items():
        computed = sum(traced[model + "-" + name]["info"]["memory"]["kinds"].values()) / 2**30
        if measured:
            change = 100 * (computed / measured - 1)
            yield "%s: peak %.1f GiB computed, %.1f measured (%+.1f %%)" % (name, computed, measured, change)
