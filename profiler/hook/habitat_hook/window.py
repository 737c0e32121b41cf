"""A window: a few steps that torch.profiler records, and the trace it leaves."""

import ctypes
import os
import threading
import time
import weakref

from .link import greet
from .process import free_bytes, is_whole, remove
from .pytorch import capturing, in_backward
from .signals import Held

# A window is open for so many seconds at most, or for so many times what its steps took
# before: a validation that begins in it would fill the memory with events.
OPEN_SECONDS = 10.0
OPEN_TIMES = 10
# Bytes that must be free for traces before a window opens; a few large steps make 200 MB.
SPARE = 500_000_000

# What the main thread may be asked to call: CPython holds its address only.
asked = []


class Window:
    """The profiler from one step on, who may close it, and why it will not be kept."""

    def __init__(self, step, everywhere):
        """After so many steps; `everywhere` has all threads recorded."""
        self.after = step
        self.profile = None
        self.mark = None
        # The thread that may close it; None where all threads may.
        self.opener = None if everywhere is not None else threading.get_ident()
        self.everywhere = everywhere
        # Why it will be dropped as soon as it can be.
        self.doom = None
        # The main thread is asked to look at it by `ask`, which `timer` calls.
        self.timer = None
        self.ask = None

    def start(self, memory, stacks):
        import torch

        self.profile = torch.profiler.profile(
            record_shapes=True, profile_memory=memory, with_stack=stacks, experimental_config=self.everywhere
        )
        self.profile.start()

    def next_mark(self, step):
        """The mark of a step as torch.profiler's own schedule would set it."""
        import torch

        if self.mark is not None:
            self.mark.__exit__(None, None, None)
        self.mark = torch.autograd.profiler.record_function("ProfilerStep#%d" % step)
        self.mark.__enter__()

    def is_elsewhere(self):
        """Whether this is another thread than the one that may close it."""
        return self.opener not in (None, threading.get_ident())

    def within_reach(self):
        """Whether it may be closed here and now: the profiler belongs to the thread that
        started it, unless it was told otherwise."""
        return not self.is_elsewhere() and not capturing() and not in_backward()

    def limit(self, seconds, overdue):
        """Has the main thread call `overdue(window, seconds)` after so long, if it is open
        still: torch.profiler is stopped by the thread that started it, and CPython can ask
        something of the main thread only. Where there is no such call, there is no limit."""
        there = weakref.ref(self)

        def call(_):
            with Held(within_c=True) as held:
                window = there()
                if window is not None and window.profile is not None:
                    overdue(window, seconds)
            held.left = True
            return 0

        try:
            pending = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)
            asked.append(pending)
            self.ask = lambda: ctypes.pythonapi.Py_AddPendingCall(pending, None)
            self.timer = threading.Timer(seconds, self.ask)
            self.timer.daemon = True
            self.timer.start()
        except Exception:
            self.timer = self.ask = None  # Some systems forbid such calls.

    def have_dropped(self, reason):
        """Has the main thread drop it, and gives it a moment to do so."""
        self.doom, patience = reason, time.perf_counter() + 1.0
        ask = self.ask  # Another thread may take it away.
        if ask is not None:
            ask()
            while self.profile is not None and time.perf_counter() < patience:
                time.sleep(0.002)

    def end(self):
        """Stops the profiler, and gives it back with what it has recorded."""
        timer, self.timer, self.ask = self.timer, None, None
        if timer is not None:
            timer.cancel()
        mark, self.mark = self.mark, None
        profile = self.profile
        try:
            if mark is not None:
                mark.__exit__(None, None, None)
        finally:
            try:
                if profile is not None:
                    profile.stop()
            finally:
                self.profile = None
        return profile


def export(profile, folder, address, number, first, last):
    """In a thread of its own: writes the trace, and says so over a link of its own."""
    name = "trace-%d-%d.json" % (os.getpid(), number)
    path = os.path.join(folder, name)
    message = {"type": "window", "state": "written", "number": number, "first": first, "last": last}
    try:
        began = time.perf_counter()
        if not os.path.isdir(folder):
            # PyTorch would say so on the program's standard error.
            raise OSError("the folder for it, %s, is gone" % folder)
        profile.export_chrome_trace(path + ".part")
        # A disk that is full is no error to PyTorch: it writes a line of log and returns.
        if not is_whole(path + ".part"):
            free = free_bytes(folder)
            if free is not None and free < SPARE:
                raise OSError("the disk is full (%.0f MB are free in %s)" % (free / 1e6, folder))
            raise OSError("it is cut off, as by a limit on the size of files (ulimit -f)")
        os.rename(path + ".part", path)
        message["file"] = name
        message["bytes"] = os.path.getsize(path)
        message["cost_us"] = round((time.perf_counter() - began) * 1e6, 1)
    except Exception as problem:
        message = {"type": "window", "state": "dropped", "step": last, "number": number}
        message["reason"] = "the trace was not written: %s" % str(problem)[:200]
        for name in (path + ".part", path + ".part.tmp", path):
            remove(name)
    try:
        link = greet(address)
        if not link.alive:
            remove(path)
        link.send(message)
        link.finish(2.0)
    except Exception:
        pass
