"""A window: a few steps that torch.profiler records, and their trace."""

import inspect
import os
import signal
import threading
import time

from .extent import MOST_EVENTS, PER_NODE, nodes
from .growth import Growth
from .link import greet
from .limits import SPARE, free_bytes
from .process import give_back_memory, is_whole, remove
from .pytorch import capturing, end_kineto_thread, in_backward
from .signals import Request

# A window is open for at most this many seconds, or this multiple of the time of its steps before. A validation
# inside it would fill the memory with events.
OPEN_SECONDS = 3.0
OPEN_TIMES = 3
# Seconds between two looks at an open window; and when it has to close outside of code that torch.compile
# compiled.
LOOK_EVERY, LOOK_SOON = 0.1, 0.001


class Window:
    """The profiler of a window, the thread that may close it, and why it will be dropped."""

    def __init__(self, step, length, everywhere):
        """Starts after step `step` and is `length` steps long; `everywhere` records all threads."""
        self.after = step
        self.last = step + length
        self.profile = None
        self.mark = None
        # Autograd nodes of its steps, once they are done.
        self.made = None
        # The thread that may close it; None if every thread may.
        self.opener = None if everywhere is not None else threading.get_ident()
        self.everywhere = everywhere
        # Why it will be dropped as soon as possible.
        self.doom = None
        # Whether its steps are done and it only has to close; since when.
        self.complete, self.completed = False, 0.0
        # Its state: started; being stopped; stopped, or about to be.
        self.started = self.stopping = self.over = False
        # The watcher of the open window.
        self.request = None
        self.wake = threading.Event()

    def start(self, memory, stacks):
        import torch

        options = {"record_shapes": True, "profile_memory": memory, "with_stack": stacks}
        # Without this, PyTorch warns on the job's standard error that events are lost between cycles. There is
        # only one cycle.
        if "acc_events" in inspect.signature(torch.profiler.profile.__init__).parameters:
            options["acc_events"] = True
        self.profile = torch.profiler.profile(experimental_config=self.everywhere, **options)
        try:
            self.profile.start()
        finally:
            end_kineto_thread()
            # Keep nothing for a next cycle: there is none.
            for part in (self.profile, getattr(self.profile, "profiler", None)):
                if hasattr(part, "acc_events"):
                    part.acc_events = False
        self.started = True
        self.opened, self.nodes = time.perf_counter(), nodes()

    def next_mark(self, step):
        """Sets the mark of a step as torch.profiler's own schedule does; None ends the last mark."""
        import torch

        mark, self.mark = self.mark, None
        if mark is not None:
            mark.__exit__(None, None, None)
        if step is not None:
            self.mark = torch.autograd.profiler.record_function("ProfilerStep#%d" % step)
            self.mark.__enter__()

    def is_elsewhere(self):
        """Whether this is not the thread that may close it."""
        return self.opener not in (None, threading.get_ident())

    def within_reach(self):
        """Whether it may close here and now: the profiler belongs to the thread that started it, unless it
        records all threads."""
        return not self.is_elsewhere() and not capturing() and not in_backward()

    def watch(self, seconds, grows, look):
        """Calls `look` several times a second while the window is open, in the thread that may close it. It is
        open too long after `seconds`. The step before it took `grows` bytes more."""
        self.seconds = seconds
        self.growth = Growth(self.last - self.after, grows, self.opener is not None)
        if self.opener is not None:
            self.request = Request(look)
            look = self.request.make
        threading.Thread(target=self.looks, args=(look,), name="habitat-tui", daemon=True).start()

    def looks(self, look):
        while not self.over:
            if self.complete:
                time.sleep(LOOK_SOON)
            else:
                self.wake.wait(LOOK_EVERY)
            if not self.over:
                look()

    def excess(self):
        """Why it records too much, else None."""
        seconds = time.perf_counter() - self.opened
        if seconds > self.seconds:
            return "it was open for %.0f s and its steps did not end; did a validation begin?" % seconds
        if self.opener is not None and (nodes() - self.nodes) * PER_NODE > 1.25 * MOST_EVENTS:
            return "its steps had more operators than those before, too many to record (%d at most)" % MOST_EVENTS
        grown = self.growth.excess()
        if grown is not None:
            return "the process took %.0f MB more memory in it; did a validation begin?" % (grown / 1e6)
        return None

    def have_dropped(self, reason):
        """Makes the main thread drop it, and gives it a moment to do so."""
        self.doom, patience = reason, time.perf_counter() + 1.0
        request = self.request  # Another thread may clear it.
        while request is not None and self.profile is not None and time.perf_counter() < patience:
            request.make()
            time.sleep(0.002)

    def end(self):
        """Stops the profiler and returns it with its recording."""
        self.over = True
        self.wake.set()
        profile = self.profile
        self.stop()
        self.profile = None
        return profile

    def stop(self):
        """Stops everything that still runs."""
        import torch

        if self.request is not None:
            self.request.end()
            self.request = None
        self.next_mark(None)
        if self.started and not self.stopping:
            self.stopping = True
            self.profile.stop()
            return
        # start() or stop() failed.
        inner = getattr(self.profile, "profiler", None)
        if not self.stopping and inner is not None and not torch.autograd._profiler_enabled():
            # A profiler that is prepared and never started blocks the program's own.
            try:
                inner._prepare_trace()
            except RuntimeError:
                pass  # It was prepared.
            inner._start_trace()
        if torch.autograd._profiler_enabled():
            torch.autograd._disable_profiler()


def release(profile):
    """Frees the memory of an ended profiler. Its reference cycles would keep the recording until the garbage
    collector runs."""
    if profile is not None:
        profile.profiler = None
        give_back_memory()


def export(recorded, folder, address, number, first, last):
    """Writes the trace of the profiler in the list `recorded`, in its own thread, and reports the result over
    its own link."""
    name = "trace-%d-%d.json" % (os.getpid(), number)
    path = os.path.join(folder, name)
    message = {"type": "window", "state": "written", "number": number, "first": first, "last": last}
    if hasattr(signal, "SIGXFSZ"):
        # With this signal blocked, a trace beyond the file size limit is an error and does not kill the job:
        # the system sends the signal to the thread that writes.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXFSZ])
    try:
        began = time.perf_counter()
        if not os.path.isdir(folder):
            # PyTorch would report this on the program's standard error.
            raise OSError("the folder for it, %s, is gone" % folder)
        recorded[0].export_chrome_trace(path + ".part")
        # PyTorch does not fail on a full disk: it logs a line and returns.
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
        release(recorded.pop())
        link = greet(address)
        if not link.alive:
            remove(path)
        link.send(message)
        link.finish(2.0)
    except Exception:
        pass
