"""Packs measurements of profiler/gpu/time_steps.py into profiles: python recorded.py OUT... --gpu SLUG --to
DIR.
Prints their facts on hosts, on two GPUs, on cycles per element, and on the shortest operators: python
recorded.py --show DIR.

Each timed case becomes DIR/SLUG/CASE.habitat.json.zst: the operators and kernels of the traced step as
`habitat-tui import` reads them, without a timeline, and the times of the steps without a profiler. `habitat-lab
train --recorded DIR` learns from them, and `habitat-lab evaluate steps DIR` evaluates on them. Needs zstandard.
"""

import argparse
import collections
import csv
import gzip
import json
import math
import statistics
import subprocess
import tempfile
import tomllib
from pathlib import Path

import zstandard

# From profiler/gpu/steps.py, which turns TF32 off in FP32.
PRECISIONS = {"fp32": "fp32-strict", "tf32": "tf32", "bf16": "amp-bf16", "fp16": "amp-fp16"}


def packed(row, trace, args):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.habitat.json"
        command = [args.program, "import", trace, "-o", path, "--json", "--name", row["network"]]
        command += ["--batch-size", row["batch"], "--precision", PRECISIONS[row["precision"]], "--origin", args.gpu]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        profile = json.loads(path.read_text())
    del profile["timeline"]
    step = profile["step"]
    step.pop("profiled", None)
    step["duration_us"] = round(float(row["step_ms"]) * 1e3, 1)
    step["duration_range_us"] = [round(float(row[key]) * 1e3, 1) for key in ("p10_ms", "p90_ms")]
    step["samples"] = int(row["steps"])
    step["peak_memory_bytes"] = round(float(row["peak_mb"]) * 1e6)
    profile["origin"]["framework"] = "pytorch " + row["torch"]
    return zstandard.ZstdCompressor(level=19).compress(json.dumps(profile, separators=(",", ":")).encode())


def profiles(folder):
    """Profiles by case and GPU."""
    found = collections.defaultdict(dict)
    for path in sorted(folder.glob("*/*.habitat.json.zst")):
        with open(path, "rb") as file:
            profile = json.load(zstandard.ZstdDecompressor().stream_reader(file))
        found[path.name.split(".")[0]][path.parent.name] = profile
    return found


def times(operation):
    """Number and microseconds of kernels in all its occurrences."""
    count, kernels = operation.get("count", 1), operation["kernels"]
    of = lambda kernel: kernel.get("count", 1)
    return count * sum(map(of, kernels)), count * sum(of(kernel) * kernel["duration_us"] for kernel in kernels)


def show(folder):
    """Prints steps that waited for the host, and kinds of operations that two GPUs ran alike."""
    print("step that waited for the host, busy, microseconds from kernel to kernel")
    cases = profiles(folder)
    for case, by_gpu in cases.items():
        for gpu, profile in by_gpu.items():
            step = profile["step"]
            busy, launches = step["device_busy_us"] / step["duration_us"], sum(times(o)[0] for o in profile["operations"])
            if busy < 0.9:
                print("%-40s %-16s %3.0f %% %6.1f" % (case, gpu, 100 * busy, step["duration_us"] / launches))
    sums = collections.defaultdict(lambda: [0, 0])
    both = [by_gpu for by_gpu in cases.values() if len(by_gpu) == 2]
    gpus = sorted(both[0])
    for by_gpu in both:
        alike = [{}, {}]
        for at, gpu in enumerate(gpus):
            for operation in by_gpu[gpu]["operations"]:
                attributes = operation.get("attributes", {})
                order = attributes.get("memory_format", "")
                groups = "in groups" if attributes.get("groups", 1) > 1 else ""
                what = (operation["name"], operation["phase"], operation.get("dtype", ""), order, groups)
                alike[at][what, json.dumps(operation.get("inputs"))] = times(operation)[1]
        for key in alike[0].keys() & alike[1].keys():
            for at in (0, 1):
                sums[key[0]][at] += alike[at][key]
    print("\noperations of %d steps, milliseconds on %s and %s, ratio" % (len(both), *gpus))
    for what, (one, other) in sorted(sums.items(), key=lambda item: -item[1][0]):
        if other > 1000:
            print("%8.2f %8.2f %5.2f  %s" % (one / 1e3, other / 1e3, one / other, " ".join(filter(None, what))))
    recorded = [item for by_gpu in cases.values() for item in by_gpu.items()]
    cycles(recorded)
    shortest(folder, [operation for _, profile in recorded for operation in profile["operations"]])


def shortest(folder, operations):
    """Prints microseconds of the shortest of each operator: alone, as `habitat-tui collect` timed it, and its
    kernels in a step."""
    alone, in_steps = collections.defaultdict(list), collections.defaultdict(list)
    for path in folder.glob("*/operators.csv.gz"):
        with gzip.open(path, "rt") as file:
            for row in csv.DictReader(line for line in file if not line.startswith("#")):
                if row["status"] == "ok":
                    alone["%s %s" % (row["op"], row["pass"])].append(float(row["latency_us"]))
    for operation in operations:
        once = times({**operation, "count": 1})[1]
        in_steps["%s %s" % (operation["name"], operation["phase"])].append(once)
    for what, found in (("alone", alone), ("in a step", in_steps)):
        print("\nmicroseconds of the shortest, %s; number" % what)
        for name, took in sorted(found.items()):
            if max(took) > 0 and "triton_" not in name:
                print("%7.1f %6d  %s" % (min(filter(None, took)), len(took), name))


def cycles(by_gpu):
    """Prints SM cycles at the boost clock of depthwise convolutions and poolings per element of the result;
    backward, per element of the input (of the output, for the gradient of weights): by the properties that
    distinguish kernels."""
    catalog = Path(__file__).parents[3] / "catalog"
    found = collections.defaultdict(list)
    for gpu, profile in by_gpu:
        figures = tomllib.loads((catalog / (gpu + ".toml")).read_text())
        rate = figures["sm_count"] * figures["boost_clock_mhz"]
        for operation in profile["operations"]:
            name, inputs, attributes = operation["name"].removeprefix("aten::"), operation["inputs"], operation.get("attributes", {})
            backward = "backward" in name
            image = inputs[backward] if len(inputs) > backward else []
            filters = inputs[backward + 1] if len(inputs) > backward + 1 else []
            outside = inputs[0] if backward else (operation.get("outputs") or [[]])[0]
            said = [operation.get("dtype", ""), attributes.get("memory_format", "channels_first")]
            stride = (attributes.get("stride") or [1])[0]
            passes = {"": operation["kernels"]}
            if "conv" in name and filters[1:2] == [1] and filters[:1] == image[1:2] != [1] and len(filters) == 4:
                what, taps = "depthwise", filters[2] * filters[3]
                if backward:
                    data = [k for k in operation["kernels"] if "dgrad" in k["name"] or "depthwise2d_backward" in k["name"]]
                    passes = {"data": data, "weight": [k for k in operation["kernels"] if k not in data]}
            elif "pool2d" in name and "kernel_size" in attributes:
                what, taps = name, math.prod(attributes["kernel_size"])
            else:
                continue
            for gradient, kernels in passes.items():
                of = image if gradient == "data" or backward and what != "depthwise" else outside
                elements = math.prod(of) if of else math.prod(image) / stride**2
                found[what, gradient, *said, taps, stride].append(times({"kernels": kernels})[1] * rate / elements)
    print("\ncycles an element: least, median, most, number; operation, gradient, type, order, taps, stride")
    for what, took in sorted(found.items(), key=lambda item: tuple(map(str, item[0]))):
        if len(took) > 1:
            print("%7.2f %7.2f %7.2f %5d  %s" % (min(took), statistics.median(took), max(took), len(took), " ".join(filter(None, map(str, what)))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, nargs="*", help="folders that time_steps.py wrote, of one GPU")
    parser.add_argument("--gpu", help="its slug in the catalog")
    parser.add_argument("--to", type=Path, help="folder for the profiles")
    parser.add_argument("--program", default="target/release/habitat-tui")
    parser.add_argument("--show", type=Path, help="folder of profiles to look at, instead of packing")
    args = parser.parse_args()
    if args.show:
        return show(args.show)
    if not (args.out and args.gpu and args.to):
        parser.error("give folders with --gpu and --to, or --show")
    target = args.to / args.gpu
    target.mkdir(parents=True, exist_ok=True)
    for out in args.out:
        with open(out / "steps.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["status"] == "ok" and row["trace"]]
        for row in rows:
            name = row["trace"].removesuffix(".json.gz")
            (target / (name + ".habitat.json.zst")).write_bytes(packed(row, out / "traces" / row["trace"], args))
        print("%s: %d steps" % (out, len(rows)))


if __name__ == "__main__":
    main()
