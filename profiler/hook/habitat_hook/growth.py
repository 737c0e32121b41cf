"""Detects a validation inside a window: its events, which no estimate counted, fill the memory.

Training creates autograd nodes, which the window counts. A validation creates none, and while it runs the floor
of the process's memory rises: a profiler never frees its recording. Memory that the training keeps
(activations, caches, the optimizer's state) does not count.
"""

import collections
import resource
import sys

from .extent import nodes

# Bytes by which the floor may rise: 170,000 events, which take seven times as much once the profiler has
# stopped.
ALLOWED = 80_000_000
# Multiple of the program's own growth per step that is allowed.
TIMES = 2
# Looks at the beginning and at the end over which the floor is the minimum: half a second each.
LOOKS = 5


class Growth:
    """Looks at the memory of the process several times a second while a window is open."""

    def __init__(self, steps, each, sees_nodes):
        """The window has `steps` steps; the step before it took `each` bytes more. `sees_nodes` is false if the
        training runs in another thread: then all growth counts."""
        self.allowed = ALLOWED + TIMES * steps * max(each, 0)
        self.sees_nodes = sees_nodes
        self.begin()

    def begin(self):
        """Begins a stretch without new autograd nodes."""
        self.nodes = nodes()
        self.count = self.without_gradients = 0
        self.first, self.last = [], collections.deque(maxlen=LOOKS)

    def excess(self):
        """Bytes that a validation seems to have taken; None if there are none or few."""
        import torch

        if self.sees_nodes and nodes() != self.nodes:
            self.begin()
            return None
        now = resident_bytes()
        self.count += 1
        self.without_gradients += not torch.is_grad_enabled()
        if len(self.first) < LOOKS:
            self.first.append(now)
        self.last.append(now)
        if self.count < 2 * LOOKS or self.sees_nodes and 2 * self.without_gradients < self.count:
            return None
        grown = min(self.last) - min(self.first)
        return grown if grown > self.allowed else None


def resident_bytes():
    """Resident bytes of the process; the peak on systems without /proc."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
