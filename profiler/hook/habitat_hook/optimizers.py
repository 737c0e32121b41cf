"""The optimizers of the process, and the parameters they train."""

import weakref

# Optimizers whose parameters are counted at most.
MOST = 16


class Optimizers:
    """A few optimizers, by identity; none is kept alive."""

    def __init__(self):
        self.counted = {}
        self.alive = {}

    def note(self, optimizer):
        """Remembers what an optimizer trains; a few of them at most."""
        self.forget()
        if not self.knows(optimizer) and not self.is_full():
            key = id(optimizer)
            self.alive[key] = weakref.ref(optimizer)
            self.counted[key] = [
                (id(parameter), parameter.numel())
                for group in optimizer.param_groups
                for parameter in group["params"]
                if parameter.requires_grad
            ]

    def knows(self, optimizer):
        there = self.alive.get(id(optimizer))
        return there is not None and there() is optimizer

    def is_full(self):
        return len(self.counted) >= MOST

    def forget(self):
        """Leaves out the optimizers that are gone."""
        for key in [key for key, there in self.alive.items() if there() is None]:
            del self.alive[key], self.counted[key]

    def __len__(self):
        return len(self.counted)

    def those_there(self):
        return [made for made in (there() for there in self.alive.values()) if made is not None]

    def parameters(self):
        """Elements of all parameters, one that two optimizers train once."""
        return sum({key: numel for entry in self.counted.values() for key, numel in entry}.values())

    def tensors(self):
        """How many tensors they train."""
        return sum(map(len, self.counted.values()))
