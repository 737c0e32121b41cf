"""SkyPilot's optimizer on offers of AWS, with given step times.

Reads JSON, {"offers": [[machine, gpu, vcpus, memory, price, region]], "hours": {gpu: hours}}, and prints the
cheapest and the fastest machine that it finds. Fetches nothing.
"""

import csv
import json
import pathlib
import sys

asked = json.load(sys.stdin)
folder = pathlib.Path.home() / ".sky/catalogs/v8"
for name in ["aws", "common"]:
    (folder / name).mkdir(parents=True)
for name in ["images", "instance_quota_mapping"]:
    (folder / f"aws/{name}.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n")
names = "".join(f"{gpu},AWS\n" for gpu in asked["hours"])
(folder / "common/accelerators.csv").write_text("AcceleratorName,Clouds\n" + names)
with open(folder / "aws/vms.csv", "w", newline="") as file:
    write = csv.writer(file).writerow
    write("InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price SpotPrice Region AvailabilityZone".split())
    for machine, gpu, vcpus, memory, price, region in asked["offers"]:
        write([machine, gpu, 1, vcpus, memory, gpu, price, "", region, f"{region}-a"])

import sky  # noqa: E402
from sky import check, clouds, optimizer  # noqa: E402
from sky.utils import common  # noqa: E402

# Without credentials no cloud is enabled.
check.get_cached_enabled_clouds_or_refresh = lambda *_, **__: [clouds.AWS()]
found = []
for aim in [common.OptimizeTarget.COST, common.OptimizeTarget.TIME]:
    with sky.Dag() as dag:
        task = sky.Task("training", run="true")
        task.set_resources({sky.Resources(infra="aws", accelerators=f"{gpu}:1") for gpu in asked["hours"]})
        task.set_time_estimator(lambda it: int(3600 * asked["hours"][next(iter(it.accelerators))]))
    optimizer.Optimizer.optimize(dag, minimize=aim, quiet=True)
    found.append(task.best_resources.instance_type)
print("\nfound " + json.dumps(found))
