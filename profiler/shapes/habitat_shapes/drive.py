"""Finds the user's function, runs two steps, and writes the second."""

import ast
import contextlib
import gc
import importlib
import importlib.util
import inspect
import json
import logging
import os
import sys

from .failure import Failure, RebuildsEachStep, TrainsAtImport, of
from .pytorch import tf32, torch_version  # noqa: F401, start.py uses the version

# 2.1 crashes if an optimizer counts its steps in a tensor, and has no FP16 autocast on CPU tensors.
OLDEST = (2, 2)
# A step counts as one of CUDA graphs if these replay at least this many times the calls that are launched one
# by one; chosen so that calls outside of them, as for a loss, do not matter.
MOSTLY = 4
AGAIN = (
    "the model gets the same samples again for one update: they are counted once; if they represent different samples, "
    "as in gradient accumulation, make new ones for each call"
)
# Most functions that the error lists if one is not found.
MOST_NAMES = 20


def need_torch():
    try:
        import torch
        import torch._subclasses.fake_tensor  # noqa: F401
    except ImportError as error:
        raise Failure("no_torch", str(error))
    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2] if part.isdigit())
    if version < OLDEST:
        raise Failure("old_torch", torch.__version__)
    return torch


def run(request):
    # Before torch is imported: do not look for a GPU, and do not compile.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    os.environ.setdefault("PYTORCH_JIT", "0")
    # Imports leave no garbage; searching for it would take a third of the time.
    gc.disable()
    torch = need_torch()
    if not request["verbose"] and "TORCH_LOGS" not in os.environ:
        quiet()
    import torch._dynamo  # The step would load it.
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    from . import as_on_gpu, flex, recorder

    gc.freeze()
    gc.enable()
    step = recorder.Step()
    mode = recorder.Recorder(step)
    written = []
    with contextlib.ExitStack() as stack:
        # Jagged nested tensors need a shape environment; sizes stay numbers, and values unknown.
        symbols = ShapeEnv(allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=symbols, static_shapes=True)
        patches = as_on_gpu.patched(step), flex.Finder(step)
        for context in (fake, *patches, as_on_gpu.Devices(), step.watched(), mode):
            stack.enter_context(context)
        function = find(request["target"])
        for index, batch in enumerate(request["batch_sizes"] or [None]):
            fresh = recorder.Step()
            # The hooks and modes refer to this object.
            step.__dict__.clear()
            step.__dict__.update(fresh.__dict__)
            step.compiles_all = request.get("compile", False)
            trace = one(torch, mode, function, request, batch)
            name = "trace-%d.json" % index
            with open(os.path.join(request["folder"], name), "w", encoding="utf-8") as file:
                json.dump(trace, file)
            written.append({"file": name, "batch_size": trace["info"].get("batch")})
            gc.collect()
    return written


def quiet():
    """Silences PyTorch's own logs: we report errors."""
    for ours in ("torch._subclasses", "torch.fx"):
        known = [name for name in logging.root.manager.loggerDict if name.startswith(ours + ".")]
        for name in [ours] + known:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def find(target):
    """Returns the requested function; its module runs as an import, not as a program."""
    place, name = target["place"], target["function"]
    as_file = target["is_file"]
    sys.argv = [place]
    try:
        if as_file:
            path = os.path.abspath(place)
            sys.path.insert(0, os.path.dirname(path))
            stem = os.path.splitext(os.path.basename(path))[0]
            spec = importlib.util.spec_from_file_location(stem, path)
            module = importlib.util.module_from_spec(spec)
            # As an import does, so that classes of the script are found by name.
            sys.modules[stem] = module
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, os.getcwd())
            module = importlib.import_module(place)
    except TrainsAtImport:
        raise Failure("trains_at_import", place)
    except ModuleNotFoundError as error:
        if not as_file and error.name is not None and (place == error.name or place.startswith(error.name + ".")):
            raise Failure("no_module", place)
        raise of(error, "%s: importing it failed" % place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise of(error, "%s: importing it failed" % place)
    found = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        own = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and not key.startswith("_")
        ]
        listed = ", ".join(own[:MOST_NAMES]) or "none"
        if len(own) > MOST_NAMES:
            listed += " and %d more" % (len(own) - MOST_NAMES)
        what = "is not a function" if found is not None else "no such function"
        raise Failure("no_function", "%s:%s: %s" % (place, name, what), "functions there: %s" % listed)
    return found


def arguments(function, request, batch):
    """The arguments of the function, checked against its signature."""
    given = {name: literal(text) for name, text in request["args"].items()}
    shown = request["target"]["place"] + ":" + request["target"]["function"]
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        signature = None
    parameters = signature.parameters if signature else {}
    anything = signature is None or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if batch is not None:
        if not anything and "batch_size" not in parameters:
            raise Failure(
                "no_batch_size",
                "%s%s takes no batch_size, which --batch-sizes sets" % (shown, signature),
                "give it that parameter: def %s(batch_size=32): ..." % request["target"]["function"].split(".")[-1],
            )
        given["batch_size"] = batch
    unknown = [name for name in given if not anything and name not in parameters]
    if unknown:
        raise Failure("unknown_argument", "%s%s takes no argument %s" % (shown, signature, unknown[0]), "check --arg")
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and name not in given
    ]
    if missing:
        needed = "%s%s needs %s" % (shown, signature, ", ".join(missing))
        raise Failure("missing_argument", needed, "give it: " + " ".join("--arg %s=VALUE" % name for name in missing))
    if signature is not None:
        try:
            signature.bind(**given)
        except TypeError as error:
            raise Failure("unknown_argument", "%s%s: %s" % (shown, signature, error), "it is called with names only")
    if batch is None and "batch_size" in given:
        batch = given["batch_size"]
    elif batch is None and "batch_size" in parameters:
        default = parameters["batch_size"].default
        batch = default if default is not inspect.Parameter.empty else None
    return given, batch if isinstance(batch, int) else None


def literal(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def one(torch, mode, function, request, batch):
    step = mode.step
    shown = request["target"]["place"] + ":" + request["target"]["function"]
    given, batch = arguments(function, request, batch)
    said = dict(given) if batch is None else dict(given, batch_size=batch)
    shown += "(%s)" % ", ".join("%s=%r" % item for item in said.items())
    mode.rows, model = None, None
    try:
        step.stage = "build"
        made = function(**given)
        if isinstance(made, tuple) or callable(made) or not (step.updates or step.had_backward or step.roots):
            model, make = pieces(torch, made, shown)
        else:
            # It made a step itself: call it for each step.
            make = lambda: function(**given)
        del made
        step.stage = "step"
        for number in (0, 1):
            step.reset()
            step.tag_model(model)
            if number == 1:
                gc.collect()
                step.inputs = None
                step.memory.begin()
                mode.record()
            make()
            step.tag_model(model)
            step.steps_made += 1
        step.memory.end()
    except RebuildsEachStep:
        raise Failure("rebuilds", shown)
    except (Failure, KeyboardInterrupt):
        raise
    except BaseException as error:
        where = "%s: %s" % (shown, "the function failed" if step.stage == "build" else "its step failed")
        raise of(error, where, step.refused)
    rows = mode.told()
    if not rows:
        raise Failure("no_step", shown)
    return told(torch, step, mode, rows, request, batch)


def pieces(torch, made, shown):
    """(model, one step) from the function's result."""
    if isinstance(made, dict) and isinstance(made.get("model"), torch.nn.Module):
        made = (made["model"], made.get("inputs"), made.get("optimizer"), made.get("loss_fn"))
    if isinstance(made, (tuple, list)) and 3 <= len(made) <= 4 and isinstance(made[0], torch.nn.Module):
        model, inputs, optimizer = made[:3]
        loss_fn = made[3] if len(made) == 4 else None
        if optimizer is not None and not hasattr(optimizer, "step"):
            raise Failure("nonsense", "%s: its third result is not an optimizer: %s" % (shown, described(optimizer)))
        if loss_fn is not None and not callable(loss_fn):
            raise Failure("nonsense", "%s: its fourth result is not a loss function: %s" % (shown, described(loss_fn)))
        return model, lambda: whole_step(torch, model, inputs, optimizer, loss_fn, shown)
    if isinstance(made, torch.nn.Module) or not callable(made):
        raise Failure("nonsense", "%s: it returned %s" % (shown, described(made)))
    return None, made


def described(value):
    if value is None:
        return "nothing, and made no step"
    if isinstance(value, (tuple, list)):
        return "(%s)" % ", ".join(described(item) for item in value)
    return "Tensor %s" % (tuple(value.shape),) if hasattr(value, "shape") else type(value).__name__


def whole_step(torch, model, inputs, optimizer, loss_fn, shown):
    if optimizer is None:
        with torch.no_grad():
            return call(model, inputs)
    optimizer.zero_grad()
    output = call(model, inputs)
    loss = loss_fn(output) if loss_fn is not None else loss_of(torch, output)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise Failure("no_loss", "%s: the model returned no loss (%s)" % (shown, described(output)))
    del output
    loss.backward()
    optimizer.step()


def call(model, inputs):
    if isinstance(inputs, dict) or hasattr(inputs, "keys"):
        return model(**inputs)
    if isinstance(inputs, (tuple, list)):
        return model(*inputs)
    return model(inputs)


def loss_of(torch, output):
    if isinstance(output, torch.Tensor):
        return output
    loss = getattr(output, "loss", None)
    if loss is None and isinstance(output, dict):
        loss = output.get("loss")
    if loss is None and isinstance(output, (tuple, list)) and output:
        loss = output[0]
    return loss


def micro_batch(step, batch):
    """If a step accumulates gradients of micro-batches for one update: their number, and the samples of each.
    Else, or if unknown, one micro-batch of all samples."""
    times = step.most_calls
    if step.again:
        step.note(AGAIN)
    if batch is None or times < 2 or len(step.optimizers) != 1:
        return 1, batch
    each, rest = divmod(batch, times)
    # Samples are the first dimension, or the second after the positions of a sequence.
    for place in (0, 1):
        extents = {shape[place] for shape, _ in step.inputs or [] if len(shape) > place}
        if batch in extents:
            return times, batch
        if rest == 0 and each in extents:
            return times, each
    return 1, batch


def told(torch, step, mode, rows, request, batch):
    """The op list of the recorded step."""
    trained = {
        id(parameter): parameter.numel()
        for optimizer in step.optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    parameters = trained or {key: parameter.numel() for key, parameter in step.parameters.items()}
    sequence = None
    for shape, _ in step.inputs or []:
        batch = batch or (shape[0] if shape else None)
    times, batch = micro_batch(step, batch)
    for shape, floating in step.inputs or []:
        # Other integer inputs, as the edges of a graph, have no dimension of samples.
        if sequence is None and len(shape) == 2 and not floating and batch in shape:
            # The tokens of a sample are the last dimension, unless samples are.
            tokens = shape[0] if shape[0] != batch and shape[1] == batch else shape[1]
            sequence = tokens if tokens > 1 else None
    training = step.had_backward
    if times > 1:
        step.note(
            "%d micro-batches of %d samples are accumulated to one update: a step of %d" % (times, batch, times * batch)
        )
    if training and not step.updates:
        updates = any(row["phase"] == "optimizer" for row in rows)
        made = "its time is the work after backward, its memory is not separate" if updates else "its time and memory are missing"
        step.note("no PyTorch optimizer made a step: " + made)
    memory, fusion = step.memory, step.fusion
    kinds, working, peak_phase = memory.at_peak(set(fusion.made), fusion.held)
    products_in_tf32, convolutions_in_tf32 = tf32()
    return {
        "format": "habitat-op-list",
        "version": 1,
        "info": {
            "case": request["name"],
            "torch": torch.__version__,
            "batch": batch and batch * times,
            "micro_batches": times if times > 1 else None,
            "seq": sequence,
            "params": sum(parameters.values()) or None,
            "amp": step.autocast,
            "tf32": products_in_tf32,
            "cudnn_tf32": convolutions_in_tf32,
            "mode": "training" if training else "inference",
            "calls": mode.calls,
            "execution": "cuda_graphs" if mode.replayed > MOSTLY * mode.launched else None,
            "memory": {"kinds": kinds, "working": working, "peak_phase": peak_phase},
            "notes": step.notes,
        },
        "ops": rows,
    }
