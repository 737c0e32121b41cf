"""A handler for `torch.profiler` that writes what `habitat-tui` reads."""

from __future__ import annotations

import os
import tempfile
import warnings
from pathlib import Path
from typing import Any, Callable, Mapping

from ._commands import import_trace
from ._program import HabitatWarning
from ._results import PathLike


def on_trace_ready(output: PathLike, **workload: Any) -> Callable[[Any], None]:
    """A function for `torch.profiler.profile(on_trace_ready=…, record_shapes=True)`: writes the profile `output`
    (`.habitat.json.zst`) each time that a window of the schedule ends. An `output` that ends in `.json` or `.json.gz`,
    without `habitat`, is the trace itself.

    Keywords are those of `habitat-tui import`, such as `batch_size=32`, `precision="amp-bf16"`. A trace that cannot be
    read is kept beside `output`, and a warning names it, once: the training goes on, whatever fails.
    """
    path = Path(os.fspath(output))
    warned = False

    def handle(profiler: Any) -> None:
        nonlocal warned
        if not getattr(profiler, "record_shapes", True):
            warnings.warn("torch.profiler has record_shapes=False: predictions need shapes", HabitatWarning, stacklevel=2)
        try:
            problem = _write(profiler, path, workload)
        except Exception as error:
            problem = f"{path} was not written: {type(error).__name__}: {error}"
        if problem is not None and not warned:
            warned = True
            warnings.warn(problem, HabitatWarning, stacklevel=2)

    return handle


def _write(profiler: Any, path: Path, workload: Mapping[str, Any]) -> str | None:
    """Writes the profile or the trace. Returns why only the trace was kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if ".habitat." not in path.name:
        profiler.export_chrome_trace(str(path))
        return None
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".habitat-tui-") as folder:
        trace = Path(folder) / "trace.json.gz"
        profiler.export_chrome_trace(str(trace))
        try:
            import_trace(trace, path, force=True, **workload)
        except Exception as error:
            kept = path.with_name(path.name.split(".habitat.")[0] + ".trace.json.gz")
            os.replace(trace, kept)
            message = str(error).replace(str(trace), str(kept))
            return f"no profile was written, the trace is {kept}: {message}"
    return None
