"""Step time and cost of training a network on every GPU, from one recorded or traced step.

A thin layer over the program `habitat-tui` that the same wheel installs: each function runs one of its commands and
returns the JSON that the command prints, as dictionaries (https://json-schema.org: `habitat-tui schema`).

    import habitat_tui

    found = habitat_tui.predict("trace.json.gz", gpus=["h100-sxm", "l4"])
    found["predictions"][0]["step_time_us"]["mid"]
    found.frame()   # pandas
    found           # in a notebook: the report
"""

from __future__ import annotations

from importlib import metadata

from ._commands import diff, import_trace, plan, predict, trace_shapes
from ._program import HabitatError, HabitatWarning, program
from ._results import Profile, Result
from .profiler import on_trace_ready

try:
    __version__ = metadata.version("habitat-tui")
except metadata.PackageNotFoundError:  # Used from a checkout.
    __version__ = "0"

__all__ = [
    "HabitatError",
    "HabitatWarning",
    "Profile",
    "Result",
    "diff",
    "import_trace",
    "on_trace_ready",
    "plan",
    "predict",
    "program",
    "trace_shapes",
]
