"""A window: a few steps that torch.profiler records, and the trace it leaves."""

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

# A window is open for so many seconds at most, or for so many times what its steps took
# before. A validation that begins in it would fill the memory with events.
OPEN_SECONDS = 3.0
OPEN_TIMES = 3
# Seconds between two looks at an open window; and where it is to be closed outside of what
# torch.compile has compiled.
LOOK_EVERY, LOOK_SOON = 0.1, 0.001


class Window:
    """The profiler from one step on, who may close it, and why it will not be kept."""

    def __init__(self, step, length, everywhere):
        """After step `step`, `length` steps long; `everywhere` has all threads recorded."""
        self.after = step
        self.last = step + length
        self.profile = None
        self.mark = None
        # Nodes of autograd that its steps made, once they have.
        self.made = None
        # The thread that may close it; None where all threads may.
        self.opener = None if everywhere is not None else threading.get_ident()
        self.everywhere = everywhere
        # Why it will be dropped as soon as it can be.
        self.doom = None
        # Whether its steps are made, and it is only to be closed; since when.
        self.complete, self.completed = False, 0.0
        # How far it is: started; being stopped; stopped, or about to be.
        self.started = self.stopping = self.over = False
        # What looks at it meanwhile.
        self.request = None
        self.wake = threading.Event()

    def start(self, memory, stacks):
        import torch

        options = {"record_shapes": True, "profile_memory": memory, "with_stack": stacks}
        # Else PyTorch warns, on the job's standard error, of events that are lost between cycles. There is one here.
        if "acc_events" in inspect.signature(torch.profiler.profile.__init__).parameters:
            options["acc_events"] = True
        self.profile = torch.profiler.profile(experimental_config=self.everywhere, **options)
        try:
            self.profile.start()
        finally:
            end_kineto_thread()
            # Nothing is to be kept for a next cycle, which there is not.
            for part in (self.profile, getattr(self.profile, "profiler", None)):
                if hasattr(part, "acc_events"):
                    part.acc_events = False
        self.started = True
        self.opened, self.nodes = time.perf_counter(), nodes()

    def next_mark(self, step):
        """The mark of a step as torch.profiler's own schedule would set it; None ends the last."""
        import torch

        mark, self.mark = self.mark, None
        if mark is not None:
            mark.__exit__(None, None, None)
        if step is not None:
            self.mark = torch.autograd.profiler.record_function("ProfilerStep#%d" % step)
            self.mark.__enter__()

    def is_elsewhere(self):
        """Whether this is another thread than the one that may close it."""
        return self.opener not in (None, threading.get_ident())

    def within_reach(self):
        """Whether it may be closed here and now: the profiler belongs to the thread that
        started it, unless it was told otherwise."""
        return not self.is_elsewhere() and not capturing() and not in_backward()

    def watch(self, seconds, grows, look):
        """Calls `look` several times a second while it is open, in the thread that may close
        it; it has overstayed after so many seconds. A step before it took `grows` bytes more."""
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
        """Has the main thread drop it, and gives it a moment to do so."""
        self.doom, patience = reason, time.perf_counter() + 1.0
        request = self.request  # Another thread may take it away.
        while request is not None and self.profile is not None and time.perf_counter() < patience:
            request.make()
            time.sleep(0.002)

    def end(self):
        """Stops the profiler, and gives it back with what it has recorded."""
        self.over = True
        self.wake.set()
        profile = self.profile
        self.stop()
        self.profile = None
        return profile

    def stop(self):
        """Stops what still runs."""
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
            # One that is prepared and never started is in the way of the program's own.
            try:
                inner._prepare_trace()
            except RuntimeError:
                pass  # It was.
            inner._start_trace()
        if torch.autograd._profiler_enabled():
            torch.autograd._disable_profiler()


def release(profile):
    """Gives back the memory of an ended profiler. It is part of cycles of references: what it
    recorded would stay until the garbage collector finds them."""
    if profile is not None:
        profile.profiler = None
        give_back_memory()


def export(recorded, folder, address, number, first, last):
    """In a thread of its own: writes the trace of the profiler that it takes from the list
    `recorded`, and says so over a link of its own."""
    name = "trace-%d-%d.json" % (os.getpid(), number)
    path = os.path.join(folder, name)
    message = {"type": "window", "state": "written", "number": number, "first": first, "last": last}
    if hasattr(signal, "SIGXFSZ"):
        # A trace beyond the limit on the size of files is then an error, and no end of the job: the
        # system sends this signal to the thread that writes.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGXFSZ])
    try:
        began = time.perf_counter()
        if not os.path.isdir(folder):
            # PyTorch would say so on the program's standard error.
            raise OSError("the folder for it, %s, is gone" % folder)
        recorded[0].export_chrome_trace(path + ".part")
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
        release(recorded.pop())
        link = greet(address)
        if not link.alive:
            remove(path)
        link.send(message)
        link.finish(2.0)
    except Exception:
        pass
