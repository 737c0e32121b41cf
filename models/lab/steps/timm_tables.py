"""The steps of timm's benchmark tables (benchmark.py of pytorch-image-models at 066e490): FP16
autocast, eager, random input on the GPU. Training is forward, cross entropy, backward and SGD
with Nesterov momentum; inference runs under no_grad in eval mode."""

import re
import sys

# A folder with the version of the training tables: 0.6.7, of July 2022. Later ones scale queries instead of
# scores, and normalise and add in other places.
OLD = None
# Whether the loaded version is that of the training tables.
loaded = None

# Designs whose branches are merged for inference. The table of PyTorch 2.9 has the parameter counts of merged
# networks, that of 2.4 those of unmerged ones.
MERGED = ("repvgg", "mobileone", "fastvit", "repvit", "repghost")
# Networks whose norms could run in 16 bits (`--fast-norm`) at the time of the table of PyTorch 2.4 (timm
# 1.0.11). They did: in 32 bits the group norms of resnet50_gn, with their casts and activations, would move 1.4
# times what an RTX 3090 can in the time of the whole step. In the table of 2.9 they take the time of 32 bits.
FAST_NORM = re.compile(r"convnext|.*_(gn|bit)$|vit_.*_(rope|r|r26|r50)_")


def library(training):
    """timm in the version of a table."""
    global loaded
    if training and (OLD is None or not (OLD / "timm").is_dir()):
        raise ValueError("needs --timm DIR, after pip install --no-deps --target DIR timm==0.6.7")
    if training != loaded:
        loaded = training
        for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
            del sys.modules[name]
        sys.path[:] = [str(OLD)] * training + [place for place in sys.path if place != str(OLD)]
    import timm

    return timm


def build(model, batch, size, training, merged, fast_norm, channels_last):
    """One step of a network of timm."""
    timm = library(training)
    import torch

    if fast_norm:
        timm.layers.set_fast_norm(True)
    network = timm.create_model(model, pretrained=False)
    network.train(training)
    for module in network.modules() if fast_norm and re.match(r"vit_.*_r(26|50)?_", model) else ():
        # In these networks only group norms could.
        if isinstance(module, timm.layers.LayerNorm):
            module._fast_norm = False
    if merged:
        network = timm.utils.reparameterize_model(network)
    inputs = torch.randn(batch, 3, size, size, device="cuda")
    if channels_last:
        network = network.to(memory_format=torch.channels_last)
        inputs = inputs.contiguous(memory_format=torch.channels_last)
    if not training:

        def infer():
            with torch.no_grad(), torch.autocast("cuda", torch.float16):
                network(inputs)

        return infer
    # PyTorch 1.12 updates parameters one by one, and accumulates into existing gradients.
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True, foreach=False)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()

    def train():
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.float16):
            output = network(inputs)
        loss(output, labels).backward()
        optimizer.step()

    return train


def family(model):
    """Networks of one design, by the first letters of the name."""
    return re.match(r"[a-z]+(?:v[0-9]|x|y|[0-9](?=_))?", model)[0]


def cases(name, rows):
    """The cases of one table, named MODE-amp-LAYOUT-ptVERSION-GPU.csv.gz."""
    mode, _, layout, software, gpu = name.split(".csv")[0].split("-", 4)
    gpu = gpu.replace("rtx", "rtx-")
    training = mode == "train"
    found = []
    for row in sorted(rows, key=lambda row: row["model"]):
        model, batch, size = row["model"], int(row[mode + "_batch_size"]), int(row[mode + "_img_size"])
        merged = software == "pt2.9" and model.startswith(MERGED)
        fast_norm = software == "pt2.4" and bool(FAST_NORM.match(model))
        made = (model, batch, size, training, merged, fast_norm, layout == "nhwc")
        how = ("-merged" if merged else "") + ("-fast-norm" if fast_norm else "") + ("-nhwc" if layout == "nhwc" else "")
        found.append(
            {
                "case": "timm-%s-%s-b%d-%d%s" % (mode, model, batch, size, how),
                "build": lambda made=made: build(*made),
                "before": lambda training=training: library(training),
                "is_old": training,
                "network": model,
                "family": family(model),
                "mode": "training" if training else "inference",
                "gpu": gpu,
                "precision": "amp-fp16",
                "layout": layout,
                "step_ms": row[mode + "_step_time"],
                "source": "timm",
                "software": software,
                "compiled": "",
                "quality": "A",
                "parameters": float(row["param_count"]) * 1e6,
            }
        )
    return found
