"""The time that the training waits for its data: in `__next__` of a DataLoader's iterator, and until it
has one, as when an epoch begins and workers start. And the batches that it is given in one step."""

import functools
import sys
import threading
import time
from collections.abc import Mapping

from .link import greet
from .pytorch import set_eval_frame, skip
from .times import BATCHES, MARK, WAITED

LOADER = "torch.utils.data.dataloader"
# Batches of a step that are reported, and how deep containers of tensors are looked into.
MOST, DEEP = 16, 3


class Data:
    """Sums that time up, of the thread that trains. What it measures is the program's own call:
    nothing of ours waits there, and what the call raises goes on to the program."""

    def __init__(self, times):
        self.sums = times.sums
        # The thread that trains, once it is known.
        self.thread = None
        # Workers of the loader that was asked last.
        self.workers = None
        # The batches since it was asked to note them, else None.
        self.batches = None
        # Whether it is in place, or cannot be.
        self.is_set = False

    def start(self):
        """A fresh state, as in a forked child; the loader's classes are as they were left."""
        self.thread = self.workers = self.batches = None

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
                    setattr(kind, name, self.timed(vars(kind)[name], name == "_next_data"))

    def note(self, loading, batch):
        """Notes a batch that the training is given. A fault costs that figure and no more."""
        callback = set_eval_frame(None)
        try:
            # Every epoch has an iterator of its own, and the same sampler.
            sampler = loading._index_sampler
            size = getattr(sampler, "batch_size", None) if loading._auto_collation else None
            size = size if type(size) is int else None
            self.batches.append({"loader": id(sampler), "size": size, "rows": rows_of(batch)})
        except Exception:
            self.batches = None
        finally:
            set_eval_frame(callback)

    def noted(self):
        """The batches since they are noted, as they are sent; notes no more."""
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
            outer, self.batches = self.batches, None  # Those of a loader that the data set asks do not count.
            batch = None
            try:
                batch = inner(loading, *args, **kwargs)
                return batch
            finally:
                self.batches = outer
                if gives_batch and batch is not None and outer is not None and len(outer) < MOST:
                    self.note(loading, batch)
                now = sums[MARK] = clock()
                # What is asked meanwhile, as a loader by the data set of this one, is counted once.
                sums[WAITED] = before + now - began
                sums[BATCHES] += gives_batch and batch is not None
                self.workers = getattr(loading, "_num_workers", self.workers)

        waiting._torchdynamo_disable = True
        skip(waiting.__code__)
        return waiting


def rows_of(batch):
    """The first extent that all tensors of a batch have; None where there is none, or where they may
    be one a sample."""
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
    """In a child that was forked, which may be a worker of a DataLoader: times the making of its batches,
    which tells how often it can give one. Reports the mean after the second batch, the fourth and so on;
    the first one is left out."""
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
    """A fault costs that figure and no more."""
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
