"""Gives each operation of a recorded step its module: python with_modules.py RECORDED SHAPES OUT [--name NAME] [--note TEXT]

RECORDED is a step without modules, of models/lab/samples/recorded; SHAPES the same step as `habitat-tui trace-shapes`
traces it without a GPU, which keeps modules. Operations are joined by pass, operator and shapes. A group of equal
operations is divided among the modules that hold them, with its mean time in each, if both files count as many
of them; others stay without a module. Times are not changed. Needs zstandard.
"""

import argparse
import collections
import json
from pathlib import Path

import zstandard

# Operators on the GPU, and their names in the trace of shapes.
SAME = {
    "aten::_to_copy": "aten::copy_",
    "aten::add": "aten::add_",
    "aten::embedding": "aten::gather",
    "aten::_scaled_dot_product_flash_attention": "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_flash_attention_backward": "aten::_scaled_dot_product_cudnn_attention_backward",
}
# Copies are recorded with the type of the result, but traced with that of the source.
OTHER_TYPE = {"float32": "bfloat16", "bfloat16": "float32"}


def key(operation, traced):
    name, inputs = SAME.get(operation["name"], operation["name"]), operation["inputs"]
    dtype = operation.get("dtype")
    if name == "aten::copy_":
        dtype = OTHER_TYPE.get(dtype, dtype) if traced else dtype
        inputs = inputs[:1]
    elif "attention" in name or name == "aten::gather":
        inputs, dtype = inputs[:1], None
    elif "softmax" in name or "nll_loss" in name:
        dtype = None
    return operation["phase"], name, json.dumps(inputs), dtype


def with_modules(recorded, shapes):
    counts = collections.defaultdict(collections.Counter)
    for operation in shapes["operations"]:
        counts[key(operation, True)][operation.get("module")] += operation.get("count", 1)
    named, alone = [], 0.0
    for operation in recorded["operations"]:
        count, modules = operation.get("count", 1), counts[key(operation, False)]
        if sum(modules.values()) != count:
            alone += count * operation["device_time_us"]
            modules = {None: count}
        for module, times in modules.items():
            part = {**operation, "count": times, "module": module}
            if times == 1:
                del part["count"]
            if module is None:
                del part["module"]
            named.append(part)
    return named, alone


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for path in ("recorded", "shapes", "out"):
        parser.add_argument(path, type=Path)
    parser.add_argument("--name", help="of the workload")
    parser.add_argument("--note", action="append", default=[], help="instead of the recording's notes")
    args = parser.parse_args()
    recorded = json.loads(zstandard.ZstdDecompressor().stream_reader(args.recorded.read_bytes()).read())
    recorded["operations"], alone = with_modules(recorded, json.loads(args.shapes.read_text()))
    recorded["workload"]["name"] = args.name or recorded["workload"]["name"]
    recorded["recording"]["notes"] = args.note or recorded["recording"]["notes"]
    args.out.write_bytes(zstandard.ZstdCompressor(level=19).compress(json.dumps(recorded, separators=(",", ":")).encode()))
    print("%.1f ms of operations whose counts differ stay without a module" % (alone / 1e3))


if __name__ == "__main__":
    main()
