"""Times the waits of the training for its data: in `__next__` of a DataLoader's iterator, and for the iterator
itself, as when an epoch starts workers. Notes the batches of one step."""

import functools
import sys
import threading
import time
from collections.abc import Mapping

from .link import greet
from .pytorch import set_eval_frame, skip
from .times import BATCHES, MARK, WAITED

LOADER = "torch.utils.data.dataloader"
# Most batches of a step that are reported, and depth to which containers of tensors are searched.
MOST, DEEP = 16, 3


class Data:
    """Sums of the waits of the thread that trains. It times the program's own call: the hook adds no waits, and
    exceptions of the call reach the program."""

    def __init__(self, times):
        self.sums = times.sums
        # The thread that trains, once known.
        self.thread = None
        # Workers of the loader that last gave a batch.
        self.workers = None
        # Batches since noting began, else None.
        self.batches = None
        # Whether the wrappers are set, or cannot be.
        self.is_set = False

    def start(self):
        """Resets the state, as in a forked child; wrapped classes stay wrapped."""
        self.thread = self.workers = self.batches = None

    def set(self):
        """Wraps DataLoader once the program has imported it. Raises if its classes have another form.

        All waits of `__next__` are in `_next_data`. Warnings of `__next__` name its caller, so a frame of ours
        above it would be named instead of the program's line.
        """
        loader = sys.modules.get(LOADER)
        if loader is None or getattr(loader.__spec__, "_initializing", False):
            return
        self.is_set = True  # Try only once.
        iterators = [loader._BaseDataLoaderIter, *subclasses(loader._BaseDataLoaderIter)]
        # The base class has a `_next_data` that only raises.
        if not any("_next_data" in vars(kind) for kind in iterators[1:]):
            raise AttributeError("no iterator of DataLoader has _next_data")
        # Persistent workers begin an epoch in `_reset`; others are created in `_get_iterator`.
        for kind in (loader.DataLoader, *iterators):
            for name in ("_get_iterator", "_reset", "_next_data"):
                if name in vars(kind):
                    setattr(kind, name, self.timed(vars(kind)[name], name == "_next_data"))

    def note(self, loading, batch):
        """Notes a batch of the training. A fault costs only that figure."""
        callback = set_eval_frame(None)
        try:
            # Every epoch has its own iterator, but the sampler is the same.
            sampler = loading._index_sampler
            size = getattr(sampler, "batch_size", None) if loading._auto_collation else None
            size = size if type(size) is int else None
            self.batches.append({"loader": id(sampler), "size": size, "rows": rows_of(batch)})
        except Exception:
            self.batches = None
        finally:
            set_eval_frame(callback)

    def noted(self):
        """Returns the noted batches in the form of the message, and stops noting."""
        batches, self.batches = self.batches or [], None
        loaders = list(dict.fromkeys(one["loader"] for one in batches))
        return [dict(one, loader=loaders.index(one["loader"])) for one in batches]

    def timed(self, inner, gives_batch):
        clock, ident, sums = time.perf_counter, threading.get_ident, self.sums

        @functools.wraps(inner)
        def waiting(loading, *args, **kwargs):
            if ident() != self.thread:
                return inner(loading, *args, **kwargs)
            began, before = clock(), sums[WAITED]
            outer, self.batches = self.batches, None  # Batches that a data set requests from its own loader do not count.
            batch = None
            try:
                batch = inner(loading, *args, **kwargs)
                return batch
            finally:
                self.batches = outer
                if gives_batch and batch is not None and outer is not None and len(outer) < MOST:
                    self.note(loading, batch)
                now = sums[MARK] = clock()
                # Count nested requests once, as of a loader inside this loader's data set.
                sums[WAITED] = before + now - began
                sums[BATCHES] += gives_batch and batch is not None
                self.workers = getattr(loading, "_num_workers", self.workers)

        waiting._torchdynamo_disable = True
        skip(waiting.__code__)
        return waiting


def rows_of(batch):
    """First extent that all tensors of a batch share; None if there is none, or if there may be one tensor per
    sample."""
    import torch

    leads = set()

    def look(value, depth):
        if isinstance(value, torch.Tensor):
            leads.add(int(value.shape[0]) if value.dim() > 0 else 0)
        elif depth < DEEP and isinstance(value, Mapping):
            for one in value.values():
                look(one, depth + 1)
        elif depth < DEEP and isinstance(value, (list, tuple)):
            ranks = [one.dim() for one in value if isinstance(one, torch.Tensor)]
            if len(ranks) > 1 and len(set(ranks)) == 1:
                leads.add(0)
                return
            for one in value[:MOST]:
                look(one, depth + 1)

    look(batch, 0)
    return leads.pop() or None if len(leads) == 1 else None


def time_fetches(address):
    """In a forked child, which may be a DataLoader worker: times how long it takes to make a batch. Reports the
    mean after the second batch, the fourth and so on, without the first."""
    fetch = sys.modules.get("torch.utils.data._utils.fetch")
    if fetch is None:
        return
    state = {"count": 0, "seconds": 0.0}
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        kind = getattr(fetch, name, None)
        if hasattr(kind, "fetch"):
            inner = getattr(kind.fetch, "__wrapped__", kind.fetch)  # A child of a child has it already.
            kind.fetch = fetching(inner, state, address)


def fetching(inner, state, address):
    clock = time.perf_counter

    @functools.wraps(inner)
    def fetch(fetcher, *args, **kwargs):
        began = clock()
        batch = inner(fetcher, *args, **kwargs)
        if state["count"]:
            state["seconds"] += clock() - began
        state["count"] += 1
        if state["count"] > 1 and state["count"] & (state["count"] - 1) == 0:
            tell_fetches(state, address)
        return batch

    return fetch


def tell_fetches(state, address):
    """Sends the mean. A fault costs only that figure."""
    try:
        from multiprocessing import parent_process

        from torch.utils.data import get_worker_info

        worker, parent = get_worker_info(), parent_process()
        if worker is not None and parent is not None:
            link = greet(address)
            mean = state["seconds"] / (state["count"] - 1) * 1e6
            link.send({"type": "loading", "parent": parent.pid, "batch_us": round(mean, 1)})
            link.close()
    except Exception:
        pass


def subclasses(kind):
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)
