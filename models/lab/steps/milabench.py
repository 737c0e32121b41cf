"""Steps of rows in the columns of milabench's tables (bench, model, batch, seq_or_image, precision, gpu,
compiled, software, step_ms, quality): of milabench itself (mila-iqia/milabench `config/scaling`, MIT) and of
others on AMD GPUs, on one GPU. Recipes are those of its `benchmarks/{torchvision,huggingface,lightning}`:
networks of torchvision in channels-last order with plain SGD, of Lightning in channels-first, networks of
transformers with its default attention and Adam. FP16 is autocast with a scaled loss.

Skips rows at batch 1 without a graph, which wait for their host, and rows that the table marks C.
"""

import functools
import re

import torch
import torch.nn.functional as F

from published import AUTOCAST, classes, images, step, tokens

PRECISIONS = {
    "amp-fp16": ("amp-fp16", "amp-fp16"), "amp-bf16": ("bf16", "bf16"), "amp bf16": ("bf16", "bf16"),
    "fp32": ("fp32", "fp32"), "tf32": ("fp32", "tf32"), "bf16": ("bf16-pure", "bf16-pure"),
}  # fmt: skip
# Benchmarks in channels-last order: on the H100 steps of torchvision's ResNet-50 take 0.9 times the prediction
# in that order, half of it in the other.
CHANNELS_LAST = ("resnet50-noio",)
# Sides of its synthetic images, from the memory that the driver reported (`hosts.py`).
SIDES = {"resnet50-noio": 244}


def layout(row):
    """Memory order of a row's images."""
    return "nhwc" if row["bench"] in CHANNELS_LAST or "channels-last" in row.get("note", "") else "nchw"


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, foreach=True)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-4, foreach=True)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def pictures(name, batch, size, kind, optimizer=sgd):
    import torchvision

    return classes(getattr(torchvision.models, name)(), optimizer, batch, size, kind)


def seen(name, batch, size, kind):
    """One pass without gradients."""
    import timm

    network, x = timm.create_model(name).eval(), images(batch, 3, size, size)

    def infer():
        with torch.no_grad(), torch.autocast("cuda", AUTOCAST.get(kind), enabled=kind in AUTOCAST):
            network(x)

    return infer


def masked_words(batch, size, kind, optimizer=adam):
    from transformers import BertConfig, BertForMaskedLM

    network = BertForMaskedLM(BertConfig()).train()
    words = tokens(30522, batch, size)
    return step(network, lambda: network(input_ids=words, labels=words).loss, optimizer, kind)


def gpt2_xl(batch, size, kind):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1600, n_layer=48, n_head=25, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    network = GPT2LMHeadModel(config).train()
    # Both precisions of these rows: BF16 is compiled, FP8 is eager.
    network.compile()
    words = tokens(config.vocab_size, batch, size)

    def loss():
        logits = network(input_ids=words, use_cache=False).logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), words.view(-1))

    return step(network, loss, adamw, kind)


NETWORKS = {
    "bert-base": ("bert-base", "transformer", masked_words),
    "resnet50": ("resnet50", "resnet", functools.partial(pictures, "resnet50")),
    "resnet152": ("resnet152", "resnet", functools.partial(pictures, "resnet152")),
    "ResNet-152": ("resnet152", "resnet", functools.partial(seen, "resnet152")),
    "ViT-base-patch16-224": ("vit_base", "vit", functools.partial(seen, "vit_base_patch16_224")),
    "GPT-2 XL": ("gpt2-xl", "gpt", gpt2_xl),
}


def cases(rows):
    found = []
    for row in rows:
        name = next((name for name in NETWORKS if row["model"].split(" 1.5B")[0] == name), None)
        is_graph = "graphs" in row["compiled"]
        if name is None or row["quality"] == "C" or row["precision"] not in PRECISIONS or not row["step_ms"]:
            continue
        batch = int(row["batch"])
        if batch == 1 and not is_graph:
            continue
        size = SIDES.get(row["bench"], int(re.sub(r"\D", "", row["seq_or_image"])))
        network, family, build = NETWORKS[name]
        kind, precision = PRECISIONS[row["precision"]]
        mode = "inference" if row.get("phase") == "inference" else "training"
        found.append({
            "case": "%s-%s-b%d-%d-%s" % (mode[:5], network, batch, size, kind),
            "build": lambda batch_size=batch, args=(build, batch, size, kind): args[0](*args[1:]),
            "network": network,
            "family": family,
            "mode": mode,
            "gpu": row["gpu"],
            "precision": precision,
            "layout": layout(row),
            "step_ms": row["step_ms"],
            "source": row["source"],
            "software": row["software"],
            "compiled": "" if row["compiled"] == "eager" else row["compiled"],
            "quality": row["quality"],
        })  # fmt: skip
    return found
