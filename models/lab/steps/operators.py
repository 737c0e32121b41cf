"""Operators of modern/{gemm,conv,attention}.csv.gz that were measured alone, as steps of one operation: BF16
and TF32 products (XLA's tables, H100), FP16 products and convolutions (DeepBench, V100) and attention in BF16
(cudnn-frontend, H200)."""

# A shorter time is mostly its launch, and DeepBench rounds to a microsecond.
SHORTEST_MS = 0.03
PRECISIONS = {
    "bf16": ("bf16-pure", "bfloat16"),
    "tf32": ("tf32", "float32"),
    "fp16_tensor": ("fp16-pure", "float16"),
    "fp8": ("fp8", "float8_e4m3fn"),
}
KERNELS = {"flash (torch sdpa)": "flash", "cudnn": "cudnn"}


def product(row):
    b, m, n, k = (int(row[key]) for key in "bmnk")
    # A column-major BLAS product is the transposed row-major product of the transposed matrices.
    if row["layout"].startswith("column-major"):
        m, n = n, m
    if b > 1:
        return "aten.bmm.default", "forward", [[b, m, k], [b, k, n]], [], [[b, m, n]]
    return "aten.mm.default", "forward", [[m, k], [k, n]], [], [[m, n]]


def convolution(row, part):
    number = {key: int(value) for key, value in row.items() if value.isdigit()}
    batch, inside, outside = number["batch"], number["in_channels"], number["out_channels"]
    pictures = [batch, inside, number["height"], number["width"]]
    weight = [outside, inside // number["groups"], number["kernel_h"], number["kernel_w"]]
    output = [batch, outside, number["out_h"], number["out_w"]]
    two = lambda key: [number[key + "_h"], number[key + "_w"]]
    rest = [two("stride"), two("pad"), [number["dilation"]] * 2, False, [0, 0], number["groups"]]
    if part == "fwd":
        return "aten.convolution.default", "forward", [pictures, weight], [None, *rest], [output]
    mask = [part == "bwd_data", part == "bwd_weight", False]
    shapes = [output, pictures, weight]
    return "aten.convolution_backward.default", "backward", shapes, [None, *rest, mask], [pictures, weight]


def attention(row):
    number = {key: int(row[key]) for key in "batch q_len kv_len q_heads kv_heads head_dim_qk head_dim_v".split()}
    batch, queries, keys = number["batch"], number["q_len"], number["kv_len"]
    q = [batch, number["q_heads"], queries, number["head_dim_qk"]]
    k = [batch, number["kv_heads"], keys, number["head_dim_qk"]]
    v = [batch, number["kv_heads"], keys, number["head_dim_v"]]
    output = [batch, number["q_heads"], queries, number["head_dim_v"]]
    name = "aten._scaled_dot_product_%s_attention" % KERNELS[row["backend"]]
    causal = row["mask"] not in ("none", "no_mask")
    flash = "flash" in name
    if row["pass"] == "fwd":
        rest = [0.0, causal] if flash else [None, True, 0.0, causal]
        return name + ".default", "forward", [q, k, v], rest, [output]
    between = 6 if flash else 9
    rest = [None] * (between - 1) + [0.0, causal]
    return name + "_backward.default", "backward", [output, q, k, v, output], rest, [q, k, v]


def listed(operator, dtype, result=None):
    name, phase, inputs, rest, outputs = operator
    return {
        "op": name,
        "phase": phase,
        "module": None,
        "inputs": [{"shape": shape, "dtype": dtype} for shape in inputs] + rest,
        "kwargs": None,
        "outputs": [{"shape": shape, "dtype": result or dtype} for shape in outputs],
        "count": 1,
    }


def case(row, family, size, operator, milliseconds, made=None):
    precision, dtype = PRECISIONS[row["precision"]]
    made = made or [listed(operator, dtype)]
    training = made[0]["phase"] == "backward"
    label = "%s-%s-%s-%s" % (family, size, precision, row["source"])
    info = {"case": label, "batch": 1, "mode": "training" if training else "inference", "tf32": precision == "tf32"}
    return {
        "case": label,
        "made": {"format": "habitat-op-list", "version": 1, "info": info, "ops": made},
        "network": size,
        "family": family,
        "mode": info["mode"],
        "gpu": row["gpu"],
        "precision": precision,
        "layout": "",
        "step_ms": milliseconds,
        "source": row["source"],
        "software": row["software"],
        "compiled": "one operator",
        "quality": "A",
    }


def cases(gemm, conv, attentions):
    found = []
    for row in gemm:
        # XLA's products in FP8 are faster than the peak of the GPU.
        is_known = row["precision"] in PRECISIONS and row["precision"] != "fp8"
        if is_known and float(row["time_ms"]) >= SHORTEST_MS:
            size = "%s-b%s-%sx%sx%s%s%s" % ("gemm", *(row[key] for key in "bmnk"), row["trans_a"], row["trans_b"])
            found.append(case(row, "operator-product", size, product(row), row["time_ms"]))
    for row in conv:
        for part in ("fwd", "bwd_data", "bwd_weight"):
            time = row[part + "_ms"]
            if row["precision"] in PRECISIONS and time and float(time) >= SHORTEST_MS:
                keys = "batch in_channels height width out_channels kernel_h kernel_w stride_h pad_h".split()
                size = "conv-%s-%s" % (part, "x".join(row[key] for key in keys))
                found.append(case(row, "operator-convolution", size, convolution(row, part), time))
    for row in attentions:
        known = row["backend"] in KERNELS and row["precision"] == "bf16" and not row["window"]
        if known and float(row["time_ms"]) >= SHORTEST_MS:
            keys = "batch q_len kv_len q_heads kv_heads head_dim_qk head_dim_v mask pass".split()
            row = dict(row, source="cudnn-frontend")
            size = "attention-%s-%s" % (KERNELS[row["backend"]], "x".join(row[key] for key in keys))
            found.append(case(row, "operator-attention", size, attention(row), row["time_ms"]))
    return found
