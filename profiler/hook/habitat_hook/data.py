"""The time that the training waits for its data: in `__next__` of a DataLoader's iterator, and until it
has one, as when an epoch begins and workers start."""

import functools
import sys
import threading
import time

from .pytorch import skip

LOADER = "torch.utils.data.dataloader"


class Data:
    """Sums that time up, of the thread that trains. What it measures is the program's own call:
    nothing of ours waits there, and what the call raises goes on to the program."""

    def __init__(self):
        # Seconds so far: in a list, which a step reads without a call. 0 while no DataLoader was asked.
        self.waited = [0.0]
        # The thread that trains, once it is known.
        self.thread = None
        # Workers of the loader that was asked last.
        self.workers = None
        # Whether it is in place, or cannot be.
        self.is_set = False

    def start(self):
        """A fresh state, as in a forked child; the loader's classes are as they were left."""
        self.waited[0] = 0.0
        self.thread = self.workers = None

    def set(self):
        """Once the program has imported DataLoader. Raises where its classes are not what they were.

        `_next_data` is all that `__next__` waits in, and what that one warns of names its caller:
        a frame of ours above it would be named in place of the program's line.
        """
        loader = sys.modules.get(LOADER)
        if loader is None or getattr(loader.__spec__, "_initializing", False):
            return
        self.is_set = True  # It is tried once.
        iterators = [loader._BaseDataLoaderIter, *subclasses(loader._BaseDataLoaderIter)]
        # The base class has one that only raises.
        if not any("_next_data" in vars(kind) for kind in iterators[1:]):
            raise AttributeError("no iterator of DataLoader has _next_data")
        # Workers that persist begin an epoch in `_reset`; the others are made in `_get_iterator`.
        for kind in (loader.DataLoader, *iterators):
            for name in ("_get_iterator", "_reset", "_next_data"):
                if name in vars(kind):
                    setattr(kind, name, self.timed(vars(kind)[name]))

    def timed(self, inner):
        clock, ident, waited = time.perf_counter, threading.get_ident, self.waited

        @functools.wraps(inner)
        def waiting(loading, *args, **kwargs):
            if ident() != self.thread:
                return inner(loading, *args, **kwargs)
            began, before = clock(), waited[0]
            try:
                return inner(loading, *args, **kwargs)
            finally:
                # What is asked meanwhile, as a loader by the data set of this one, is counted once.
                waited[0] = before + clock() - began
                self.workers = getattr(loading, "_num_workers", self.workers)

        waiting._torchdynamo_disable = True
        skip(waiting.__code__)
        return waiting


def subclasses(kind):
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)
