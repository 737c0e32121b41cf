"""Reads exported plans with the tools' own parsers.

Reads lines of JSON, [tool, text, offer], and answers each with a line of JSON: the tool's reading of every
part, or {"error": ...}. Fetches nothing: writes SkyPilot's catalogs into the user's home from the offers, with
the GPU names of the texts; SkyPilot itself knows which machines of GCP have which GPUs.
"""

import csv
import json
import pathlib
import re
import sys

import yaml

lines = [json.loads(line) for line in sys.stdin]

COLUMNS = "InstanceType AcceleratorName AcceleratorCount vCPUs MemoryGiB GpuInfo Price SpotPrice Region AvailabilityZone"
TABLES = {"aws": ["images", "instance_quota_mapping"], "gcp": ["images", "accelerator_quota_mapping"], "azure": ["images"]}


def catalogs():
    """Rows of every offer that has a SkyPilot task, by cloud."""
    rows = {cloud: {} for cloud in TABLES}
    for tool, text, offer in lines:
        if tool != "skypilot" or not offer:
            continue
        cloud = re.search(r'infra: "(\w+)', text)[1]
        name, count = re.search(r'accelerators: "(.+):(\d+)"', text).groups()
        region = offer["region"]
        # Some price lists describe the machine in words, and the text has its type.
        typed = re.search(r'instance_type: "(.+)"', text)
        host = [typed[1] if typed else offer["instance_type"], offer["vcpus"] or 8, offer["memory"] or 64]
        row = rows.setdefault(cloud, {}).setdefault((*host, name, region), [None, None])
        row[offer["spot"]] = offer["price"]
        row.append(count)
    folder = pathlib.Path.home() / ".sky/catalogs/v8"
    for cloud, entries in rows.items():
        (folder / cloud).mkdir(parents=True)
        for table in TABLES.get(cloud, []):
            (folder / cloud / f"{table}.csv").write_text("Tag,Region,OS,OSVersion,ImageId,CreationDate\n")
        with open(folder / cloud / "vms.csv", "w", newline="") as file:
            write = csv.writer(file).writerow
            write(COLUMNS.split() + (["Generation"] if cloud == "azure" else []))
            for (machine, vcpus, memory, name, region), (price, spot, count, *_) in entries.items():
                zone = "" if cloud == "azure" else f"{region}-a"
                rest = [price, spot, region, zone] + (["V1"] if cloud == "azure" else [])
                if cloud == "gcp":
                    # Hosts and GPUs have separate rows.
                    write([machine, "", "", vcpus, memory, "", *rest])
                    write(["", name, count, "", "", "", *rest])
                else:
                    write([machine, name, count, vcpus, memory, name, *rest])


catalogs()

import sky  # noqa: E402
import kubernetes_validate  # noqa: E402
from dstack._internal.core.models.configurations import parse_run_configuration  # noqa: E402
from gpuhunt import KNOWN_ACCELERATORS  # noqa: E402


def skypilot(text):
    documents = list(yaml.safe_load_all(text))
    if len(documents) > 1:
        # The head of a pipeline.
        assert set(documents.pop(0)) == {"name"}
    for document in documents:
        # As --secret and --env set them.
        document["envs"] = {name: value or "1" for name, value in document.get("envs", {}).items()}
        document["secrets"] = {name: "given" for name in document.get("secrets", {})}
        task = sky.Task.from_yaml_config(document)
        (resources,) = task.resources
        (accelerator,) = resources.accelerators.items()
        kept = resources.autostop_config
        yield {
            "name": task.name,
            "nodes": task.num_nodes,
            "provider": str(resources.cloud).lower(),
            "region": resources.region,
            "machine": resources.instance_type,
            "gpu": list(accelerator),
            "spot": resources.use_spot,
            "price": resources.max_hourly_cost,
            "recovery": resources.job_recovery,
            "ends": bool(kept and kept.enabled and kept.down),
            "disk": resources.disk_size,
            "image": resources.extract_docker_image(),
            "workdir": task.workdir,
            "env": dict(task.envs),
            "mounts": {**(task.file_mounts or {}), **{path: str(of.source) for path, of in task.storage_mounts.items()}},
            "setup": task.setup,
            "run": task.run,
        }


def dstack(text):
    task = parse_run_configuration(yaml.safe_load(text))
    gpu = task.resources.gpu
    memory = gpu.memory
    known = [known.memory for known in KNOWN_ACCELERATORS if [known.name] == gpu.name]
    yield {
        "name": task.name,
        "nodes": task.nodes,
        "provider": [backend.value for backend in task.backends],
        "region": task.regions,
        "machine": task.instance_types,
        "gpu": [gpu.name, memory.min, gpu.count.min, gpu.count.max],
        # Memory sizes of the GPUs with this name in dstack, and of those that pass the filter.
        "known": known,
        "taken": [size for size in known if memory.min <= size <= (memory.max or size)],
        "spot": task.spot_policy.value,
        "price": task.max_price,
        "seconds": task.max_duration,
        "disk": task.resources.disk.size.min,
        "image": task.image,
        "workdir": [[one.local_path, one.path] for one in task.files],
        "env": {name: value if isinstance(value, str) else None for name, value in task.env.items()},
        "mounts": [[one.name, one.path] for one in task.volumes],
        "run": "\n".join(task.commands),
    }


def kubernetes(text):
    """A Job, or each job of a JobSet, checked by the schema of Kubernetes."""
    document = yaml.safe_load(text)
    jobs = [document["spec"]]
    if document["kind"] == "JobSet":
        assert document["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
        assert set(document["spec"]) <= {"suspend", "failurePolicy", "replicatedJobs", "network"}
        assert document["spec"]["failurePolicy"]["rules"] == [
            {"action": "FailJobSet", "onJobFailureReasons": ["DeadlineExceeded"]}
        ]
        assert all(set(one) == {"name", "replicas", "template"} for one in document["spec"]["replicatedJobs"])
        jobs = [one["template"]["spec"] for one in document["spec"]["replicatedJobs"]]
    for spec in jobs:
        job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": document["metadata"], "spec": spec}
        kubernetes_validate.validate(job, kubernetes_validate.latest_version(), strict=True)
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        limits = container["resources"]["limits"]
        (count,) = limits.values()
        yield {
            "name": document["metadata"]["name"],
            "nodes": spec.get("parallelism", 1),
            "queue": document["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name"),
            "product": pod.get("nodeSelector", {}).get("nvidia.com/gpu.product"),
            "gpu": [*limits, count],
            "seconds": spec["activeDeadlineSeconds"],
            "image": container["image"],
            "env": {one["name"]: one.get("value") for one in container.get("env", [])},
            "mounts": [one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"] if "persistentVolumeClaim" in one],
            "run": container["command"][2],
        }


for tool, text, _ in lines:
    try:
        answer = list({"skypilot": skypilot, "dstack": dstack, "kubernetes": kubernetes}[tool](text))
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
