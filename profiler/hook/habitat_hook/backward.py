"""Times backward passes and their waits, and finds optimizers that are not PyTorch's.

Wraps `torch.autograd.backward`; if steps are very short, only for half a second or more of each minute. If
several processes train on CPUs, it also reads the CPU time of the thread: there `backward()` waits for the
other ranks.
"""

import functools
import sys
import threading
import time

from .optimizers import trained
from .pytorch import set_eval_frame, skip
from .signals import Held
from .times import BACKWARD, FORWARD, IDLE, MARK, PASSED

# Passes after which the hook looks for an optimizer, until the next pass. In most programs a step of a PyTorch
# optimizer follows the first pass, and few programs accumulate over more than 64.
FIRST, MOST = 2, 64
# Methods that may be an optimizer's step, and a second method that the class then has: Keras uses `apply`,
# which is also a common name elsewhere.
STEPS = {"step": "step", "apply": "apply_gradients"}


class Backward:
    """Times backward passes, and counts the steps of an optimizer that PyTorch does not know."""

    def __init__(self, times):
        # Functions: called after each step of such an optimizer; whether a window is open.
        self.after_step = self.is_open = None
        self.sums = times.sums
        # The original function and its wrapper.
        self.inner = self.wrapper = None
        self.count = 0
        # The thread whose passes are timed, or None; and whether its passes wait for other ranks. The list
        # object itself stays.
        self.timed = [None, False]
        # Called after the first pass.
        self.at_first = None
        # The profile function that looks for an optimizer.
        self.search = None
        self.over = False

    def start(self):
        """Resets the state, as in a forked child; the wrapper stays."""
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
            # Count nested passes once.
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
        """Times passes, or restores `torch.autograd.backward`, unless other code has wrapped it."""
        old, new = (self.inner, self.wrapper) if timed else (self.wrapper, self.inner)
        autograd = sys.modules["torch.autograd"]
        if old is not None and autograd.backward is old:
            autograd.backward = new

    def measure(self, thread, waits):
        """Times the passes of this thread from now on, and its waits in them if `waits`."""
        self.stop()
        self.timed[:] = thread, waits

    def own(self, thread):
        """Moves the timing to another thread, if passes are timed."""
        if self.timed[0] is not None:
            self.timed[0] = thread

    def stop(self):
        """Stops looking for an optimizer."""
        self.over = True
        self.leave()

    # ----- optimizers that are not PyTorch's

    def after(self):
        """After a pass without a step since: looks for an optimizer's step, if it is time."""
        self.count += 1
        if self.count == 1 and self.at_first is not None:
            self.at_first()
        if FIRST <= self.count <= MOST and sys.getprofile() is None and "_yappi" not in sys.modules:
            self.search = self.seen
            skip(self.seen.__code__)
            sys.setprofile(self.search)

    def leave(self):
        """Ends the search."""
        search, self.search = self.search, None
        if search is not None and sys.getprofile() is search:
            sys.setprofile(None)

    def seen(self, frame, event, argument):
        """Between two passes: checks methods that return and may be an optimizer's step. A step that calls
        backward() itself, as with a closure, returns after it."""
        if self.search is None:
            sys.setprofile(None)  # Another thread ended the search.
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
                    owner = None  # Not an optimizer that we know how to count.
        finally:
            set_eval_frame(callback)
        if owner is not None:
            self.after_step(owner, (), {})

    def count_steps(self, kind, name):
        """Counts and marks the steps of this class, as PyTorch does with its own."""
        from torch.autograd.profiler import record_function

        owner = next(one for one in kind.__mro__ if name in vars(one))
        inner, after_step, is_open = getattr(owner, name), self.after_step, self.is_open

        @functools.wraps(inner)
        def step(optimizer, *args, **kwargs):
            if is_open():
                # The mark that PyTorch uses for its own optimizers in a trace.
                with record_function("Optimizer.step#%s.%s" % (type(optimizer).__name__, name)):
                    result = inner(optimizer, *args, **kwargs)
            else:
                result = inner(optimizer, *args, **kwargs)
            after_step(optimizer, args, kwargs)
            return result

        skip(step.__code__)
        setattr(owner, name, step)


def updated(frame):
    """The object of this method, if it is an optimizer whose steps PyTorch does not count: it has tensors with
    gradients and is not a module. Else None."""
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
