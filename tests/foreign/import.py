#!/usr/bin/env python3
"""Reads one PyTorch trace in several ways and prints the cost of each: medians of repeated runs.

    cargo build --release && cargo bench --bench traces --no-run
    cargo bench --bench traces -- write 1000 /tmp/large.json.gz
    python tests/foreign/import.py --habitat-tui target/release/habitat-tui --traces target/release/deps/traces-… /tmp/large.json.gz

`--python` is an interpreter with HolisticTraceAnalysis, which is skipped if missing.
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

JSON = """
import gzip, json, sys
open_as = gzip.open if sys.argv[1].endswith(".gz") else open
print(len(json.load(open_as(sys.argv[1], "rt"))["traceEvents"]))
"""
# Its work on a trace before any analysis.
ANALYSIS = """
import sys
from hta.common.trace import Trace
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
trace.parse_traces(use_multiprocessing=False)
print(len(trace.get_trace(0)))
"""


def once(command):
    """Seconds, CPU seconds, and peak MB of a run."""
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        child = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.monotonic() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            said.seek(0)
            sys.exit(f"{' '.join(command)}: {child.returncode}\n{said.read().decode(errors='replace')[-2000:]}")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=pathlib.Path)
    parser.add_argument("--habitat-tui", action="append", default=[], help="the program, or several to be compared")
    parser.add_argument("--traces", help="the bench `traces`")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--skip-python", action="store_true", help="only what is in Rust")
    options = parser.parse_args()
    trace = str(options.trace)
    with tempfile.TemporaryDirectory() as folder:
        new = f"{folder}/step.habitat.json"
        ways = [(program, [program, "import", trace, "-o", new, "--force"]) for program in options.habitat_tui]
        if options.traces:
            ways.append(("read and inflate alone", [options.traces, "read", trace]))
            ways.append(("… and a simd-json tape", [options.traces, "tape", trace]))
        if not options.skip_python:
            ways.append(("json of Python", [options.python, "-c", JSON, trace]))
            if subprocess.run([options.python, "-c", "import hta"], capture_output=True).returncode == 0:
                ways.append(("HolisticTraceAnalysis", [options.python, "-c", ANALYSIS, trace]))
        text = int(subprocess.run([options.traces, "read", trace], capture_output=True, text=True, check=True)
                   .stdout.split()[0]) if options.traces else options.trace.stat().st_size
        print(f"{trace}: {text / 1e6:.0f} MB of text, medians of {options.runs} runs")
        print(f"{'':<40} {'s':>8} {'processor s':>12} {'MB/s':>8} {'peak MB':>8}")
        # In turns, so that other load on the machine affects all of them.
        runs = [[once(way) for _, way in ways] for _ in range(options.runs)]
        for place, (name, _) in enumerate(ways):
            seconds, processor, memory = (statistics.median(run[place][it] for run in runs) for it in range(3))
            print(f"{name[-40:]:<40} {seconds:8.2f} {processor:12.2f} {text / 1e6 / seconds:8.0f} {memory:8.0f}")


if __name__ == "__main__":
    main()
