"""The steps of timm's benchmark tables (benchmark.py of pytorch-image-models at 066e490): FP16
autocast, eager, random input on the GPU. Training is forward, cross entropy, backward and SGD
with Nesterov momentum; inference runs under no_grad in eval mode."""

import re

# Designs whose branches are merged for inference. The table of PyTorch 2.9 has the parameter
# counts of merged networks, that of 2.4 those of networks as they are trained.
MERGED = ("repvgg", "mobileone", "fastvit", "repvit", "repghost")


def build(model, batch, size, training, fused, merged):
    """One step of a network of timm's."""
    import timm
    import torch
    from timm.layers import set_fused_attn

    set_fused_attn(fused)
    network = timm.create_model(model, pretrained=False)
    network.train(training)
    if merged:
        network = timm.utils.reparameterize_model(network)
    inputs = torch.randn(batch, 3, size, size, device="cuda")
    if not training:

        def infer():
            with torch.no_grad(), torch.autocast("cuda", torch.float16):
                network(inputs)

        return infer
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    labels = torch.randint(0, 1000, (batch,), device="cuda")
    loss = torch.nn.CrossEntropyLoss()

    def train():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            output = network(inputs)
        loss(output, labels).backward()
        optimizer.step()

    return train


def family(model):
    """Networks of one design, by the letters that its name begins with."""
    return re.match(r"[a-z]+(?:v[0-9]|x|y|[0-9](?=_))?", model)[0]


def cases(name, rows):
    """Of one table, named MODE-amp-LAYOUT-ptVERSION-GPU.csv.gz."""
    import timm

    mode, _, layout, software, gpu = name.split(".csv")[0].split("-", 4)
    gpu = gpu.replace("rtx", "rtx-")
    training = mode == "train"
    # Fused attention is turned off in the tables of 1.12.
    fused = software != "pt1.12"
    known = set(timm.list_models()) | set(timm.list_pretrained())
    found = []
    for row in sorted(rows, key=lambda row: row["model"]):
        model, batch, size = row["model"], int(row[mode + "_batch_size"]), int(row[mode + "_img_size"])
        if model not in known:
            continue
        merged = software == "pt2.9" and model.startswith(MERGED)
        made = (model, batch, size, training, fused, merged)
        found.append(
            {
                "case": "timm-%s-%s-b%d-%d%s" % (mode, model, batch, size, "-merged" if merged else ""),
                "build": lambda made=made: build(*made),
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
