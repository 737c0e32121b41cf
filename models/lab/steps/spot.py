"""How often spot machines are lost, and the wait for another, from traces of them.

    python3 spot.py TRACES

TRACES has the columns trace, start_s, length_s and nodes: the runs of `skypilot-org/spot-traces` (221da1a,
"Can't Be Late", NSDI 2024), which are not in this repository. Prints the rows of
`src/planning/pricing/spot.rs`, one for each trace of a single machine, requested ones before those kept
running: hours watched, hours available, and losses; then the exponent with which losses grow with the GPUs of a
machine: the geometric mean over traces of 1 and 8 GPUs of one kind in one zone on the same days.
"""

import collections
import csv
import math
import statistics
import sys


def read(path):
    """Hours watched, hours with all requested machines available, and how often that ended."""
    traces = collections.defaultdict(lambda: [0.0, 0.0, 0])
    was_there = {}
    for row in csv.DictReader(open(path)):
        name = row["trace"]
        kind, nodes, collection, zone, gpu, gpus = name.split("_")
        wanted, hours = int(nodes.removesuffix("node")), int(row["length_s"]) / 3600
        is_there = int(row["nodes"]) >= wanted
        counts = traces[kind, wanted, collection, zone, gpu, int(gpus)]
        counts[0] += hours
        counts[1] += hours * is_there
        counts[2] += was_there.get(name, False) and not is_there
        was_there[name] = is_there
    return traces


def rows(traces):
    for (kind, wanted, collection, zone, gpu, gpus), (hours, there, losses) in sorted(traces.items()):
        provider, month, day, year = collection.split("-")
        if wanted != 1:
            continue
        fields = f'"{provider}", "{zone}", ("{gpu.upper()}", {gpus}), "{year}-{month}-{day}"'
        print(f"    Watched::new({fields}, [{hours:.1f}, {there:.1f}], {losses}),")


def sizes(traces):
    lost, waits = [], []
    print("zone        GPU   losses an hour, 1 and 8 GPUs   times   mean wait, h   times")
    for (kind, wanted, collection, zone, gpu, gpus), (hours, there, losses) in sorted(traces.items()):
        one = traces.get((kind, wanted, collection, zone, gpu, 1))
        if gpus != 8 or one is None:
            continue
        rates = [one[2] / one[1], losses / there]
        wait = [(one[0] - one[1]) / one[2], (hours - there) / losses]
        lost.append(rates[1] / rates[0])
        waits.append(wait[1] / wait[0])
        print(f"{zone:11} {gpu:4}  {rates[0]:.3f}  {rates[1]:.3f} {lost[-1]:24.2f} {wait[0]:8.2f} {wait[1]:6.2f} {waits[-1]:7.2f}")
    for name, ratios in (("losses", lost), ("waits", waits)):
        mean = statistics.geometric_mean(ratios)
        print(f"{name}: {mean:.2f} times with 8 GPUs, as GPUs^{math.log(mean) / math.log(8):.2f}")


def main(path):
    traces = read(path)
    rows(traces)
    sizes(traces)


if __name__ == "__main__":
    main(sys.argv[1])
