#!/usr/bin/env python3
"""Plans files of many jobs with every field and prints the cost of each plan.

    cargo build --release && python3 tests/foreign/jobs.py target/release/habitat-tui

Each file has jobs of five samples with arrivals, orders, priorities, deadlines and hourly prices, at random
from a fixed seed. They rent at once, or wait for one another within a budget, dollars per hour and a quota, or
run on own machines, some of them shared, or rent beside these. There is one machine for five jobs. Seconds are
CPU time, MB the peak of resident memory.
"""
import os
import pathlib
import random
import subprocess
import sys
import tempfile

SAMPLES = pathlib.Path(__file__).resolve().parents[2] / "profiler/samples"
STEPS = ["resnet50-b64", "gnmt-b32", "gnmt-b16", "dcgan-b64", "densenet121-b64"]
MODES = ["rent at once", "rent, waiting", "own machines", "own and rented"]


def machines(count):
    return f"""[[machine]]
gpu = "rtx-4090"
count = {count}
usd_per_hour = 0.1
[[machine]]
gpu = "rtx-3090"
gpus = 2
count = {count}
share = true
usd_per_hour = 0.1"""


def file(mode, count):
    chance = random.Random(1)
    text = {
        "rent at once": f"budget = {count * 6}",
        "rent, waiting": f'wait = true\nbudget = {count * 6}\nmax_usd_per_hour = {max(2, count / 8)}\n'
        f'[[quota]]\nprovider = "hyperstack"\ngpus = {max(1, count // 4)}',
        "own machines": machines(max(1, count // 10)),
        "own and rented": 'rent = true\ndeadline = "5d"\n' + machines(max(1, count // 10)),
    }[mode]
    lines = [text]
    for job in range(count):
        step, steps = chance.choice(STEPS), chance.randint(20_000, 800_000)
        lines += ["[[job]]", f'name = "j{job}"', f'profile = "{SAMPLES}/{step}.habitat.json.zst"', f"steps = {steps}"]
        if mode != "rent at once":
            if chance.random() < 0.3:
                lines.append(f"priority = {chance.randint(2, 9)}")
            if chance.random() < 0.3:
                lines.append(f'arrives = "{chance.randint(1, 20)}h"')
            if job and chance.random() < 0.25:
                lines.append(f'after = ["j{chance.randrange(max(0, job - 10), job)}"]')
            if chance.random() < 0.1:
                lines.append("hour_value = 0.05")
        if chance.random() < 0.2:
            lines.append(f'deadline = "{chance.choice([100, 120, 200, 300])}h"')
    return "\n".join(lines)


def main():
    print("| jobs | " + " | ".join(MODES) + " |\n| ---: |" + " ---: |" * len(MODES))
    for count in [30, 300, 1000]:
        cells = []
        for mode in MODES:
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder) / "jobs.toml"
                path.write_text(file(mode, count))
                output = open(pathlib.Path(folder) / "plan.json", "w")
                plan = subprocess.Popen([sys.argv[1], "plan-jobs", path, "--json"], stdout=output)
                _, status, used = os.wait4(plan.pid, 0)
            if status:
                sys.exit(f"{mode}, {count} jobs: exit status {os.waitstatus_to_exitcode(status)}")
            cells.append(f"{used.ru_utime + used.ru_stime:.1f} s, {used.ru_maxrss / 1024:.0f} MB")
        print(f"| {count:,} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
