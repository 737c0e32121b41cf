"""Reads exported plans with the tools' own parsers.

Takes lines of JSON, [tool, text], and answers each with a line of JSON: what the tool
understood of every part, or {"error": ...}. Fetches nothing: the parsers need no catalog.
"""

import json
import sys

import sky
import yaml
from dstack._internal.core.models.configurations import parse_run_configuration
from gpuhunt import KNOWN_ACCELERATORS


def skypilot(text):
    documents = list(yaml.safe_load_all(text))
    if len(documents) > 1:
        # The head of a pipeline.
        assert set(documents.pop(0)) == {"name"}
    for document in documents:
        task = sky.Task.from_yaml_config(document)
        (resources,) = task.resources
        (accelerator,) = resources.accelerators.items()
        yield {
            "name": task.name,
            "nodes": task.num_nodes,
            "provider": str(resources.cloud).lower(),
            "region": resources.region,
            "gpu": list(accelerator),
            "spot": resources.use_spot,
            "price": resources.max_hourly_cost,
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
        "gpu": [gpu.name, memory.min, gpu.count.min, gpu.count.max],
        # The memory of the GPUs that dstack knows by this name, and of those that it would take.
        "known": known,
        "taken": [size for size in known if memory.min <= size <= (memory.max or size)],
        "spot": task.spot_policy.value,
        "price": task.max_price,
        "seconds": task.max_duration,
        "run": task.commands,
    }


for line in sys.stdin:
    tool, text = json.loads(line)
    try:
        answer = list({"skypilot": skypilot, "dstack": dstack}[tool](text))
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)
