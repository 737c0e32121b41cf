"""A step made of Python objects, as a file that `trace-shapes` reads.

`trace-shapes` makes the step in a process of its own. A function that lies in a file is named by its place. A model, or a
function of a notebook, is pickled with its tensors replaced by their shapes: nothing of the weights is written.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
import types
from pathlib import Path
from typing import Any, Callable

from ._program import HabitatError

# Elements of a tensor of whole numbers or truth values that is kept with its values, such as a mask.
MOST_VALUES = 1 << 20
# Set for the process that traces, which imports the script again.
TRACING = "HABITAT_TUI_IS_TRACING"

# Read by the process that traces. Each tensor comes back once, so that what shared it shares it.
_READER = '''\
import importlib.util, pickle, sys
import torch

sys.path[:0] = {path!r}
made = {{}}


def script():
    if "__habitat_main__" not in sys.modules:
        spec = importlib.util.spec_from_file_location("__habitat_main__", {main!r})
        module = importlib.util.module_from_spec(spec)
        sys.modules["__habitat_main__"] = module
        spec.loader.exec_module(module)
    return sys.modules["__habitat_main__"]


class Reader(pickle.Unpickler):
    def find_class(self, module, name):
        if module == "__main__" and {main!r}:
            found = script()
            for part in name.split("."):
                found = getattr(found, part)
            return found
        return super().find_class(module, name)

    def persistent_load(self, key):
        number, kind, shape, stride, dtype, trains, values = key
        if number not in made:
            dtype = getattr(torch, dtype)
            if values is None:
                tensor = torch.empty_strided(shape, stride, dtype=dtype)
            else:
                tensor = torch.tensor(values, dtype=dtype).reshape(shape)
            made[number] = torch.nn.Parameter(tensor, trains) if kind == "parameter" else tensor.requires_grad_(trains)
        return made[number]


def build({arguments}):
    made.clear()
    with open({file!r}, "rb") as file:
        step = Reader(file).load()
    return {result}
'''


def is_model(source: Any) -> bool:
    """Whether it is a `torch.nn.Module`."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(source, torch.nn.Module)


def name(source: Any) -> str:
    """The name of the workload."""
    return (type(source).__name__ if is_model(source) else getattr(source, "__name__", "step")).lower()


def target(
    source: Any, inputs: Any, optimizer: Any, loss: Callable[..., Any] | None, batch_size: int | None, folder: Path
) -> str:
    """PLACE:FUNCTION of the step."""
    if os.environ.get(TRACING):
        raise HabitatError(
            "a script that is traced begins to trace itself: put its last part under `if __name__ == \"__main__\":`"
        )
    if not is_model(source):
        if inputs is not None or optimizer is not None or loss is not None:
            raise TypeError("inputs, optimizer and loss belong to a model; a function returns them itself")
        file = getattr(sys.modules.get(getattr(source, "__module__", "")), "__file__", None)
        named = getattr(source, "__qualname__", "<")
        if file and named.isidentifier():
            return f"{os.path.abspath(file)}:{named}"
        _write((source,), folder / "step.pickle")
        arguments, result = ("**given", "step[0](**given)")
        if batch_size is not None:
            arguments, result = ("batch_size, **given", "step[0](batch_size=batch_size, **given)")
    else:
        if inputs is None:
            raise TypeError("a model is traced with its inputs: pass inputs=, a tensor, a tuple or a dict of arguments")
        _write((source, inputs, optimizer, loss), folder / "step.pickle")
        batch_size = batch_size if batch_size is not None else _batch_size(inputs)
        arguments = "" if batch_size is None else f"batch_size={int(batch_size)}"
        result = "step if step[3] is not None else step[:3]"
    place = folder / "step.py"
    place.write_text(
        _READER.format(path=sys.path, main=_script(), file=str(folder / "step.pickle"), arguments=arguments, result=result),
        encoding="utf-8",
    )
    return f"{place}:build"


def _batch_size(inputs: Any) -> int | None:
    """The first extent of the first tensor."""
    items = inputs.values() if hasattr(inputs, "keys") else inputs if isinstance(inputs, (tuple, list)) else [inputs]
    shapes = [tuple(item.shape) for item in items if hasattr(item, "shape")]
    return int(shapes[0][0]) if shapes and shapes[0] else None


def _script() -> str | None:
    """The file of the program that runs; None in a notebook."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return os.path.abspath(file) if file and os.path.isfile(file) else None


class _Plain(pickle.Pickler):
    """Names functions and classes by their module, which a notebook does not have."""

    def reducer_override(self, value: Any) -> Any:
        is_named = isinstance(value, (type, types.FunctionType))
        if is_named and value.__module__ == "__main__" and _script() is None:
            raise pickle.PicklingError(f"{value.__qualname__} is defined in a notebook")
        return NotImplemented


def _pickler() -> Any:
    """`cloudpickle` takes functions and classes of a notebook by value."""
    try:
        import cloudpickle
    except ImportError:
        return _Plain
    return cloudpickle.Pickler


def _write(step: tuple[Any, ...], file: Path) -> None:
    import torch

    base = _pickler()

    class Writer(base):  # type: ignore[misc, valid-type]
        def persistent_id(self, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return None
            kind = "parameter" if isinstance(value, torch.nn.Parameter) else "tensor"
            is_kept = not (value.is_floating_point() or value.is_complex() or value.is_meta)
            values = value.detach().cpu().tolist() if is_kept and value.numel() <= MOST_VALUES else None
            dtype = str(value.dtype).split(".")[-1]
            return id(value), kind, tuple(value.shape), value.stride(), dtype, value.requires_grad, values

    text = io.BytesIO()
    try:
        Writer(text).dump(step)
    except Exception as error:  # What `__getstate__` of a module of the user raises.
        raise HabitatError(
            f"the step cannot be handed to another process ({error}): put its function or class into a file, "
            'and pass "FILE.py:FUNCTION"; with `pip install cloudpickle` those of a notebook work as well'
        ) from error
    file.write_bytes(text.getvalue())
