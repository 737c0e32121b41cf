"""Divides the time of steps by use: sums that grow as time is spent, read at the end of each step.

The sums are a list, which the program's thread reads and writes without a call. All are seconds of the clock,
except the number of batches.
"""

import collections
import math
import operator
import threading
import time

from .growth import resident_bytes
from .link import micros
from .memory import peak_memory

# END: end of the last step. WAITED: waits for data. IDLE: waits for other ranks in backward passes. FORWARD:
# from the last mark (the end of a step, pass or save, or the arrival of a batch) to each backward pass.
# BACKWARD: in backward passes. PASSED: end of the last pass. BATCHES: batches that arrived. SAVED: in
# torch.save. MARK: the last mark.
END, WAITED, IDLE, FORWARD, BACKWARD, PASSED, BATCHES, SAVED, MARK = range(9)
WIDTH = 9

# Most steps of a report whose parts are sent; of very short steps a sample.
MOST_PARTS = 200
# Seconds between reports of memory.
MEMORY_EVERY = 10.0
# Value of an unknown part of a step.
UNKNOWN = -1e-6


class Times:
    """Times of consecutive steps, until they are reported."""

    def __init__(self):
        self.sums = [0.0] * WIDTH
        self.begin()

    def begin(self):
        """Resets the state; the list object stays."""
        self.sums[:] = [0.0] * WIDTH
        self.begins()
        # The sums from which the next step is timed; None if it is not timed.
        self.before = None
        self.memory_at = 0.0
        # Time before forward passes that the times from the last mark include, and the forward time beside it,
        # both from the watched step (`Inputs.passes`); None until then, if a step will be watched.
        self.passes = 0.0, math.inf

    def begins(self):
        """Sums of the step before the first row; the sums at the end of each step, in a flat list; number of
        the first step."""
        self.origin, self.rows, self.first = None, [], 0

    def mark(self):
        """Times the next step from now on; returns the time."""
        now = self.sums[END] = self.sums[MARK] = time.perf_counter()
        self.before = self.sums[:]
        return now

    def add(self, rows, first):
        """Adds rows of steps, from step number `first`; returns the time of the longest."""
        if not self.rows:
            self.origin, self.first = self.before, first
        self.rows += rows
        ends = rows[END::WIDTH]
        longest = max(map(operator.sub, ends, [self.before[END], *ends]))
        self.before = rows[-WIDTH:]
        return longest

    def unreported(self):
        """Number of unreported steps, and their time."""
        return len(self.rows) // WIDTH, self.rows[END - WIDTH] - self.origin[END] if self.rows else 0.0

    def report(self, now, workers, waits_for_ranks):
        """The message about the steps since the last report, as JSON; None without steps."""
        rows, origin, first = self.rows, self.origin, self.first
        if not rows:
            return None
        self.begins()
        spent = lambda what: list(map(operator.sub, rows[what::WIDTH], [origin[what], *rows[what::WIDTH]]))
        grew = lambda what: rows[what - WIDTH] != origin[what]
        text = '{"type":"steps","first":%d,"times_us":%s' % (first, micros(spent(END)))
        if self.sums[WAITED]:
            text += ',"waits_us":%s' % micros(spent(WAITED))
            if isinstance(workers, int):
                text += ',"workers":%d' % workers
        if waits_for_ranks:
            text += ',"idle_us":%s' % micros(spent(IDLE))
        if grew(BACKWARD) and self.passes is not None:
            every = -(-len(rows) // WIDTH // MOST_PARTS)
            # At least the time of the watched step: other steps may have no such pause.
            (ahead, seen), whole = self.passes, spent(FORWARD)[::every]
            forward, backward = [min(one, max(one - ahead, seen)) for one in whole], spent(BACKWARD)[::every]
            apart = WIDTH * every
            ended = zip(rows[END::apart], rows[PASSED::apart], [origin[END], *rows[END::WIDTH]][::every])
            update = [end - passed if passed > start else UNKNOWN for end, passed, start in ended]
            known = [one >= 0 for one in update]
            masked = lambda part: [one if is_known else UNKNOWN for one, is_known in zip(part, known)]
            text += ',"every":%d,"forward_us":%s,"backward_us":%s,"optimizer_us":%s' % (
                every,
                micros(masked(forward)),
                micros(masked(backward)),
                micros(update),
            )
        if self.sums[BATCHES]:
            batches = spent(BATCHES)
            usual = collections.Counter(batches).most_common(1)[0][0]
            others = ["[%d,%d]" % (step, count) for step, count in enumerate(batches, first) if count != usual]
            text += ',"batches":%d,"other_batches":[%s]' % (usual, ",".join(others))
        if grew(SAVED):
            saves = ["[%d,%.1f]" % (step, saved * 1e6) for step, saved in enumerate(spent(SAVED), first) if saved]
            text += ',"saved_us":[%s]' % ",".join(saves)
        if now - self.memory_at >= MEMORY_EVERY:
            self.memory_at = now
            text += ',"memory":[%d,%d]' % (resident_bytes(), peak_memory() or 0)
        return text + "}"

    def after(self, step):
        """The message about a validation or a save after step number `step`; None without one."""
        sums, last = self.sums, self.before
        if last is None or sums[BATCHES] == last[BATCHES] and sums[SAVED] == last[SAVED]:
            return None
        micros_of = lambda seconds: round(seconds * 1e6, 1)
        return {
            "type": "after",
            "step": step,
            "time_us": micros_of(sums[MARK] - last[END]),
            "other_batches": [[step, int(sums[BATCHES] - last[BATCHES])]],
            "saved_us": [[step, micros_of(sums[SAVED] - last[SAVED])]],
        }


def time_saves(times, trains):
    """Times torch.save in the thread that trains (`trains` checks the thread). Wraps an inner function of
    PyTorch: the public one may be pickled, and stays as it is."""
    import torch.serialization as serialization

    inner = serialization._save
    if getattr(inner, "_habitat_tui", False):
        return
    clock, sums = time.perf_counter, times.sums

    def _save(*args, **kwargs):
        began = clock()
        try:
            return inner(*args, **kwargs)
        finally:
            if trains(threading.get_ident()):
                now = sums[MARK] = clock()
                sums[SAVED] += now - began

    _save._habitat_tui = True
    _save.__wrapped__ = inner
    serialization._save = _save
