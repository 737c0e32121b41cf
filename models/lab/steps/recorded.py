"""Packs what profiler/gpu/time_steps.py measured into profiles: python recorded.py OUT... --gpu SLUG --to DIR.

Each case that was timed becomes DIR/SLUG/CASE.habitat.json.zst: the operators and kernels of the
traced step as `habitat-tui import` reads them, without a timeline, and the times of the steps
that no profiler slowed down. `habitat-lab train --recorded DIR` learns from them, and
`habitat-lab evaluate steps DIR` judges by them. Needs zstandard.
"""

import argparse
import csv
import json
import subprocess
import tempfile
from pathlib import Path

import zstandard

PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "bf16": "amp-bf16", "fp16": "amp-fp16"}


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path, nargs="+", help="folders that time_steps.py wrote, of one GPU")
    parser.add_argument("--gpu", required=True, help="its slug in the catalog")
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--program", default="target/release/habitat-tui")
    args = parser.parse_args()
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
