"""Fine-tuning of Llama 3.2 3B in BF16 on one A100, as the README of torchtune 0.6.1 has it (PyPI, BSD-3-Clause):
batches of 2 packed sequences of 4,096 tokens, eager and by `torch.compile`.

Models are never trained with these steps. Each row adds something to the one before it. Left out are padded
batches, whose lengths are not told, what moves data to the host, and 8-bit optimizers, whose kernels are those of
another library. The row of LoRA moves activations to the host too, which costs 0.1 % by the row that adds it.
"""

import torch

BATCH, LENGTH = 2, 4096
# Tokens a second, and what is on.
ROWS = {
    "eager": (7075, ()),
    "compiled": (8998, ("compile",)),
    "chunked-loss": (9174, ("compile", "chunks")),
    "checkpointed": (7210, ("compile", "chunks", "checkpoints")),
    "lora": (8210, ("compile", "chunks", "checkpoints", "lora")),
}
# The modules and rank of the recipe llama3_2/3B_lora_single_device.
LORA = {
    "lora_attn_modules": ["q_proj", "v_proj", "output_proj"], "apply_lora_to_mlp": True, "lora_rank": 64,
    "lora_alpha": 128,
}  # fmt: skip


def finetune(parts):
    """One step as the recipes full_finetune_single_device and lora_finetune_single_device make it."""
    from torchtune.models import llama3_2
    from torchtune.modules import TransformerSelfAttentionLayer
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.modules.peft import get_adapter_params, set_trainable_params
    from torchtune.training import set_activation_checkpointing

    torch.set_default_dtype(torch.bfloat16)
    network = llama3_2.lora_llama3_2_3b(**LORA) if "lora" in parts else llama3_2.llama3_2_3b()
    if "lora" in parts:
        set_trainable_params(network, get_adapter_params(network))
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
    tokens, labels = torch.randint(0, 128256, (2, BATCH, LENGTH))
    positions = torch.arange(LENGTH).expand(BATCH, LENGTH)

    def step():
        logits = network(tokens, input_pos=positions)
        if "chunks" not in parts:
            logits, shifted = logits.reshape(-1, logits.size(-1)), labels.reshape(-1)
        else:
            shifted = labels
        loss = loss_of(logits, shifted)
        del logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def cases():
    return [
        {
            "case": "llama-3.2-3b-" + name,
            "build": lambda batch_size=BATCH, parts=parts: finetune(parts),
            "network": "llama-3.2-3b " + name,
            "family": "transformer",
            "mode": "training",
            "gpu": "a100-sxm4-80gb",
            "precision": "bf16-pure",
            "layout": "nchw",
            "step_ms": "%.1f" % (BATCH * LENGTH / tokens_a_second * 1e3),
            "source": "torchtune",
            "software": "torchtune 0.6",
            "compiled": "torch.compile" if "compile" in parts else "",
            # Which A100 is not told; 60 GiB were used.
            "quality": "B",
        }
        for name, (tokens_a_second, parts) in ROWS.items()
    ]
