"""What every program says of itself: its result, the state that it ends in, and the truth about a step.

The comparison (../compare.py) reads the last lines. With COUNT=1 in the environment the
ATen operators of one step are counted too, by PyTorch's own dispatcher.
"""
import atexit
import collections
import hashlib
import os
import random
import sys

import numpy
import torch

# What a program does not seed itself would differ from run to run.
random.seed(0)
numpy.random.seed(0)
torch.set_num_threads(1)

# The step of the first optimizer whose operators are counted, from 1.
COUNTED = 9


def short(data):
    return hashlib.sha256(data).hexdigest()[:12]


def finish(loss, model=None, *, steps, batch=None, parameters=None):
    """Prints the last lines. `batch`: samples of one optimizer step; left out where there is no such thing."""
    weights = "-"
    if model is not None:
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if parameters is None:
            parameters = sum(parameter.numel() for parameter in trained)
        weights = short(b"".join(p.detach().to_dense().to(torch.float64).numpy().tobytes() for p in trained))
    loss = float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
    state = ["loss=%.17g" % loss, "weights=" + weights]
    state.append("torch=" + short(torch.get_rng_state().numpy().tobytes()))
    state.append("random=" + short(repr(random.getstate()).encode()))
    state.append("numpy=" + short(repr(numpy.random.get_state()).encode()))
    truth = ["steps=%d" % steps]
    if parameters is not None:
        truth.append("parameters=%d" % parameters)
    if batch is not None:
        truth.append("batch=%d" % batch)
    # In one piece: several processes may write at the same time.
    sys.stdout.write("TRUTH %s\nSTATE %s\n" % (" ".join(truth), " ".join(state)))
    sys.stdout.flush()


def count():
    """Counts the operators of one step of the first optimizer."""
    from torch.optim.optimizer import register_optimizer_step_post_hook
    from torch.utils._python_dispatch import TorchDispatchMode

    names = collections.Counter()

    class Count(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            # A view computes nothing; what a loader computes is not the model's.
            if not state["loads"] and not any(given.alias_info and not given.alias_info.is_write for given in function._schema.arguments):
                names[function._schema.name] += 1
            return function(*arguments, **(keywords or {}))

    state = {"first": None, "steps": 0, "mode": None, "loads": False}
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    next_batch = loader.__next__

    def load(iterator):
        state["loads"] = True
        try:
            return next_batch(iterator)
        finally:
            state["loads"] = False

    loader.__next__ = load

    def after_step(optimizer, *_):
        if state["first"] is None:
            state["first"] = id(optimizer)
        if id(optimizer) != state["first"]:
            return
        state["steps"] += 1
        if state["steps"] == COUNTED - 1:
            state["mode"] = Count()
            state["mode"].__enter__()
        elif state["steps"] == COUNTED:
            state["mode"].__exit__(None, None, None)
            counted = dict(names)
            atexit.register(lambda: print("COUNT " + " ".join("%s=%d" % item for item in sorted(counted.items()))))

    register_optimizer_step_post_hook(after_step)


if os.environ.get("COUNT"):
    os.environ["TORCH_COMPILE_DISABLE"] = "1"
    count()
