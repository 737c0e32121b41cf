"""Parts of language models as PyTorch runs them, measured by the authors of Liger Kernel: losses over large
vocabularies, norms, feed-forward layers, rotary embeddings (benchmark/data in the source archive of
liger-kernel 0.8.5 on PyPI, BSD-2-Clause; its earlier versions show how the earlier rows were measured). Medians
of triton.testing.do_bench, which clears the GPU's cache.

Each is traced as a separate step, forward only or forward and backward. A part is its forward pass and the
tensors whose gradients are dropped before each pass; other gradients accumulate. No model is trained on them,
but two priors of the efficiency model come from a few. Left out are Liger's own kernels, and parts so short
that they measure the host rather than the GPU.
"""

import csv
import json

import torch
import torch.nn.functional as F

GPUS = {
    "NVIDIA A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm5-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA B200": "b200",
    "NVIDIA B300 SXM6 PC": "b300",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
}
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16-pure"}
EAGER = ("huggingface", "torch")
# Vocabularies of the models in the rows.
VOCABULARIES = {
    "llama_2_7b": 32000, "llama_3_8b": 128256, "qwen2.5_7b": 152064, "qwen2.5_14b": 152064, "qwen2.5_72b": 152064,
    "deepseek_v2_lite": 102400, "deepseek_v3": 129280,
}  # fmt: skip
# Parts that create the gradient of the result once, before rows had a "bsz"; others create a random one in each
# pass, or sum up.
GIVEN = ("layer_norm", "rms_norm", "rope", "group_norm", "fused_add_rms_norm", "softmax")
SUMMED = ("megatron_rms_norm", "megatron_swiglu")
HEADS, LATER_HEADS = ("num_q_heads", "num_kv_heads"), ("num_attention_heads", "num_key_value_heads")
SHORTEST_MS = 0.1


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def tokens(many, vocabulary):
    return torch.randint(vocabulary, (many,))


class RmsNorm(torch.nn.Module):
    """The variant in models of transformers, with a weight in FP32."""

    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, hidden):
        wide = hidden.to(torch.float32)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(hidden.dtype)


class AddRmsNorm(RmsNorm):
    def forward(self, hidden, residual):
        total = hidden.to(torch.float32) + residual.to(torch.float32)
        return super().forward(total), total.to(hidden.dtype)


def rows(x, c, default):
    """Tokens and vocabulary of a loss; `x` is one of them."""
    if x in VOCABULARIES:
        return c["bsz"] * c["seq_len"], VOCABULARIES[x]
    return (int(x), c["vocab_size"]) if "vocab_size" in c else (c.get("B", default) * c["T"], int(x))


def cross_entropy(x, c):
    many, vocabulary = rows(x, c, 8)
    logits, wanted = leaf(many, vocabulary), tokens(many, vocabulary)
    # Rows with both tokens and vocabulary are from later versions, which drop the gradient.
    return lambda: F.cross_entropy(logits, wanted), [logits] if "bsz" in c else []


def kl_div(x, c):
    many, vocabulary = rows(x, c, 8)
    mine, wanted = leaf(many, vocabulary).log_softmax(-1), torch.randn(many, vocabulary).softmax(-1)
    return lambda: F.kl_div(mine, wanted, reduction="batchmean"), []


def divergence(mine, wanted):
    """Jensen–Shannon divergence of logarithms."""
    mine, wanted = mine.float(), wanted.float()
    middle = torch.lerp(torch.exp(mine), torch.exp(wanted), 0.5)
    of = lambda log: 0.5 * F.kl_div(torch.log(middle), log, reduction="none", log_target=True).sum(-1)
    return ((of(wanted) + of(mine)) / mine.shape[0]).sum()


def jsd(x, c):
    many, vocabulary = rows(x, c, 4)
    mine, wanted = leaf(many, vocabulary).log_softmax(-1), torch.randn(many, vocabulary).log_softmax(-1)
    return lambda: divergence(mine, wanted), []


def tvd(x, c):
    many, vocabulary = rows(x, c, 8)
    mine, wanted = leaf(many, vocabulary).softmax(-1), torch.randn(many, vocabulary).softmax(-1)
    return lambda: torch.sum(torch.abs(mine - wanted) / 2.0) / many, []


def head(c, dtype):
    """The last layer of a model, and the width of its input."""
    width = c["H"] if "H" in c else c["hidden_size"]
    vocabulary = c["V"] if "V" in c else c["vocab_size"]
    return torch.nn.Linear(width, vocabulary, bias=False, dtype=dtype), width


def matrix(x, c):
    """Rows and columns; `x` is one of them."""
    return (c["M"], x) if "M" in c else (x, c["hidden_size"])


def fused_linear_cross_entropy(x, c, dtype):
    layer, width = head(c, dtype)
    hidden, wanted = leaf(x, width, dtype=dtype), tokens(x, layer.out_features)
    return lambda: F.cross_entropy(layer(hidden), wanted), []


def fused_linear_jsd(x, c, dtype):
    (student, width), (teacher, _) = head(c, dtype), head(c, dtype)
    hidden, other = leaf(x, width, dtype=dtype), torch.randn(x, width, dtype=dtype)

    def forward():
        mine, wanted = student(hidden), teacher(other)
        return divergence(torch.log_softmax(mine / 1.0, -1), torch.log_softmax(wanted / 1.0, -1)).to(dtype)

    return forward, []


def embedding(x, c, dtype):
    layer, ids = torch.nn.Embedding(x, c["D"], dtype=dtype), torch.randint(x, (c["B"], c["T"]))
    return lambda: layer(ids), []


def rms_norm(x, c, dtype):
    hidden = leaf(*matrix(x, c), dtype=dtype)
    layer = RmsNorm(hidden.shape[1])
    return lambda: layer(hidden), [hidden]


def fused_add_rms_norm(x, c, dtype):
    hidden, residual = leaf(*matrix(x, c), dtype=dtype), leaf(*matrix(x, c), dtype=dtype)
    layer = AddRmsNorm(hidden.shape[1])
    return lambda: layer(hidden, residual), [hidden, residual]


def megatron_rms_norm(x, c):
    hidden = leaf(c["S"], c["B"], x, dtype=torch.bfloat16)
    layer = torch.nn.RMSNorm(x, dtype=torch.bfloat16)
    return lambda: layer(hidden), []


def layer_norm(x, c, dtype):
    hidden = leaf(*matrix(x, c), dtype=dtype)
    layer = torch.nn.LayerNorm(hidden.shape[1], dtype=dtype)
    return lambda: layer(hidden), [hidden]


def group_norm(x, c, dtype):
    many, channels = (c["M"], x) if "M" in c else (x // c["H"], c["hidden_size"])
    hidden = leaf(many, channels, c["H"], dtype=dtype)
    layer = torch.nn.GroupNorm(channels // c["channels_per_group"], channels, dtype=dtype)
    return lambda: layer(hidden), [hidden]


def softmax(x, c, dtype):
    hidden = leaf(*matrix(x, c), dtype=dtype)
    return lambda: torch.softmax(hidden, -1), [hidden]


def relu_squared(x, c, dtype):
    hidden = leaf(*matrix(x, c), dtype=dtype)
    return lambda: torch.pow(F.relu(hidden), 2), [hidden]


def feed_forward(x, c, dtype):
    inside, between = c["hidden_size"], c["intermediate_size"]
    linear = lambda a, b: torch.nn.Linear(a, b, bias=False, dtype=dtype)
    hidden = leaf(c["bsz"] if "bsz" in c else c["B"], x, inside, dtype=dtype)
    gate, up, down = linear(inside, between), linear(inside, between), linear(between, inside)
    function = F.silu if c["hidden_act"] == "silu" else lambda y: F.gelu(y, approximate="tanh")
    return lambda: down(function(gate(hidden)) * up(hidden)), [hidden]


def megatron_swiglu(x, c):
    hidden = leaf(c["S"], c["B"], 2 * x, dtype=torch.bfloat16)

    def forward():
        one, other = torch.chunk(hidden, 2, -1)
        return F.silu(one) * other

    return forward, []


def rope(x, c, dtype):
    length, size = (x, c["hidden_size"]) if "hidden_size" in c else (c["seq_len"], x)
    # Later versions name the heads differently, and compute only the gradient of the queries.
    is_later = "num_attention_heads" in c
    heads = [c[key] for key in (LATER_HEADS if is_later else HEADS)]
    width = size // heads[0]
    given = [leaf(1, length, many, width, dtype=dtype) for many in heads]
    turned = [heads.transpose(1, 2) for heads in given]
    cos, sin = (torch.randn(1, 1, length, width, dtype=dtype) for _ in range(2))
    half = lambda y: torch.cat((-y[..., width // 2 :], y[..., : width // 2]), dim=-1)
    turn = lambda: [y * cos + half(y) * sin for y in turned]
    return (lambda: turn()[:1]) if is_later else turn, given


PARTS = {
    "swiglu": feed_forward, "geglu": feed_forward, "tiled_swiglu": feed_forward, "tiled_geglu": feed_forward,
    **{made.__name__: made for made in (
        cross_entropy, kl_div, jsd, tvd, fused_linear_cross_entropy, fused_linear_jsd, embedding, rms_norm,
        fused_add_rms_norm, megatron_rms_norm, layer_norm, group_norm, softmax, relu_squared, megatron_swiglu, rope,
    )},
}  # fmt: skip


def build(kernel, inputs, is_full, is_compiled):
    """The part as a step."""
    forward, dropped = PARTS[kernel](*inputs)
    forward = torch.compile(forward) if is_compiled else forward
    as_list = lambda made: made if isinstance(made, (list, tuple)) else [made]
    with torch.no_grad():
        is_given = kernel in GIVEN and "bsz" not in inputs[1]
        given = [torch.randn_like(one) for one in as_list(forward())] if is_given else None

    def step():
        made = as_list(forward())
        if is_full:
            for one in dropped:
                one.grad = None
            if kernel in SUMMED:
                made = [one.sum() for one in made]
            is_scalar = made[0].dim() == 0
            gradients = given or (None if is_scalar else [torch.randn_like(one) for one in made])
            torch.autograd.backward(made, gradients, retain_graph=True)

    return step


def measured(folder):
    """The median times of eager and compiled PyTorch in milliseconds, by what was measured."""
    times = {}
    for path in sorted(folder.glob("all_benchmark_data*.csv")):
        for row in csv.DictReader(path.open(newline="")):
            compiled = row["kernel_provider"] == "torch_compile"
            known = row["kernel_name"] in PARTS and (compiled or row["kernel_provider"] in EAGER)
            if known and row["metric_name"] == "speed" and row["kernel_operation_mode"] in ("forward", "full"):
                keys = "kernel_name kernel_operation_mode x_value extra_benchmark_config_str gpu_name".split()
                times[(*(row[key] for key in keys), compiled)] = float(row["y_value_50"])
    return times


def cases(folder):
    found = []
    for (kernel, mode, x, config, gpu, compiled), milliseconds in measured(folder).items():
        if milliseconds < SHORTEST_MS:
            continue
        config = json.loads(config)
        dtype = getattr(torch, config["dtype"].split(".")[1]) if "dtype" in config else None
        precision = PRECISIONS[dtype or (torch.bfloat16 if kernel.startswith("megatron") else torch.float32)]
        inputs = (x if x in VOCABULARIES else int(float(x)), config) + ((dtype,) if dtype else ())
        sizes = "-".join(str(value).replace("torch.", "") for value in config.values() if value is not None)
        name = "%s%s-%s-%s-%s" % (kernel, "-compiled" if compiled else "", x, sizes, mode)
        found.append({
            "case": name,
            "build": lambda given=(kernel, inputs, mode == "full", compiled): build(*given),
            "network": name,
            "family": "part-%s%s" % (kernel, "-compiled" if compiled else ""),
            "mode": "training" if mode == "full" else "inference",
            "gpu": GPUS[gpu],
            "precision": precision,
            "layout": "",
            "step_ms": "%.6g" % milliseconds,
            "source": "liger-kernel",
            "software": "torch.compile" if compiled else "",
            "compiled": "one operator",
            "quality": "A",
        })  # fmt: skip
    return found
