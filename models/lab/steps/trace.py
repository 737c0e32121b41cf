"""Traces the steps of published training tables: python trace.py --data DIR --out DIR.

Each case (a network, batch, image side or length, mode, precision) becomes one op list, OUT/CASE.json.gz, by
the code of `habitat-tui trace-shapes`. Existing cases are kept, so an interrupted run continues; --kept copies
those of a finished file. At the end OUT/steps.jsonl.zst has a line for each case, its operators and the
measured times, which `habitat-lab` reads. Needs PyTorch, timm, torchvision, transformers, zstandard and
pyarrow, no GPU and no download.
"""

import argparse
import collections
import csv
import gzip
import json
import os
import signal
import sys
import zlib
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "profiler" / "shapes"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("PYTORCH_JIT", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Keys of a measured time; the clock in MHz only if it was locked.
MEASURED = "gpu clock_mhz precision layout step_ms memory_mib source software compiled quality".split()
# Longest trace, in seconds.
LONGEST = 180
# Largest relative difference of parameter counts at which a network is the published one.
SAME_PARAMETERS = 0.01


def trace(build, case):
    """The op list of the step that `build` makes."""
    import torch
    from habitat_shapes import as_on_gpu, drive, recorder
    from torch._subclasses.fake_tensor import FakeTensorMode

    step = recorder.Step()
    mode = recorder.Recorder(step)
    request = {"name": case, "args": {}, "target": {"place": "published", "function": case}}
    with FakeTensorMode(allow_non_fake_inputs=True), as_on_gpu.patched(step), as_on_gpu.Devices(), step.watched(), mode:
        return drive.one(torch, mode, build, request, None)


def child(case, out):
    """Traces one case and ends the process."""
    code = 1
    signal.alarm(LONGEST)
    try:
        traced = trace(case["build"], case["case"])
        published, found = case.get("parameters"), traced["info"]["params"]
        if published and abs(found / published - 1) > SAME_PARAMETERS:
            raise ValueError("%.2f million parameters, published are %.2f" % (found / 1e6, published / 1e6))
        write(out, case["case"], traced)
        code = 0
    except BaseException as error:
        print("%s: %s: %s" % (case["case"], type(error).__name__, str(error).split("\n")[0][:200]), file=sys.stderr)
    finally:
        os._exit(code)


def trace_all(cases, out, jobs):
    """Traces missing cases, `jobs` at a time, each in its own process."""
    waiting = {case["case"]: case for case in cases if not (out / (case["case"] + ".json.gz")).exists()}
    for case in [case for case in waiting.values() if "made" in case]:
        write(out, case["case"], case["made"])
        del waiting[case["case"]]
    # A random order, so that a part of the cases is a fair sample. Cases of an older library come last, because
    # it replaces the one that the others need.
    mixed = lambda item: (item[1].get("is_old", False), zlib.crc32(item[1]["network"].encode()))
    waiting = dict(sorted(waiting.items(), key=mixed))
    print("%d cases to trace" % len(waiting), file=sys.stderr)
    running = 0
    for case in waiting.values():
        if running >= jobs:
            os.wait()
            running -= 1
        # Load shared modules once.
        try:
            case.get("before", lambda: None)()
        except (ImportError, ValueError) as error:
            print("%s: %s" % (case["case"], error), file=sys.stderr)
            continue
        if os.fork() == 0:
            child(case, out)
        running += 1
    while running:
        os.wait()
        running -= 1


def write(out, case, traced):
    part = out / (case + ".part")
    with gzip.GzipFile(part, "wb", mtime=0) as file:
        file.write(json.dumps(traced, separators=(",", ":")).encode())
    os.replace(part, out / (case + ".json.gz"))


def unpack(path, out):
    """The op lists of a file from `pack`."""
    import zstandard

    text = zstandard.ZstdDecompressor(max_window_size=1 << 31).decompressobj().decompress(path.read_bytes())
    for line in map(json.loads, text.splitlines()):
        if not (out / (line["case"] + ".json.gz")).exists():
            write(out, line["case"], line["operators"])


def pack(cases, out):
    """Writes one file of all traced cases with their measured times; returns their op lists."""
    import zstandard

    by_case = collections.defaultdict(list)
    for case in cases:
        by_case[case["case"]].append(case)
    lines, traced = [], {}
    for name, measured in sorted(by_case.items()):
        path = out / (name + ".json.gz")
        if path.exists():
            line = {key: measured[0][key] for key in ("case", "network", "family", "mode")}
            line["measured"] = [{key: case[key] for key in MEASURED if key in case} for case in measured]
            line["operators"] = traced[name] = json.loads(gzip.open(path).read())
            lines.append(json.dumps(line, separators=(",", ":")))
    # A window over the whole text: networks have much in common.
    parameters = zstandard.ZstdCompressionParameters.from_level(19, window_log=27, enable_ldm=True)
    text = "".join(line + "\n" for line in lines).encode()
    (out / "steps.jsonl.zst").write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compress(text))
    return traced


def rows(path):
    with gzip.open(path, "rt") as file:
        return list(csv.DictReader(file))


def tables(args):
    """The cases of the tables in --data, and of --serving."""
    import operators
    import published
    import serving
    import timm_tables

    timm_tables.OLD = args.timm
    cases = []
    for path in sorted((args.data / "timm").glob("*.csv.gz"), reverse=True):
        cases += timm_tables.cases(path.name, rows(path))
    cases += published.cases(rows(args.data / "modern" / "steps.csv.gz"))
    with open(args.data / "lambda" / "training_throughput.csv", newline="") as file:
        cases += published.on_others(csv.DictReader(file))
    names = ("gemm", "conv", "attention")
    cases += operators.cases(*(rows(args.data / "modern" / (name + ".csv.gz")) for name in names))
    if args.serving:
        cases += serving.cases(args.serving)
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="folder with timm/, modern/ and lambda/")
    source.add_argument("--finetuning", action="store_true", help="the steps of torchtune's README alone")
    source.add_argument("--hosts", type=Path, help="a table of milabench's scaling runs: these steps alone")
    source.add_argument("--rows", type=Path, nargs="+", help="tables in milabench's columns: their steps alone")
    source.add_argument("--amd", type=Path, help="folder with ops.csv.gz and conv.csv.gz: operators on AMD GPUs alone")
    source.add_argument("--liger", type=Path, help="benchmark/data of liger-kernel 0.8.5: its parts of models alone")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--kept", type=Path, help="steps.jsonl.zst whose op lists to copy")
    parser.add_argument("--timm", type=Path, help="folder with timm 0.6.7, for its tables of training")
    parser.add_argument("--serving", type=Path, help="folder with aiconfigurator-core 0.12.0, for its operators")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="cases whose name has this text")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)

    import amd
    import finetuning
    import hosts
    import liger
    import milabench

    if args.finetuning:
        cases = finetuning.cases()
    elif args.hosts:
        cases = hosts.cases(rows(args.hosts))
    elif args.liger:
        cases = liger.cases(args.liger)
    elif args.amd:
        cases = amd.cases(*(rows(args.amd / (name + ".csv.gz")) for name in ("ops", "conv")))
    elif args.rows:
        cases = [case for path in args.rows for case in milabench.cases(rows(path))]
    else:
        cases = tables(args)
    cases = [case for case in cases if args.only in case["case"]]
    if args.kept:
        unpack(args.kept, args.out)
    trace_all(cases, args.out, args.jobs)
    traced = pack(cases, args.out)
    if args.finetuning:
        print("\n".join(finetuning.peaks(traced)))


if __name__ == "__main__":
    main()
