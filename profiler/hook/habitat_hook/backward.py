"""Backward passes: how long they take, how long they wait, and whether an optimizer that is not PyTorch's
follows them.

`torch.autograd.backward` is wrapped; if steps are very short, for half a second or more of each minute. In a training of
several processes on CPUs the processor time of the thread is read as well: there `backward()` waits for the others.
"""

import functools
import sys
import threading
import time

from .optimizers import trained
from .pytorch import set_eval_frame, skip
from .signals import Held
from .times import BACKWARD, FORWARD, IDLE, MARK, PASSED

# The passes after which an optimizer is looked for, until the next one: the first one is followed by
# a step of PyTorch's in most programs, and 64 are more than are accumulated for one.
FIRST, MOST = 2, 64
# Methods that are an optimizer's step, and another one that its class has then: `apply` is Keras's, and a
# name of much else.
STEPS = {"step": "step", "apply": "apply_gradients"}


class Backward:
    """Times them, and has the steps of an optimizer counted that PyTorch does not know."""

    def __init__(self, times):
        # Functions: called after each step of such an optimizer, and whether a window is open.
        self.after_step = self.is_open = None
        self.sums = times.sums
        # What was there before, and what is in its place.
        self.inner = self.wrapper = None
        self.count = 0
        # The thread whose passes are timed, None if none is; and whether it waits for other ranks in them. The list
        # itself stays.
        self.timed = [None, False]
        # Called after the first pass.
        self.at_first = None
        # What looks for an optimizer.
        self.search = None
        self.over = False

    def start(self):
        """A fresh state, as in a forked child; what is wrapped stays."""
        self.timed[:] = None, False
        self.over, self.count = False, 0
        self.search = None

    @property
    def waits(self):
        return self.timed[1]

    def set(self, after_step, is_open):
        """Wraps `torch.autograd.backward`, which `Tensor.backward` calls."""
        self.after_step, self.is_open = after_step, is_open
        autograd = sys.modules.get("torch.autograd")
        inner = getattr(autograd, "backward", None)
        if inner is None or getattr(autograd.__spec__, "_initializing", False):
            return
        clock, busy, ident, sums, timed = time.perf_counter, time.thread_time, threading.get_ident, self.sums, self.timed

        @functools.wraps(inner)
        def backward(*args, **kwargs):
            thread, waits = timed
            if ident() != thread:
                if self.search is not None:
                    self.leave()
                try:
                    return inner(*args, **kwargs)
                finally:
                    if not self.over:
                        self.after()
            # Passes within this one are counted once.
            inside = sums[BACKWARD]
            if waits:
                idle, worked = sums[IDLE], busy()
            began = clock()
            ahead = sums[FORWARD] + began - sums[MARK]
            try:
                return inner(*args, **kwargs)
            finally:
                now = sums[PASSED] = sums[MARK] = clock()
                sums[FORWARD] = ahead
                sums[BACKWARD] = inside + now - began
                if waits:
                    sums[IDLE] = idle + max((now - began) - (busy() - worked), 0.0)

        backward._torchdynamo_disable = True
        for seen in (backward, self.after, self.leave):
            skip(seen.__code__)
        self.inner, self.wrapper = inner, backward
        autograd.backward = backward

    def is_timed(self):
        return self.wrapper is not None and sys.modules["torch.autograd"].backward is self.wrapper

    def put(self, timed):
        """Has passes timed, or leaves `torch.autograd.backward` as it was, unless somebody else has wrapped it."""
        old, new = (self.inner, self.wrapper) if timed else (self.wrapper, self.inner)
        autograd = sys.modules["torch.autograd"]
        if old is not None and autograd.backward is old:
            autograd.backward = new

    def measure(self, thread, waits):
        """From now on the passes of this thread are timed, and how long it waits in them if it does."""
        self.stop()
        self.timed[:] = thread, waits

    def own(self, thread):
        """Goes on in another thread, if passes are timed."""
        if self.timed[0] is not None:
            self.timed[0] = thread

    def stop(self):
        """Looks for no optimizer any more."""
        self.over = True
        self.leave()

    # ----- optimizers that are not PyTorch's

    def after(self):
        """After a pass that no step has followed so far: is it an optimizer's turn?"""
        self.count += 1
        if self.count == 1 and self.at_first is not None:
            self.at_first()
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
        """Between two passes: returns of methods that may be an optimizer's step. One that calls backward()
        itself, as with a closure, returns after it."""
        if self.search is None:
            sys.setprofile(None)  # It was ended in another thread.
            return
        if event != "return" or frame.f_code.co_name not in STEPS:
            return
        callback, owner = set_eval_frame(None), None
        try:
            with Held():
                try:
                    owner = updated(frame)
                    if owner is not None:
                        self.stop()
                        self.count_steps(type(owner), frame.f_code.co_name)
                except Exception:
                    owner = None  # It is none that we know what to make of.
        finally:
            set_eval_frame(callback)
        if owner is not None:
            self.after_step(owner, (), {})

    def count_steps(self, kind, name):
        """Has the steps of this class counted and marked, as PyTorch does with its own."""
        from torch.autograd.profiler import record_function

        owner = next(one for one in kind.__mro__ if name in vars(one))
        inner, after_step, is_open = getattr(owner, name), self.after_step, self.is_open

        @functools.wraps(inner)
        def step(optimizer, *args, **kwargs):
            if is_open():
                # As PyTorch marks its own in a trace.
                with record_function("Optimizer.step#%s.%s" % (type(optimizer).__name__, name)):
                    result = inner(optimizer, *args, **kwargs)
            else:
                result = inner(optimizer, *args, **kwargs)
            after_step(optimizer, args, kwargs)
            return result

        skip(step.__code__)
        setattr(owner, name, step)


def updated(frame):
    """The object whose method this is, if it is an optimizer whose steps PyTorch does not count: it
    has tensors with gradients, and is no module. Else None."""
    import torch

    code, name = frame.f_code, frame.f_code.co_name
    owner = frame.f_locals[code.co_varnames[0]] if code.co_argcount else None
    kind = type(owner)
    if isinstance(owner, (type, torch.nn.Module)) or name in getattr(owner, "__dict__", ()):
        return None
    method = getattr(kind, name, None)
    if not callable(method) or getattr(method, "hooked", False) or not hasattr(kind, STEPS[name]):
        return None
    if not kind.__weakrefoffset__ or all(one.grad is None for one in trained(owner)):
        return None
    return owner
