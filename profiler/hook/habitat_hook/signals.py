"""The program's signals: what their handlers raise is the program's, and how its main thread
is asked to do something."""

import _thread
import functools
import os
import signal
import sys
import threading


def is_programs(problem):
    """Whether it came from a handler of the program's signals. Python runs them between any
    two lines of the main thread, ours too, and what they raise is for the program."""
    if not isinstance(problem, Exception):
        return True  # KeyboardInterrupt, SystemExit: we raise none.
    codes = {code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    where = problem.__traceback__
    while where is not None:
        if where.tb_frame.f_code in codes:
            return True
        where = where.tb_next
    return False


def code(handler):
    """The code that runs when it is called; None of what is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    found = getattr(handler, "__code__", None)
    return found or getattr(getattr(type(handler), "__call__", None), "__code__", None)


def completely(call):
    """Calls it, and again where it was broken off, by a handler of a signal above all. What
    was raised first goes on then."""
    raised = []
    for _ in range(5):
        try:
            call()
            break
        except BaseException as problem:
            raised.append(problem)
    try:
        if raised:
            raise raised[0]
    finally:
        del raised  # They hold each other.


class Request:
    """Has the main thread call `call` soon, wherever in the program it is: as the handler of a
    signal that nobody uses and that is never sent. None where there is no such signal."""

    def __init__(self, call):
        self.call = call
        self.number = next(unused(), None)
        if self.number is not None:
            self.handler = self.handle
            signal.signal(self.number, self.handler)

    def handle(self, number, frame):
        self.call()

    def make(self):
        """From any thread."""
        if self.number is None:
            return
        if sys.version_info >= (3, 10):
            _thread.interrupt_main(self.number)
        else:
            signal.pthread_kill(threading.main_thread().ident, self.number)

    def end(self):
        """In the main thread."""
        if self.number is not None and signal.getsignal(self.number) is self.handler:
            signal.signal(self.number, signal.SIG_DFL)
        self.number = None


def unused():
    """Signals that have no handler, neither in Python nor in C; from the last on, where
    those are that mean nothing by themselves."""
    caught = 0
    try:
        with open("/proc/self/status") as file:
            caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt"))
    except (OSError, StopIteration):
        pass  # No Linux.
    for number in sorted(signal.valid_signals() - {signal.SIGUSR1, signal.SIGUSR2}, reverse=True):
        if signal.getsignal(number) == signal.SIG_DFL and not caught >> (number - 1) & 1:
            yield number


def in_main():
    """Whether this is the main thread, in which Python calls handlers of signals. For
    `threading` it is the one that imported it first."""
    if threading.current_thread() is not threading.main_thread():
        return False
    return sys.platform != "linux" or threading.get_native_id() == os.getpid()
