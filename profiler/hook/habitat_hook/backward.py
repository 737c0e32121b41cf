"""Backward passes: how long they wait, and whether an optimizer that is not PyTorch's follows them.

`torch.autograd.backward` is wrapped until the first step of an optimizer. In a training of
several processes on CPUs it stays so: there `backward()` waits for the other processes.
"""

import functools
import sys
import threading
import time

from .optimizers import trained
from .pytorch import set_eval_frame, skip
from .signals import Held

# The passes after which an optimizer is looked for, until the next one: the first one is followed by
# a step of PyTorch's in most programs, and 64 are more than are accumulated for one.
FIRST, MOST = 2, 64


class Backward:
    """Times them, and has the steps of an optimizer counted that PyTorch does not know."""

    def __init__(self):
        # What is called after each step of such an optimizer.
        self.after_step = None
        # Seconds so far in which backward passes waited: in a list, which a step reads without a call.
        self.idle = [0.0]
        self.count = 0
        # The thread whose passes are timed, None where none is.
        self.thread = None
        # What was there before, and what is in its place.
        self.inner = self.wrapper = None
        # What looks for an optimizer.
        self.search = None
        self.over = False

    def start(self):
        """A fresh state, as in a forked child; what is wrapped stays."""
        self.idle[0], self.thread, self.over, self.count = 0.0, None, False, 0
        self.search = None

    def set(self, after_step):
        """Wraps `torch.autograd.backward`, which `Tensor.backward` calls."""
        self.after_step = after_step
        autograd = sys.modules.get("torch.autograd")
        inner = getattr(autograd, "backward", None)
        if inner is None or getattr(autograd.__spec__, "_initializing", False):
            return
        clock, busy, ident = time.perf_counter, time.thread_time, threading.get_ident

        @functools.wraps(inner)
        def backward(*args, **kwargs):
            if self.search is not None:
                self.leave()
            if ident() != self.thread:
                try:
                    return inner(*args, **kwargs)
                finally:
                    if not self.over:
                        self.after()
            before, began, worked = self.idle[0], clock(), busy()
            try:
                return inner(*args, **kwargs)
            finally:
                # Passes within this one are counted once.
                self.idle[0] = before + max((clock() - began) - (busy() - worked), 0.0)

        backward._torchdynamo_disable = True
        for seen in (backward, self.after, self.leave):
            skip(seen.__code__)
        self.inner, self.wrapper = inner, backward
        autograd.backward = backward

    def measure(self, thread):
        """From now on the passes of this thread are timed."""
        self.stop()
        if self.wrapper is not None:
            self.thread = thread

    def remove(self):
        """Leaves `torch.autograd.backward` as it was, unless somebody else has wrapped it since."""
        self.stop()
        self.thread = None
        autograd = sys.modules.get("torch.autograd")
        if self.inner is not None and getattr(autograd, "backward", None) is self.wrapper:
            autograd.backward = self.inner
        self.wrapper = None

    def stop(self):
        """Looks for no optimizer any more."""
        self.over = True
        self.leave()

    # ----- optimizers that are not PyTorch's

    def after(self):
        """After a pass that no step has followed so far: is it an optimizer's turn?"""
        self.count += 1
        if FIRST <= self.count <= MOST and sys.getprofile() is None and "_yappi" not in sys.modules:
            self.search = self.seen
            skip(self.seen.__code__)
            sys.setprofile(self.search)

    def leave(self):
        """Ends a look."""
        search, self.search = self.search, None
        if search is not None and sys.getprofile() is search:
            sys.setprofile(None)

    def seen(self, frame, event, argument):
        """Between two passes: returns of methods `step`. One that calls backward() itself, as with a
        closure, returns after it."""
        if self.search is None:
            sys.setprofile(None)  # It was ended in another thread.
            return
        if event != "return" or frame.f_code.co_name != "step":
            return
        callback, owner = set_eval_frame(None), None
        try:
            with Held():
                try:
                    owner = updated(frame)
                    if owner is not None:
                        self.stop()
                        self.count_steps(type(owner))
                except Exception:
                    owner = None  # It is none that we know what to make of.
        finally:
            set_eval_frame(callback)
        if owner is not None:
            self.after_step(owner, (), {})

    def count_steps(self, kind):
        """Has the steps of this class counted, as PyTorch does with its own."""
        owner = next(one for one in kind.__mro__ if "step" in vars(one))
        inner, after_step = owner.step, self.after_step

        @functools.wraps(inner)
        def step(optimizer, *args, **kwargs):
            result = inner(optimizer, *args, **kwargs)
            after_step(optimizer, args, kwargs)
            return result

        skip(step.__code__)
        owner.step = step


def updated(frame):
    """The object whose method `step` this is, if it is an optimizer whose steps PyTorch does not
    count: it has tensors with gradients, and is no module. Else None."""
    import torch

    code = frame.f_code
    owner = frame.f_locals[code.co_varnames[0]] if code.co_argcount else None
    kind = type(owner)
    if isinstance(owner, (type, torch.nn.Module)) or "step" in getattr(owner, "__dict__", ()):
        return None
    if not callable(getattr(kind, "step", None)) or getattr(kind.step, "hooked", False):
        return None
    if not kind.__weakrefoffset__ or all(one.grad is None for one in trained(owner)):
        return None
    return owner
