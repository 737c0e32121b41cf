"""Published steps on one GPU and on several of the same machine, as pairs; with --machines, published steps
with full sharding on a few machines and on more of them.

    python3 scaling.py DATA > ../samples/published/scaling.csv
    python3 scaling.py DATA --machines > ../samples/published/machines.csv
    python3 scaling.py --fit ../samples/published/scaling.csv

DATA has modern/steps.csv.gz and lambda/training_throughput.csv. A pair has the same source, network, precision
and batch on each GPU; several measurements of one give their median. Left out: networks with unknown parameters
or units of throughput, and BERT of Lambda's table on 8 GPUs, whose throughput is known to be too high. Lambda's
logs of Transformer-XL are listed but not used in the fit: on eight RTX 3070 they show 1.3 GB of gradients in
less than a millisecond.

--fit (numpy and scipy) prints the constants of src/prediction/fabric.rs fitted to such pairs, and the errors
with them and with each network left out of the fit. The loss is the mean of |log error|, in which a network of
a source has the weight of the root of its number of pairs; each constant is held to its order of magnitude
(0.02 for each e-fold away from PRIOR).
"""

import collections
import csv
import gzip
import pathlib
import re
import statistics
import sys

# Parameters that the rows lack: from the networks' papers and model cards.
PARAMETERS = {
    "bert-base": 110e6, "biobert-base": 110e6, "electra-base": 110e6, "efficientdet-d0": 3.9e6, "efficientnet-b0": 5.3e6,
    "efficientnet-widese-b0": 7e6, "maskrcnn-r50-fpn": 44e6, "moflow": 3e6, "nnunet-2d": 20e6, "resnet50-v1.5": 25.6e6,
    "resnext101-32x4d": 44e6, "se3-transformer-qm9": 1.6e6, "ssd-resnet50-fpn-640": 23e6, "tft-electricity": 3e6,
    "tft-traffic": 3e6, "transformer-big-wmt": 210e6, "transformer-xl-base": 192e6, "unet-medical": 31e6, "vnet": 5e6,
}
# Lambda's names of GPUs.
GPUS = {
    "V100 16GB": "v100-sxm2-16gb", "A100 40GB PCIe": "a100-pcie-40gb", "A100 80GB PCIe": "a100-pcie-80gb",
    "A100 80GB SXM4": "a100-sxm4-80gb", "RTX 6000 Ada": "rtx-6000-ada", "RTX A6000": "rtx-a6000", "RTX 3090": "rtx-3090",
    "RTX 4090": "rtx-4090", "H100 80GB SXM5": "h100-sxm5-80gb", "B200 192GB SXM5": "b200",
}
NETWORKS = {"resnet50": "resnet50-v1.5", "bert_base_squad": "bert-base"}


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def modern(path):
    """Step times in milliseconds, by all other columns, then by number of GPUs."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in csv.DictReader(gzip.open(path, "rt")):
        gpus, batch, parameters = number(row["gpus"]), number(row["batch_per_gpu"]), PARAMETERS.get(row["model"])
        usable = row["quality"] in ("A", "B") and row["nodes"] in ("", "1") and row["mode"] in ("train", "training", "")
        if not (usable and gpus and batch and parameters):
            continue
        step, throughput = number(row["step_ms"]), number(row["throughput"])
        if step is None:
            if throughput is None or not re.match("(images|img|samples|seq|sentences)", row["unit"]):
                continue
            step = batch * gpus / throughput * 1e3
        same = [row[key] for key in ("seq_len_or_image", "optimizer", "compiled_or_fused", "grad_accum", "framework")]
        key = (row["source"], row["model"], row["gpu"], row["precision"], batch, *same)
        found[key][int(gpus)].append(step)
    return found


def table(path):
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in csv.DictReader(open(path)):
        gpus = int(row["gpu_count"])
        gpu, network = GPUS.get(re.sub(r"^\d+x ", "", row["hardware"])), NETWORKS.get(row["model"])
        if not gpu or not network or (network == "bert-base" and gpus == 8):
            continue
        batch = float(row["global_batch"]) / gpus
        found[("lambda-table", network, gpu, row["precision"], batch)][gpus].append(
            float(row["global_batch"]) / float(row["throughput"]) * 1e3
        )
    return found


def machines(path):
    """Pairs from the fewest machines with the same batch on each GPU to more of them."""
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write("source,network,gpu,precision,batch,gpus_of_a_machine,parameters,machines,step_ms,more_machines,more_ms".split(","))
    found = collections.defaultdict(dict)
    for row in csv.DictReader(gzip.open(path, "rt")):
        gpus, nodes, step, batch = (number(row[key]) for key in ("gpus", "nodes", "step_ms", "batch_per_gpu"))
        short = re.fullmatch(r"([0-9.]+)B", row["params"])
        parameters = float(short[1]) * 1e9 if short else number(row["params"])
        if not (row["quality"] in ("A", "B") and gpus and nodes and step and batch and parameters):
            continue
        if "FSDP" not in row["notes"] and "FULL_SHARD" not in row["notes"]:
            continue
        # Accumulated batches transfer their gradients once each.
        accumulated = number(row["grad_accum"]) or 1
        same = [row[key] for key in ("seq_len_or_image", "optimizer", "compiled_or_fused", "framework")]
        notes = re.sub("MFU.*", "", row["notes"])
        key = (row["source"], row["model"], row["gpu"], row["precision"], batch, int(gpus // nodes), int(parameters), notes, *same)
        found[key][int(nodes)] = step / accumulated
    for key, by_machines in sorted(found.items()):
        fewest, *more = sorted(by_machines)
        for count in more:
            times = (by_machines[fewest], by_machines[count])
            write([*key[:4], f"{key[4]:g}", *key[5:7], fewest, f"{times[0]:.5g}", count, f"{times[1]:.5g}"])


def main(data):
    write = csv.writer(sys.stdout, lineterminator="\n").writerow
    write("source,network,gpu,precision,batch,gpus,parameters,one_gpu_ms,step_ms,fitted".split(","))
    pairs = {**modern(data + "/modern/steps.csv.gz"), **table(data + "/lambda/training_throughput.csv")}
    for key, by_gpus in sorted(pairs.items()):
        source, network, gpu, precision, batch = key[:5]
        for gpus in sorted(set(by_gpus) - {1}) if 1 in by_gpus else []:
            one, several = statistics.median(by_gpus[1]), statistics.median(by_gpus[gpus])
            fitted = int((source, network) != ("lambda-logs", "transformer-xl-base"))
            parameters = int(PARAMETERS[network])
            write([source, network, gpu, precision, f"{batch:g}", gpus, parameters, f"{one:.5g}", f"{several:.5g}", fitted])


# By link: bandwidth of the all-reduce (GB/s; over NVLink, as a share of the collectives'), deviation of a step,
# milliseconds of each doubling on the host. Then the share of the backward pass that hides traffic.
LINKS = ["host memory", "PCI Express", "modules", "switched"]
PRIOR = [3, 10, 0.5, 0.5, 0.02, 0.02, 0.02, 0.02, 1, 1, 1, 1, 0.5]
# GB/s and microseconds of a collective over NVLink (`Fabric` in src/prediction/fabric.rs); a share of it among
# 2 to 4 GPUs.
COLLECTIVES = {"v100": (130, 55), "a100": (240, 90), "h100": (470, 65), "h200": (470, 65), "b200": (700, 70)}
FEW = {2: 0.7, 3: 0.87, 4: 0.87}
BUCKET = 25e6


def shipped():
    """The constants of src/prediction/fabric.rs and scale/exchange.rs, in the same order."""
    sources = pathlib.Path(__file__).parents[3] / "src/prediction"
    fabric, exchange = ((sources / name).read_text() for name in ("fabric.rs", "scale/exchange.rs"))
    links = re.findall(r"of\((?:gigabytes|Reduced::Share)\(([0-9.]+)\), ([0-9.]+), ([0-9.]+)\)", fabric)
    assert len(links) == len(LINKS)
    rates, deviations, hosts = (list(map(float, column)) for column in zip(*links))
    hiding = float(re.search(r"const HIDING: f64 = ([0-9.]+);", exchange)[1])
    return [*rates, *deviations, *(host / 1e3 for host in hosts), hiding]


def link(gpu):
    """`Link::new` of src/prediction/fabric.rs, for the GPUs in this table."""
    if gpu.startswith(("gtx", "titan")) or re.match(r"rtx-[2-5]0", gpu):
        return 0
    return 3 if gpu.startswith(("h100-sxm", "h200", "b200")) else 2 if "sxm" in gpu else 1


def fit(path):
    import numpy
    import scipy.optimize

    rows = [row for row in csv.DictReader(open(path)) if row["fitted"] == "1"]
    column = lambda name: numpy.array([float(row[name]) for row in rows])
    n, one, several, gradients = column("gpus"), column("one_gpu_ms"), column("step_ms"), 4 * column("parameters")
    of, networks = numpy.array([link(row["gpu"]) for row in rows]), numpy.array([row["network"] for row in rows])
    groups = collections.Counter((row["source"], row["network"]) for row in rows)
    weights = numpy.array([groups[row["source"], row["network"]] ** -0.5 for row in rows])

    bucket = numpy.minimum(gradients, BUCKET)
    # NVLink only.
    rate, start = numpy.array([COLLECTIVES.get(row["gpu"].split("-")[0], (1, 0)) for row in rows]).T
    rate = numpy.where(of >= 2, rate * [FEW.get(gpus, 1) for gpus in n], 1)
    start = numpy.where(of >= 2, start, 0)

    def errors(constants):
        """Logarithms of predicted over measured steps."""
        by_link, hiding = constants[:12].reshape(3, 4), constants[12]
        last = start * 1e-3 + bucket * 2 * (n - 1) / n / (by_link[0][of] * rate) * 1e-6
        exposed = numpy.maximum(last * gradients / bucket - hiding * 2 / 3 * one, last)
        slowest = by_link[1][of] * numpy.sqrt(2 * numpy.log(n)) * one
        return numpy.log((one + slowest + exposed + by_link[2][of] * numpy.log2(n)) / several)

    def fitted(kept):
        def loss(logs):
            wrong = numpy.abs(errors(numpy.exp(logs) * PRIOR))
            return numpy.average(wrong[kept], weights=weights[kept]) + 0.02 * numpy.mean(logs**2)

        found = scipy.optimize.minimize(loss, numpy.zeros(len(PRIOR)), method="Powell", options={"xtol": 1e-3})
        return numpy.exp(found.x) * PRIOR

    def line(name, errors):
        throughput = numpy.abs(numpy.exp(-errors) - 1)
        mean, median, p90 = throughput.mean(), numpy.median(throughput), numpy.quantile(throughput, 0.9)
        print(f"{name:32} mean {mean:.1%}  median {median:.1%}  p90 {p90:.1%}")

    every = numpy.full(len(rows), True)
    found = fitted(every)
    for values, name in [(found, "fitted"), (numpy.array(shipped()), "shipped")]:
        by_link = zip(LINKS, values, values[4:], values[8:])
        print(f"{name}:", ", ".join(f"{l} {b:.2g} σ {d:.2g} host {h:.2g} ms" for l, b, d, h in by_link))
        print(f"    hiding {values[12]:.2g}")
        line(name, errors(values))
    left_out = numpy.zeros(len(rows))
    for network in sorted(set(networks)):
        own = networks == network
        left_out[own] = errors(fitted(~own))[own]
    line("each network left out", left_out)


if __name__ == "__main__":
    if sys.argv[1] == "--fit":
        fit(sys.argv[2])
    elif "--machines" in sys.argv:
        machines(sys.argv[1] + "/modern/steps.csv.gz")
    else:
        main(sys.argv[1])
