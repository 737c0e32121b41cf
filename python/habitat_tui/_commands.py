"""The commands, a function each."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Callable, Sequence, Union

from . import _step
from ._program import flags, run, said
from ._results import PathLike, Profile, Result

Source = Union[PathLike, Profile, Callable[..., Any], None]
GPUS = Union[str, Sequence[str], None]

# PLACE:FUNCTION of `trace-shapes`; one letter before a colon is a drive of Windows.
_FUNCTION = re.compile(r"(.+\.py|\w[\w.]+):[A-Za-z_]\w*(\.\w+)*")


def _sentences(value: dict[str, Any]) -> dict[str, Any]:
    """An object of JSON whose sentence names arguments."""
    return {**value, "text": said(value["text"])} if isinstance(value.get("text"), str) else value


def _report(command: list[str], files: list[str], codes: Sequence[int]) -> Result:
    """The JSON of a command with its files, and its report."""
    with tempfile.TemporaryDirectory(prefix="habitat-tui-") as folder:
        report = Path(folder) / "report.html"
        words = [*command, "--json", "--html", str(report), "--", *files]
        answer = json.loads(run(words, codes), object_hook=_sentences)
        return Result(answer, report.read_text(encoding="utf-8") if report.exists() else None)


def _of_step(
    command: str, source: Source, codes: Sequence[int], options: dict[str, Any], batch_size: int | None, **model: Any
) -> Result:
    """The result of a command for a step. A function or a model is traced first, with the batch size."""
    is_text = isinstance(source, str) and not os.path.exists(source)
    if callable(source) or (is_text and _FUNCTION.fullmatch(str(source))):
        source = trace_shapes(source, batch_size=batch_size, **model)
    elif batch_size is not None:
        options["batch_size"] = batch_size
    files = [] if source is None else [os.fspath(source)]
    return _report([command, *flags(options)], files, codes)


def predict(
    source: Source = None,
    gpus: GPUS = None,
    *,
    inputs: Any = None,
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Result:
    """Step times on GPUs (all of the catalog, unless `gpus` names some), as `habitat-tui predict --json` prints them.

    `source` is a profile or a trace; a function in a file (`"train.py:build"`) or a function itself, which returns a
    step or (model, inputs, optimizer, loss); a `torch.nn.Module`, with `inputs`, `optimizer` and `loss`; or None, a
    sample. Functions and models are traced by shapes, without a GPU. Other flags of the command are keywords:
    `precision="bf16"`, `operations=True`.

    Raises `HabitatError`; warns with `HabitatWarning`.
    """
    options = {"to": gpus, **options}
    return _of_step("predict", source, (0,), options, batch_size, inputs=inputs, optimizer=optimizer, loss=loss)


def plan(
    source: Source = None,
    *,
    inputs: Any = None,
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Result:
    """The best offers for the work, as `habitat-tui plan --json` prints them: `plan("step.habitat.json.zst",
    epochs=3, dataset="10M", deadline="48h", budget=300, own="2x3090")`. `source` is that of `predict`.

    If no plan is possible, the result has the reasons instead of parts. Raises `HabitatError`; warns with
    `HabitatWarning`.
    """
    return _of_step("plan", source, (0, 1), options, batch_size, inputs=inputs, optimizer=optimizer, loss=loss)


def diff(first: PathLike, second: PathLike, **options: Any) -> Result:
    """Two recordings of a step compared, as `habitat-tui diff --json` prints them."""
    return _report(["diff", *flags(options)], [os.fspath(first), os.fspath(second)], (0, 3))


def import_trace(trace: PathLike, output: PathLike, **options: Any) -> Profile:
    """Converts a trace of `torch.profiler`, Nsight Systems or JAX to a profile, the file `output`."""
    words = ["import", "-o", os.fspath(output), "--json", *flags(options), "--", os.fspath(trace)]
    return Profile(output, json.loads(run(words)))


def trace_shapes(
    source: Source,
    *,
    inputs: Any = None,
    optimizer: Any = None,
    loss: Callable[..., Any] | None = None,
    batch_size: int | None = None,
    **options: Any,
) -> Profile:
    """Traces the shapes of a training step, without a GPU. `source` and the others are those of `predict`; without
    an optimizer the step of a model is inference. `arg={"depth": 3}` gives the function arguments."""
    folder = tempfile.mkdtemp(prefix="habitat-tui-")
    try:
        if isinstance(source, str):
            target = source
            options["batch_sizes"] = batch_size
        else:
            target = _step.target(source, inputs, optimizer, loss, batch_size, Path(folder))
            options.setdefault("name", _step.name(source))
            if not _step.is_model(source):
                options["batch_sizes"] = batch_size
        options.setdefault("python", sys.executable)
        path = os.path.join(folder, "step.habitat.json.zst")
        words = ["trace-shapes", "-o", path, "--json", *flags(options), "--", target]
        facts = json.loads(run(words, **{_step.TRACING: "1"}))["steps"][0]
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # With a batch size, the program adds it to the name.
    return Profile(facts["profile"], facts, folder)
