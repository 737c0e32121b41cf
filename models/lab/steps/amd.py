"""Operators on AMD GPUs, measured alone by others (README of the tables `ops.csv.gz` and `conv.csv.gz`), as
steps of one operation: products by rocBLAS, hipBLASLt and CK, convolutions by MIOpen, attention by CK and
AOTriton, and PyTorch's kernels for norms, softmax and elementwise arithmetic. A sample, the same each time.

Libraries that were tuned for a shape are faster than PyTorch's default; such rows are marked.
"""

import ast
import collections
import zlib

import operators

GPUS = {"mi300x": "mi300x", "mi210": "mi210", "mi250x-gcd": "mi250-gcd", "mi100": "mi100"}
PRECISIONS = {"bf16": "bf16", "fp16": "fp16_tensor", "fp32": "fp32", "fp8": "fp8"}
operators.PRECISIONS["fp32"] = "fp32", "float32"
# Most rows of a cell (kind, GPU, type, pass, source).
MOST = 30
# Products with fewer rows are from token generation. A shorter time is mostly its launch.
FEWEST_ROWS, LEAST_FLOPS, SHORTEST_US = 128, 5e9, 40.0
# PyTorch's kernels in TraceLens' traces, with the names of their operators here.
STREAMS = {
    "aten::add": "aten.add.Tensor", "aten::mul": "aten.mul.Tensor", "aten::add_": "aten.add_.Tensor",
    "aten::gelu": "aten.gelu.default", "aten::silu": "aten.silu.default", "aten::_softmax": "aten._softmax.default",
    "aten::native_layer_norm": "aten.native_layer_norm.default", "aten::layer_norm": "aten.native_layer_norm.default",
    "aten::batch_norm": "aten.native_batch_norm.default", "aten::native_batch_norm": "aten.native_batch_norm.default",
    "aten::native_batch_norm_backward": "aten.native_batch_norm_backward.default",
    "aten::relu": "aten.relu.default", "aten::relu_": "aten.relu_.default", "aten::div": "aten.div.Tensor",
    "aten::threshold_backward": "aten.threshold_backward.default", "aten::pow": "aten.pow.Tensor_Scalar",
    "aten::max_pool2d_with_indices_backward": "aten.max_pool2d_with_indices_backward.default",
}  # fmt: skip


def pair(text):
    first, _, second = text.partition("x")
    return [int(first), int(second or first)]


def convolution(row):
    number = lambda key: int(float(row[key]))
    batch, inside, outside, groups = (number(key) for key in ("batch", "in_channels", "out_channels", "groups"))
    pictures = [batch, inside, number("height"), number("width")]
    weight = [outside, inside // groups, number("kernel_h"), number("kernel_w")]
    output = [batch, outside, number("out_h"), number("out_w")]
    rest = [pair(row["stride"]), pair(row["pad"]), pair(row["dilation"]), False, [0, 0], groups]
    if row["pass"] == "fwd":
        return "aten.convolution.default", "forward", [pictures, weight], [None, *rest], [output]
    mask = [row["pass"] == "bwd_data", row["pass"] == "bwd_weight", False]
    shapes = [output, pictures, weight]
    return "aten.convolution_backward.default", "backward", shapes, [None, *rest, mask], [pictures, weight]


def attention(row):
    number = lambda key: int(float(row[key]))
    batch, heads, size = number("batch"), number("heads"), number("head_dim")
    q, k = [batch, heads, number("seq_q"), size], [batch, heads, number("seq_kv"), size]
    causal = row["causal"] == "True"
    name = "aten._scaled_dot_product_flash_attention"
    if row["pass"] == "fwd":
        return name + ".default", "forward", [q, k, k], [0.0, causal], [q]
    return name + "_backward.default", "backward", [q, q, k, k, q], [None] * 5 + [0.0, causal], [q, k, k]


def stream(row):
    shapes = [list(shape) for shape in ast.literal_eval(row["shape"]) if shape and isinstance(shape[0], int)]
    backward = "backward" in row["op"]
    return STREAMS[row["op"]], "backward" if backward else "forward", shapes, [], shapes[:1]


def made(row):
    """The operator of a row and its kind; `None` if training steps do not have such an operator."""
    if row["kind"] in ("gemm", "batched_gemm") and row["m"] and float(row["m"]) >= FEWEST_ROWS:
        whole = {key: row[key] for key in ("layout",)} | {key: int(float(row[key])) for key in "mnk"}
        whole["b"] = int(float(row["batch"] or 1))
        if 2.0 * whole["b"] * whole["m"] * whole["n"] * whole["k"] < LEAST_FLOPS:
            return None, None
        return "product", operators.product(whole)
    if row["kind"] == "attention" and int(float(row["head_dim"])) <= 256 and "unfused" not in row["op"]:
        return "attention", attention(row)
    if row["op"] in STREAMS and row["shape"]:
        return "stream", stream(row)
    return None, None


def case(row, kind, operator, label):
    row = dict(row, gpu=GPUS[row["gpu"]], precision=PRECISIONS[row["dtype"]], source=row["source"].split("@")[0])
    row.setdefault("software", "")
    milliseconds = "%.5f" % (float(row["time_us"]) / 1e3)
    found = operators.case(row, "operator-%s" % kind, label, operator, milliseconds)
    found["case"] = found["case"].replace("/", "-")
    found["layout"] = "nhwc" if row.get("layout") == "NHWC" else ""
    found["quality"] = "B" if row["quality"] == "A" and row.get("tuned") else row["quality"]
    return found


def cases(ops, conv):
    cells = collections.defaultdict(list)
    for row in ops:
        usable = row["gpu"] in GPUS and row["dtype"] in PRECISIONS and row["time_us"]
        # Some of PyTorch's first kernels took four times as long before a fix; C elsewhere is an assumption.
        is_old = row["quality"] == "C" and "flash-attention/pu" not in row["source"]
        if not usable or is_old or float(row["time_us"]) < SHORTEST_US:
            continue
        kind, operator = made(row)
        if kind:
            label = "%s-%s-%s" % (kind, operator[0].split(".")[1], "-".join("x".join(map(str, s)) for s in operator[2][:2]))
            cells[kind, row["gpu"], row["dtype"], row["pass"], row["source"][:12]].append((label, kind, operator, row))
    for row in conv:
        usable = row["dims"] == "2" and row["gpu"] in GPUS and int(row["batch"]) >= 8
        if not usable or float(row["time_us"]) < SHORTEST_US or "Naive" in row["solver"]:
            continue
        operator = convolution(row)
        groups, kernel = int(row["groups"]), (row["kernel_h"], row["kernel_w"])
        sort = "depthwise" if groups == int(row["in_channels"]) > 1 else "grouped" if groups > 1 else \
            "pointwise" if kernel == ("1", "1") else "dense"  # fmt: skip
        keys = "batch in_channels height width out_channels kernel_h kernel_w stride pad dilation groups".split()
        label = "conv-%s-%s%s" % (row["pass"], "-".join(row[key] for key in keys), row["layout"] == "NHWC" and "-nhwc" or "")
        row = dict(row, source="MIOpen", quality="A", tuned="yes", software="2024-10")
        cells[sort, row["gpu"], row["dtype"], row["pass"], row["layout"]].append((label, "convolution", operator, row))
    found = {}
    for rows in cells.values():
        for label, kind, operator, row in sorted(rows, key=lambda one: zlib.crc32(one[0].encode()))[:MOST]:
            one = case(row, kind, operator, label)
            found[one["case"], one["gpu"]] = one
    return list(found.values())
