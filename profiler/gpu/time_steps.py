"""Times training steps of many networks (steps.py) on one GPU, and traces one step of each:

    python time_steps.py OUT [--list FILE] [--budget SECONDS] [--workers N]

A line of the list is `NETWORK PRECISION LAYOUT BATCH [VARIANT]`: `convnext_tiny bf16 nhwc 64`; the variant is
`compile`, `fused` (optimizers) or `checkpoint` (activations).

OUT, a new folder, gets `steps.csv`, a row per line (README.md has its columns), and `traces/CASE.json.gz`, a
Kineto trace of one step with shapes. Several workers share the list: while one has the GPU to itself, the
others build networks and write traces on other cores. Downloads nothing and changes no setting of the GPU.
`--tiny --device cpu` checks the file.
"""

import time

STARTED = time.monotonic()

import argparse
import csv
import fcntl
import gc
import os
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path

FIELDS = (
    "network precision layout batch variant status parameters step_ms p10_ms p90_ms issue_ms peak_mb steps "
    "gpu torch cudnn trace note"
).split()
WARM_UP = 5
# Seconds that a case may use the GPU; a compiler takes a minute or two.
LONGEST = 180
# Steps to time; fewer if they take long.
STEPS, MOST_SECONDS = 15, 1.0


def cases(path):
    for line in path.read_text().splitlines():
        words = line.split("#")[0].split()
        if words:
            yield dict(zip(FIELDS[:5], words + [""] * (5 - len(words))))


def named(case):
    return "-".join(filter(None, (case["network"], case["precision"], case["layout"], "b" + case["batch"], case["variant"])))


class Turn(argparse.Namespace):
    """Options of a step whose device is first read once the network is built: from then on this worker has the
    GPU to itself, until `end`."""

    def __init__(self, chosen, lock, device):
        super().__init__(**{key: value for key, value in vars(chosen).items() if key != "device"})
        self.lock, self.named, self.has_it = lock, device, False

    @property
    def device(self):
        if not self.has_it:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
            self.has_it = True
            signal.alarm(LONGEST)
        return self.named

    def end(self):
        fcntl.flock(self.lock, fcntl.LOCK_UN)


def measure(torch, step, device, row):
    """Times of a step by the GPU's own events, first issued to last done; milliseconds."""
    sync = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(WARM_UP):
        step()
    sync()
    began = time.perf_counter()
    step()
    sync()
    one = time.perf_counter() - began
    count = max(5, min(STEPS, int(MOST_SECONDS / one)))
    issued, marks = [], []

    def mark():
        if device == "cuda":
            marks.append(torch.cuda.Event(enable_timing=True))
            marks[-1].record()
        else:
            marks.append(time.perf_counter())

    mark()
    for _ in range(count):
        began = time.perf_counter()
        step()
        issued.append((time.perf_counter() - began) * 1e3)
        mark()
    sync()
    between = (lambda a, b: a.elapsed_time(b)) if device == "cuda" else (lambda a, b: (b - a) * 1e3)
    times = sorted(between(a, b) for a, b in zip(marks, marks[1:]))
    at = lambda share: round(times[round(share * (count - 1))], 4)
    row.update(step_ms=at(0.5), p10_ms=at(0.1), p90_ms=at(0.9), issue_ms=round(statistics.median(issued), 4), steps=count)
    if device == "cuda":
        row["peak_mb"] = round(torch.cuda.max_memory_allocated() / 1e6, 1)


def profiled(torch, step, device):
    """A profiler that has recorded a step and is not stopped yet: stopping takes seconds and no GPU."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    profiler = torch.profiler.profile(activities=activities, record_shapes=True)
    profiler.start()
    step()  # The first one pays for the start.
    for number in range(2):
        if device == "cuda":
            torch.cuda.synchronize()
        if number == 0:
            with torch.autograd.profiler.record_function("ProfilerStep#1"):
                step()
    return profiler


def write_trace(profiler, path):
    """Writes the trace without folders and host name; `gzip` packs it beside."""
    plain = path.with_suffix("")
    profiler.export_chrome_trace(str(plain))
    text = plain.read_text()
    text = re.sub(r'(?<=[" ])/(?:[^/\s"\\]+/)+', "", text).replace(os.uname().nodename, "host")
    plain.write_text(text)
    subprocess.Popen(["gzip", "-f", "-6", str(plain)])


def one(torch, steps, case, args, lock, row):
    """Fills in the row of a case; returns its trace."""
    words = ["--network", case["network"], "--precision", case["precision"], "--batch-size", case["batch"]]
    words += ["--channels-last"] * (case["layout"] == "nhwc") + ["--" + case["variant"]] * bool(case["variant"])
    turn, profiler = Turn(steps.options(words + ["--tiny"] * args.tiny), lock, args.device), None
    try:
        parts, step = steps.build(turn)
        if args.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        row["parameters"] = sum(p.numel() for o, _ in parts for group in o.param_groups for p in group["params"])
        measure(torch, step, args.device, row)
        row["status"] = "ok"
        profiler = profiled(torch, step, args.device)
    except Exception as error:  # Free its memory here, before another worker's turn.
        row.update(status=row.get("status", "error"), note=" ".join(f"{type(error).__name__}: {error}".split())[:160])
    finally:
        signal.alarm(0)
        parts = step = None
        gc.collect()
        if args.device == "cuda":
            torch.cuda.empty_cache()
        turn.end()
        if profiler:
            profiler.stop()
    return profiler


def late(*_):
    raise TimeoutError("took too long")


def worker(args):
    import torch

    import steps

    signal.signal(signal.SIGALRM, late)
    facts = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "gpu": "cpu"}
    if args.device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    with open(args.out / f"part{args.worker}.csv", "w", newline="") as file, open(args.out / "gpu.lock", "w") as lock:
        writer = csv.DictWriter(file, FIELDS)
        for number, case in enumerate(cases(args.list)):
            try:  # The first worker takes it.
                os.close(os.open(args.out / f"taken{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            row = {**case, **facts}
            if time.monotonic() - STARTED > args.budget - 4:
                writer.writerow({**row, "status": "no time"})
                continue
            if profiler := one(torch, steps, case, args, lock, row):
                row["trace"] = named(case) + ".json.gz"
                write_trace(profiler, args.out / "traces" / row["trace"])
            writer.writerow(row)
            file.flush()
            spent = time.monotonic() - STARTED
            print(f"{spent:6.1f} s  {named(case)}  {row.get('step_ms', '')} {row.get('note', '')}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--list", type=Path, default=Path(__file__).with_name("steps.txt"))
    parser.add_argument("--budget", type=float, default=1500, help="seconds in all")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    if args.worker is not None:
        return worker(args)
    (args.out / "traces").mkdir(parents=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "3"}
    again = [sys.executable, *sys.argv, "--worker"]
    for process in [subprocess.Popen([*again, str(number)], env=environment) for number in range(args.workers)]:
        process.wait()
    rows = [row for part in sorted(args.out.glob("part*.csv")) for row in csv.reader(part.open())]
    order = {tuple(case.values()): number for number, case in enumerate(cases(args.list))}
    with open(args.out / "steps.csv", "w", newline="") as file:
        csv.writer(file).writerows([FIELDS, *sorted(rows, key=lambda row: order[tuple(row[:5])])])
    for path in [*args.out.glob("part*.csv"), *args.out.glob("taken*"), args.out / "gpu.lock"]:
        path.unlink()


if __name__ == "__main__":
    main()
