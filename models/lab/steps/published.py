"""The steps of modern/steps.csv.gz on one GPU, built as the published row ran them.

A function for each model makes one step on `batch` samples of `size` in a precision; MODELS lists them. Shapes
come from the repositories in the rows, as far as the README beside the table and the papers describe them.
"""

import functools
import re

import torch
import torch.nn.functional as F

import networks

# Traced precisions: TF32 changes no shape and no type.
KINDS = {
    "fp32": "fp32",
    "tf32": "fp32",
    "amp-fp16": "amp-fp16",
    "bf16": "bf16",
    "fp16-pure": "fp16-pure",
    "bf16-pure": "bf16-pure",
}
AUTOCAST = {"amp-fp16": torch.float16, "bf16": torch.bfloat16}
PURE = {"fp16-pure": torch.float16, "bf16-pure": torch.bfloat16}


class Lamb(torch.optim.Optimizer):
    """LAMB (You et al. 2020) in the passes of a fused one: one like Adam's over parameter, gradient and both
    moments, a norm of each parameter and of its update, and the scaled update."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    def step(self):
        for group in self.param_groups:
            given = [parameter for parameter in group["params"] if parameter.grad is not None]
            grads = [parameter.grad for parameter in given]
            for parameter in given:
                if not self.state[parameter]:
                    for name in ("first", "second"):
                        self.state[parameter][name] = torch.zeros_like(parameter)
                    self.state[parameter]["step"] = torch.zeros(())
            first, second, steps = ([self.state[p][name] for p in given] for name in ("first", "second", "step"))
            with torch.no_grad():
                torch._fused_adamw_(
                    given, grads, first, second, [], steps, lr=0.0, beta1=0.9, beta2=0.999,
                    weight_decay=0.0, eps=1e-6, amsgrad=False, maximize=False,
                )  # fmt: skip
                torch._foreach_norm(given)
                torch._foreach_norm(first)
                torch._foreach_add_(given, first, alpha=-1e-3)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=1e-4, fused=True)


# Until PyTorch 2.0, whose containers ran nearly all rows, these handled parameters one by one.
def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4, foreach=False)


def rmsprop(parameters):
    return torch.optim.RMSprop(parameters, lr=0.1, momentum=0.9, weight_decay=1e-5, eps=0.01, foreach=False)


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-4)


def step(network, loss, optimizer, kind, clip=None):
    """One step: `loss()`, backward and the update, in FP16 with a scaled loss."""
    if kind in PURE:
        network.to(PURE[kind])
    parameters = list(network.parameters())
    optimizer = optimizer(parameters)
    scale, found, inverse = torch.ones(()), torch.zeros(()), torch.ones(())

    def train():
        optimizer.zero_grad()
        with torch.autocast("cuda", AUTOCAST.get(kind), enabled=kind in AUTOCAST):
            value = loss()
        if kind == "amp-fp16":
            (value * scale).backward()
            grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        else:
            value.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, clip)
        optimizer.step()

    return train


def step_in_half(network, loss, optimizer, kind, clip=None):
    """The same with apex at level O2, for FP16: weights, norms and losses in 16 bits, and a copy of the weights
    in 32 for the optimizer."""
    if kind != "amp-fp16":
        return step(network, loss, optimizer, kind, clip)
    network.half()
    halves = list(network.parameters())
    masters = [torch.nn.Parameter(half.detach().float()) for half in halves]
    for master in masters:
        master.grad = torch.zeros_like(master)
    optimizer = optimizer(masters)
    scale, found, inverse = torch.ones(()), torch.zeros(()), torch.ones(())

    def train():
        for half in halves:
            half.grad = None
        (loss() * scale).backward()
        used = [(half, master) for half, master in zip(halves, masters) if half.grad is not None]
        grads = [master.grad for _, master in used]
        with torch.no_grad():
            torch._foreach_copy_(grads, [half.grad for half, _ in used])
            torch._amp_foreach_non_finite_check_and_unscale_(grads, found, inverse)
        if clip:
            torch.nn.utils.clip_grad_norm_(masters, clip)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_([half for half, _ in used], [master for _, master in used])

    return train


def images(batch, channels, *size, kind="fp32"):
    return torch.randn(batch, channels, *size, device="cuda", dtype=PURE.get(kind))


def tokens(count, *shape):
    return torch.randint(0, count, shape, device="cuda")


def classes(network, optimizer, batch, size, kind):
    """A step of a network that classifies images into the 1,000 classes of ImageNet."""
    x, labels = images(batch, 3, size, size), tokens(1000, batch)
    return step(network, lambda: F.cross_entropy(network(x), labels), optimizer, kind)


def resnet50(batch, size, kind):
    """Version 1.5, with the stride in the 3 x 3 convolution, as in torchvision."""
    from torchvision.models import resnet50

    return classes(resnet50(), sgd, batch, size, kind)


def resnext101(batch, size, kind):
    from torchvision.models.resnet import Bottleneck, ResNet

    return classes(ResNet(Bottleneck, [3, 4, 23, 3], groups=32, width_per_group=4), sgd, batch, size, kind)


def efficientnet(batch, size, kind, wide=False):
    """EfficientNet-B0; `wide` derives the width of squeeze and excitation from the expanded side of a block
    instead of from its input."""
    import timm
    from timm.models._efficientnet_blocks import SqueezeExcite

    network = timm.create_model("efficientnet_b0", pretrained=False, drop_path_rate=0.2)
    for module in network.modules() if wide else ():
        if isinstance(getattr(module, "se", None), SqueezeExcite):
            expanded = module.se.conv_expand.out_channels
            act = type(module.se.act1)
            module.se = SqueezeExcite(expanded, rd_channels=expanded // 4, act_layer=act)
    return classes(network, rmsprop, batch, size, kind)


def no_update(name, batch, size, kind, training):
    """The script of u39kun: one pass in eval mode, or forward and backward from the sum of the outputs to the
    images. No optimizer."""
    import torchvision

    network = getattr(torchvision.models, name)()
    network.to(PURE.get(kind)).train(training)
    x = images(batch, 3, size, size, kind=kind).requires_grad_(training)
    if not training:

        def infer():
            with torch.no_grad():
                network(x)

        return infer

    def train():
        network.zero_grad()
        x.grad = None
        network(x).sum().backward()

    return train


def answers(head, batch, size, kind, **config):
    """A model of transformers' BERT kind, fine-tuned for question answering. Attention is unfused in the
    repositories of these rows, and their FP16 is apex O2: 160 samples fit on 40 GB with it, but not with
    autocast."""
    import transformers

    base = head.split("For")[0]
    config = getattr(transformers, base + "Config")(
        max_position_embeddings=512, attn_implementation="eager", **config
    )
    network = getattr(transformers, head)(config).train()
    given = {
        "input_ids": tokens(config.vocab_size, batch, size),
        "attention_mask": torch.ones(batch, size, dtype=torch.long, device="cuda"),
        "token_type_ids": tokens(2, batch, size),
        "start_positions": tokens(size, batch),
        "end_positions": tokens(size, batch),
    }
    return step_in_half(network, lambda: network(**given).loss, adam, kind, clip=1.0)


# NVIDIA pads BERT's vocabulary to a multiple of 8.
bert_squad = functools.partial(answers, "BertForQuestionAnswering", vocab_size=30528)
electra_squad = functools.partial(
    answers, "ElectraForQuestionAnswering", vocab_size=30522,
    embedding_size=768, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
)  # fmt: skip


def transformer_xl(batch, size, kind, clusters=True):
    """The base model; text and memory of `size` words each, memory in the type of the weights. Without
    `clusters` every word is scored."""
    network = networks.TransformerXL(clusters=clusters)
    memory = [
        torch.zeros(size, batch, network.width, dtype=torch.float16 if kind == "amp-fp16" else None)
        for _ in range(network.layers)
    ]
    words, targets = tokens(network.embedding.num_embeddings, size, batch), tokens(1000, size, batch)
    return step_in_half(network, lambda: network(words, targets, memory), Lamb, kind, clip=0.25)


def neumf(batch, size, kind):
    """FP16 is assumed to be apex O2: its batches are 1.7 to 2.1 times, on most GPUs twice those in 32 bits, but
    autocast would only allow 1.5 times in the same memory."""
    network = networks.NeuMF()
    users, items = tokens(network.USERS, batch), tokens(network.ITEMS, batch)
    clicked = torch.zeros(batch, 1)
    loss = lambda: F.binary_cross_entropy_with_logits(network(users, items).float(), clicked)
    return step_in_half(network, loss, adam, kind)


def nnunet(batch, size, kind):
    network = networks.NnUnet()
    x, labels = images(batch, 4, *size), tokens(4, batch, *size)
    return step(network, lambda: networks.dice_and_cross_entropy(network(x), labels), adam, kind)


def unet(batch, size, kind):
    network = networks.Unet()
    x, labels = images(batch, 1, size, size), tokens(2, batch, network.OUT, network.OUT)
    return step(network, lambda: networks.dice_and_cross_entropy(network(x), labels), adam, kind)


def llama(batch, size, kind, attention="flash"):
    """Llama 3.2 1B from embeddings, so without their look-up; scores of all positions. Keys and values are
    repeated for the heads, as in transformers of that time."""
    import transformers
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from transformers.integrations import sdpa_attention

    sdpa_attention.use_gqa_in_sdpa = lambda *args: False
    config = transformers.LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=8, head_dim=64, max_position_embeddings=131072,
        tie_word_embeddings=True, attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    network = transformers.LlamaForCausalLM(config).train()
    x, labels = torch.randn(batch, size, 2048, dtype=PURE[kind]), tokens(128256, batch, size)

    def loss():
        with sdpa_kernel(getattr(SDPBackend, attention.upper() + "_ATTENTION")):
            return network(inputs_embeds=x, labels=labels).loss

    return step(network, loss, plain_sgd, kind)


def sides(text):
    return tuple(int(side) for side in text.split("x"))


# Name in the table: (function, family, parser of the image side or length).
MODELS = {
    "resnet50-v1.5": (resnet50, "cnn", int),
    "resnext101-32x4d": (resnext101, "cnn", int),
    "efficientnet-b0": (efficientnet, "cnn", int),
    "efficientnet-widese-b0": (functools.partial(efficientnet, wide=True), "cnn", int),
    "vgg16": (functools.partial(no_update, "vgg16"), "cnn", int),
    "resnet152": (functools.partial(no_update, "resnet152"), "cnn", int),
    "nnunet-2d": (nnunet, "segmentation", sides),
    "unet-medical": (unet, "segmentation", int),
    "bert-base": (bert_squad, "transformer", int),
    "electra-base": (electra_squad, "transformer", int),
    "transformer-xl-base": (transformer_xl, "transformer", int),
    "llama-3.2-1b": (llama, "transformer", int),
    "ncf-neumf-ml20m": (neumf, "recommender", lambda text: 0),
}

# Parameters, if a source gives them: torchvision, timm, the models' cards and papers.
PARAMETERS = {
    "resnet50-v1.5": 25.557e6,
    "resnext101-32x4d": 44.178e6,
    "efficientnet-b0": 5.289e6,
    "vgg16": 138.358e6,
    "resnet152": 60.193e6,
    # The 109.48 million of BERT base, uncased, without its pooler.
    "bert-base": 108.89e6,
    "transformer-xl-base": 192e6,
    "llama-3.2-1b": 1235.8e6,
    "ncf-neumf-ml20m": 31.8e6,
}

# Machines of Lambda's table with one GPU for which steps.csv.gz has no such step.
OTHERS = {
    "1x A10": "a10",
    "RTX 4090": "rtx-4090",
    "A100 80GB PCIe": "a100-pcie-80gb",
    "1x H100 80GB SXM5": "h100-sxm5-80gb",
    "1x GH200 96GB": "gh200-96gb",
    "1x B200 192GB SXM5": "b200",
}
# Models of that table, and the length or image side of a sample.
SAMPLES = {"resnet50": ("resnet50-v1.5", "224"), "bert_base_squad": ("bert-base", "384")}

# Rows that contradict others or the GPU's limits: (model, GPU, precision, date).
WRONG = {
    # 2.3 times slower than in the previous table and than on the GPU with 16 GB.
    ("efficientnet-widese-b0", "v100-sxm2-32gb", "fp32", "2022-10-03"),
    ("efficientnet-widese-b0", "v100-sxm2-32gb", "amp-fp16", "2022-10-03"),
    # Above the FP32 peak of an A100: it ran in TF32, as the newer table shows.
    ("electra-base", "a100-sxm4-40gb", "fp32", "2020-09-08"),
    # The time of TF32 with the same batch to 0.1 %: mixed precision was off.
    ("ncf-neumf-ml20m", "h200-sxm-141gb", "amp-fp16", "2024-08-02"),
    # With PyTorch 1.4, whose FP16 takes 2.2 times as long as that of 1.13: 280 and 125 ms on the V100 with 16
    # GB and a batch of 12, 1,488 (batch 72) and 674 ms (batch 64) on the Quadro RTX 8000.
    ("transformer-xl-base", "quadro-rtx-5000", "amp-fp16", "2020-03-11"),
    ("transformer-xl-base", "quadro-rtx-8000", "amp-fp16", "2020-06-17"),
    ("transformer-xl-base", "rtx-2080-ti", "amp-fp16", "2020-06-23"),
    ("transformer-xl-base", "titan-rtx", "amp-fp16", "2020-03-10"),
    ("transformer-xl-base", "v100-sxm2-16gb", "amp-fp16", "2020-04-10"),
    ("transformer-xl-base", "v100-sxm2-32gb", "amp-fp16", "2020-03-08"),
}


def in_pytorch(row):
    return row["framework"].startswith("PyTorch")


def usable(row):
    """Whether a row is one step on one GPU with a recipe here. Leaves out other frameworks if PyTorch ran the
    same shapes and their program differs."""
    return (
        row["gpus"] == "1"
        and row["quality"] in ("A", "B")
        and row["model"] in MODELS
        and row["precision"] in KINDS
        and bool(row["batch_per_gpu"] and row["step_ms"])
        # Steps of many micro-batches: the traced step updates after each.
        and row["grad_accum"] in ("", "1")
        # Weights in FP16 beside master copies: there are rows of the same set-up with autocast.
        and "static FP16 weights" not in row["notes"]
        and tuple(row[name] for name in ("model", "gpu", "precision", "date")) not in WRONG
        and (in_pytorch(row) or row["source"] != "u39kun" and row["model"] != "transformer-xl-base")
    )


def newest(rows):
    """The newest row of each configuration: its speed changes with the software."""
    found = {}
    for row in rows:
        key = tuple(
            row[name]
            for name in "source model batch_per_gpu seq_len_or_image precision gpu mode compiled_or_fused".split()
        ) + (re.sub(r"[ \d.]+$", "", row["framework"]),)
        if key not in found or age(row) > age(found[key]):
            found[key] = row
    return list(found.values())


def age(row):
    """Sort key: date, then the version that the software names first."""
    return row["date"], [int(part) for part in re.findall(r"\d+", row["software"])[:2]]


def inferred(row):
    """Whether a row cannot have run what its repository describes, so that the traced step is inferred.
    Lambda's Transformer-XL takes twice the time per sample of NVIDIA's on the same GPU, and its batches fill
    each GPU with 1.4 GB per sample in 32 bits, half of that in 16. By its tensors a sample takes 0.2 GB with
    clusters of words and 0.8 GB with scores of all 267,735 words, whose times agree; the latter is nearest."""
    return row["model"] == "transformer-xl-base" and row["source"] == "lambda-logs"


def quality(row):
    """The row's quality; at most B if the network is inferred, if work outside the GPU may count, or if another
    framework ran the operators that are traced with PyTorch here."""
    waits = "may be limited by the host" in row["notes"]
    return "B" if not in_pytorch(row) or inferred(row) or waits else row["quality"]


def layout(row, family):
    """NHWC if convolutions ran in it: notes of rows with automatic mixed precision in NVIDIA's repositories
    record it; NVIDIA's MXNet and TensorFlow run FP16 in it."""
    if family not in ("cnn", "segmentation") or row["source"] != "nvidia-dle":
        return "nchw"
    half_elsewhere = not in_pytorch(row) and row["precision"] == "amp-fp16"
    return "nhwc" if "AMP uses NHWC" in row["notes"] or half_elsewhere else "nchw"


def locked(row):
    """The clock in MHz, if it was locked."""
    return {"clock_mhz": clock for clock in re.findall(r"clock locked at (\d+) MHz", row["notes"])}


def software(row):
    """The software as the source names it."""
    told = [row["framework"]] if row["source"] != "u39kun" else []
    told += [row["software"]] if row["software"] else []
    told += re.findall(r"container [\d.,]+", row["notes"])
    return ", ".join(told)


def case(row):
    """The case of one row for trace.py."""
    function, family, read = MODELS[row["model"]]
    kind, batch, size = KINDS[row["precision"]], int(row["batch_per_gpu"]), read(row["seq_len_or_image"])
    parts, more = [row["model"]], {}
    training = row["mode"] != "fwd"
    if row["source"] == "u39kun":
        parts.append("forward-backward" if training else "forward")
        more["training"] = training
    if row["model"] == "llama-3.2-1b":
        more["attention"] = re.search(r"sdpa (\w+)_attention", row["compiled_or_fused"])[1]
        parts.append(more["attention"])
    if row["model"] == "transformer-xl-base":
        more["clusters"] = not inferred(row)
        parts += [] if more["clusters"] else ["full"]
    parts += ["b%d" % batch] + ([row["seq_len_or_image"]] if row["seq_len_or_image"] else []) + [kind]
    return {
        "case": "-".join(parts),
        "build": lambda batch_size=batch: function(batch_size, size, kind, **more),
        "network": row["model"],
        "family": family,
        "mode": "training" if training else "inference",
        "gpu": row["gpu"],
        **locked(row),
        "precision": row["precision"],
        "layout": layout(row, family),
        "step_ms": row["step_ms"],
        "source": row["source"],
        "software": software(row),
        "compiled": row["compiled_or_fused"],
        "quality": quality(row),
        "parameters": PARAMETERS.get(row["model"]),
    }


def cases(rows):
    """The cases of the rows of steps.csv.gz, in its order."""
    return [case(row) for row in newest(row for row in rows if usable(row))]


def on_others(rows):
    """The cases of lambda/training_throughput.csv on one GPU of OTHERS, all of which have TF32."""
    found = []
    for row in rows:
        # The B200 handles as many images in FP16 as in TF32: the host cannot supply more.
        is_held_up = (row["hardware"], row["model"]) == ("1x B200 192GB SXM5", "resnet50")
        if row["gpu_count"] == "1" and row["hardware"] in OTHERS and row["model"] in SAMPLES and not is_held_up:
            batch, (model, sample) = row["global_batch"], SAMPLES[row["model"]]
            found.append({
                "source": "lambda-table", "framework": "PyTorch", "software": "", "compiled_or_fused": "",
                "model": model, "seq_len_or_image": sample, "batch_per_gpu": batch, "mode": "train",
                "precision": "amp-fp16" if row["precision"] == "amp-fp16" else "tf32",
                "gpu": OTHERS[row["hardware"]], "step_ms": "%.2f" % (1e3 * int(batch) / float(row["throughput"])),
                "quality": "A", "notes": "may be limited by the host" if model == "resnet50-v1.5" else "",
            })  # fmt: skip
    return [case(row) for row in found]
