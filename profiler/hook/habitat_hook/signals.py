"""The program's signals: delays their handlers while the hook runs, and makes the main thread run a function.
"""

import _signal
import _thread
import ctypes
import os
import signal
import sys
import threading
import time


class Request:
    """Makes the main thread call `call` soon, wherever it is in the program: as the handler of an unused signal
    that is never sent. None if there is no such signal."""

    def __init__(self, call):
        self.call = call
        self.number = next(unused(), None)
        if self.number is not None:
            self.handler = self.handle
            signal.signal(self.number, self.handler)

    def handle(self, number, frame):
        self.call()

    def make(self):
        """Requests the call, from any thread."""
        if self.number is None:
            return
        if sys.version_info >= (3, 10):
            _thread.interrupt_main(self.number)
        else:
            signal.pthread_kill(threading.main_thread().ident, self.number)

    def end(self):
        """Removes the handler, in the main thread."""
        if self.number is not None and signal.getsignal(self.number) is self.handler:
            signal.signal(self.number, signal.SIG_DFL)
        self.number = None


def unused():
    """Signals that do nothing by default and have no handler, neither in Python nor in C."""
    caught = 0
    try:
        with open("/proc/self/status") as file:
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    except (OSError, StopIteration):
        pass  # Not Linux.
    last = getattr(signal, "SIGRTMAX", 0)
    for number in range(last, getattr(signal, "SIGRTMIN", last + 1) - 1, -1):
        if signal.getsignal(number) == signal.SIG_DFL and not caught >> (number - 1) & 1:
            yield number


def in_main():
    """Whether this is the main thread, in which Python calls signal handlers. `threading` assumes it is the
    thread that imported it first."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return sys.platform != "linux" or threading.get_native_id() == os.getpid()


class Held:
    """Delays the handlers of the program's signals until our work is done.

    Python may run a handler between any two lines of the main thread, including ours and those of PyTorch's
    profiler. An exception of a handler there would be lost in an `except`, or leave the profiler half started.
    The handlers are called as we leave; if one of them raises, the remaining signals are sent again, so that
    Python calls theirs.
    """

    # The active ones, innermost last: a requested call may interrupt another.
    entered = []

    def __init__(self):
        self.left, self.kept, self.came = False, {}, []

    def __enter__(self):
        if not in_main():
            return self
        Held.entered.append(self)
        try:
            for number in range(1, signal.NSIG):
                handler = _signal.getsignal(number)
                if not callable(handler) or isinstance(getattr(handler, "__self__", None), Request):
                    continue
                was = action(number)
                self.kept[number] = handler, was
                _signal.signal(number, self.wait)
                if action(number).raw[:POINTER] != was.raw[:POINTER]:
                    # A handler in C comes before Python's: leave it.
                    self.set_again(number)
        except BaseException as problem:
            self.leave([problem])
        return self

    def wait(self, number, frame):
        if number not in self.came:
            self.came.append(number)

    def set_again(self, number):
        """Restores the handler, unless the program has set another one meanwhile."""
        handler, was = self.kept[number]
        if _signal.getsignal(number) == self.wait:
            _signal.signal(number, handler)
        if _signal.getsignal(number) is handler:
            # Restore the flags, which Python would set differently (siginterrupt).
            action(number, was)

    def let_go(self):
        """Restores all handlers; returns the exceptions that they raised meanwhile."""
        raised = []
        for _ in range(100):
            try:
                for number in self.kept:
                    self.set_again(number)
                break
            except BaseException as problem:
                raised.append(problem)
        if self in Held.entered:
            Held.entered.remove(self)
        return raised

    def leave(self, raised):
        """Calls the delayed handlers, in the frame of the program."""
        raised += self.let_go()
        frame = sys._getframe()
        while frame.f_back is not None and is_ours(frame):
            frame = frame.f_back
        for number in self.came:
            if raised:
                threading.Thread(target=self.send_again, args=(number,), daemon=True).start()
                continue
            try:
                self.kept[number][0](number, frame)
            except BaseException as problem:
                raised.append(problem)
        try:
            self.left = True
            if raised:
                raise raised[0]
        finally:
            del raised, frame  # They reference each other.

    def send_again(self, number):
        while not self.left:
            time.sleep(0.001)
        handler = _signal.getsignal(number)
        # asyncio counts the bytes that Python wrote for it when the signal came.
        if callable(handler) and getattr(handler, "__module__", None) != "asyncio.unix_events":
            signal.pthread_kill(threading.main_thread().ident, number)

    def __exit__(self, *_):
        self.leave([])

    @classmethod
    def forked(cls):
        """Restores the handlers in a child that another thread forked meanwhile."""
        for one in reversed(cls.entered):
            one.let_go()


libc = ctypes.PyDLL(None)
libc.sigaction.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
POINTER = ctypes.sizeof(ctypes.c_void_p)


def action(number, new=None):
    """Returns the system's record of a signal's action, and sets another if one is given."""
    was = ctypes.create_string_buffer(512)  # Fits a sigaction of any system; the handler comes first.
    libc.sigaction(number, new, was)
    return was


# The name that this package goes by.
PACKAGE = __name__.partition(".")[0]


def is_ours(frame):
    return str(frame.f_globals.get("__name__")).partition(".")[0] == PACKAGE
