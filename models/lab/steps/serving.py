"""Operators of aiconfigurator-core's tables (NVIDIA, Apache-2.0, on PyPI), measured alone on nine GPUs from A100 to
GB300 by three inference servers: products in BF16 and FP8, attention in BF16. A sample, the same each time.
`python serving.py DIR` prints the rates of products that the catalog has from them. Needs pyarrow."""

import collections
import statistics
import sys
import zlib
from pathlib import Path

import operators

GPUS = {
    "a100_sxm": "a100-sxm4-80gb",
    "h100_sxm": "h100-sxm5-80gb",
    "h200_sxm": "h200-sxm-141gb",
    "b200_sxm": "b200",
    "b300_sxm": "b300",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
    "rtx_pro_6000_server": "rtx-pro-6000-blackwell-server",
}
# cuBLAS products, as in PyTorch; others are the servers' own kernels.
PRODUCTS = {
    "bfloat16": ("torch_flow", "torch.nn.functional.linear", "vllm_default", "sglang", "sglang_torch_linear"),
    "fp8": ("torch_flow",),
}
# FlashAttention by version: 2 is PyTorch's; those for Hopper and Blackwell are similar to cuDNN's.
ATTENTION = {"fa2": "flash", "flash_attn": "flash", "fa3": "cudnn", "fa4": "cudnn"}
# Sampling of sizes: one in this number.
ONE_IN = {"product": 90, "attention": 20, "causal": 40}
# Products with fewer rows are from token generation, not from training or a batch.
FEWEST_ROWS = 128
# Memory-bound operators with smaller tensors find them in the L2 cache after the last repetition.
BEYOND_CACHE = 256e6
# FLOPs per byte, and keys, from which on an operator is not memory-bound.
MANY_A_BYTE = 250
MANY_KEYS = 1024
# Wider heads have separate kernels.
WIDEST_HEAD = 256
# A shorter time with a cast of the input is mostly that of three launches.
SHORTEST_CAST_MS = 0.2


def is_taken(kind, *sizes):
    return zlib.crc32(repr((kind, *map(int, sizes))).encode()) % ONE_IN[kind] == 0


def tables(folder, kind, file):
    """Rows of the tables of a kind, each with its GPU and server."""
    import pyarrow.parquet

    for path in sorted((folder / "aiconfigurator_core" / "systems" / "data").glob("*/%s/*/*/%s" % (kind, file))):
        system, server, version = path.parts[-5], path.parts[-3], path.parts[-2]
        if system in GPUS:
            common = {"gpu": GPUS[system], "source": "aiconfigurator-" + server, "software": version}
            for row in pyarrow.parquet.read_table(path).to_pylist():
                yield dict(row, **common)


def products(folder):
    for row in tables(folder, "gemm", "gemm_perf.parquet"):
        m, n, k, dtype = row["m"], row["n"], row["k"], row["gemm_dtype"]
        moved = (m * k + n * k) * (1 if dtype == "fp8" else 2) + 2 * m * n
        is_long = dtype != "fp8" or row["latency"] >= SHORTEST_CAST_MS
        is_known = row["kernel_source"] in PRODUCTS.get(dtype, ()) and m >= FEWEST_ROWS and m % 8 == 0 and is_long
        if is_known and (moved >= BEYOND_CACHE or 2 * m * n * k / moved >= MANY_A_BYTE) and is_taken("product", m, n, k):
            shapes = ("forward", [[m, k], [k, n]], [], [[m, n]])
            row["precision"], made = "bf16", None
            if dtype == "fp8":
                # The time includes the casts of the input, which first look for its largest value.
                row["precision"] = "fp8"
                made = [
                    operators.listed(("aten.amax.default", "forward", [[m, k]], [], [[1]]), "bfloat16"),
                    operators.listed(("aten._to_copy.default", "forward", [[m, k]], [], [[m, k]]), "bfloat16", "float8_e4m3fn"),
                    operators.listed(("aten._scaled_mm.default", *shapes), "float8_e4m3fn", "bfloat16"),
                ]
            yield row, "operator-product", "gemm-%dx%dx%d" % (m, n, k), ("aten.mm.default", *shapes), made


def attentions(folder):
    for kind in ("attention", "encoder_attention"):
        is_causal = kind == "attention"
        for row in tables(folder, kind, "context_attention_perf.parquet" if is_causal else kind + "_perf.parquet"):
            batch, heads, length, size = (row[key] for key in ("batch_size", "num_heads", "isl", "head_dim"))
            kv_heads = row.get("num_key_value_heads") or heads
            kernel = next((name for end, name in ATTENTION.items() if row["kernel_source"].endswith(end)), None)
            is_plain = row["attn_dtype"] == row.get("kv_cache_dtype", "bfloat16") == "bfloat16"
            if not (kernel and is_plain and size <= WIDEST_HEAD) or row.get("window_size") or row.get("step"):
                continue
            sizes = (batch, length, heads, kv_heads, size)
            if length >= MANY_KEYS and is_taken("causal" if is_causal else "attention", *sizes):
                q, k = [batch, heads, length, size], [batch, kv_heads, length, size]
                rest = [0.0, is_causal] if kernel == "flash" else [None, True, 0.0, is_causal]
                name = "aten._scaled_dot_product_%s_attention.default" % kernel
                label = "attention-%s-%dx%dx%dx%dx%d%s" % (kernel, *sizes, "c" * is_causal)
                row["precision"] = "bf16"
                yield row, "operator-attention", label, (name, "forward", [q, k, k], rest, [q]), None


def cases(folder):
    found = []
    for row, family, label, operator, made in [*products(folder), *attentions(folder)]:
        if row["latency"] >= operators.SHORTEST_MS:
            found.append(operators.case(row, family, label, operator, "%.4f" % row["latency"], made))
    return found


def rates(folder):
    """By GPU and element type, the rate in TFLOP/s that 0.5 % of the sizes exceed, and its size: the median of
    the servers, for sizes that all of them measured."""
    by_size = collections.defaultdict(list)
    for row in tables(folder, "gemm", "gemm_perf.parquet"):
        if row["kernel_source"] in PRODUCTS.get(row["gemm_dtype"], ()):
            m, n, k = row["m"], row["n"], row["k"]
            by_size[row["gpu"], row["gemm_dtype"], m, n, k].append(2 * m * n * k / row["latency"] / 1e9)
    by_type = collections.defaultdict(list)
    for (gpu, dtype, *size), found in by_size.items():
        if dtype == "fp8" or len(found) >= 3:
            by_type[gpu, dtype].append((statistics.median(found), "x".join(map(str, size))))
    return {key: sorted(found)[int(len(found) * 0.995)] for key, found in by_type.items()}


if __name__ == "__main__":
    for (gpu, dtype), (rate, size) in rates(Path(sys.argv[1])).items():
        print("%s %s %.1f %s" % (gpu, dtype, rate, size))
