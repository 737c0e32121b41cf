"""The optimizers of the process, and their parameters."""

import threading
import weakref

# Most optimizers whose parameters are counted.
MOST = 256
# Depth to which containers of parameters are searched.
DEEP = 4


def trained(optimizer):
    """The tensors that an optimizer trains. An optimizer that is not PyTorch's may have them anywhere: in its
    groups, in lists, or in a module."""
    groups = getattr(optimizer, "param_groups", None)
    try:
        parameters = [parameter for group in groups for parameter in group["params"]]
    except (TypeError, KeyError):
        parameters = []  # No groups, or groups of another form.
    if not parameters:
        found = {}
        gather(groups, found, 0)
        if not found:
            gather(getattr(optimizer, "__dict__", {}), found, 0)
        parameters = list(found.values())
    return parameters


def tensor_of(value):
    """The tensor itself, or the one in a variable of Keras; else None."""
    import torch

    if str(type(value).__module__).startswith("keras."):
        value = getattr(value, "_value", None)
    return value if isinstance(value, torch.Tensor) else None


def gather(value, found, depth):
    """Collects the leaves of autograd's graphs in it, by identity."""
    import torch

    tensor = tensor_of(value)
    if tensor is not None:
        if tensor.requires_grad and tensor.is_leaf:
            found[id(tensor)] = tensor
    elif isinstance(value, torch.nn.Module):
        gather(list(value.parameters()), found, depth)
    elif depth < DEEP and isinstance(value, (dict, list, tuple, set)):
        for one in list(value.values() if isinstance(value, dict) else value):
            gather(one, found, depth + 1)


class Optimizers:
    """A few optimizers, by identity, held weakly."""

    def __init__(self):
        self.counted = {}
        self.alive = {}
        # The threads that stepped them: another thread may train something else.
        self.threads = {}

    def note(self, optimizer):
        """Remembers the parameters of an optimizer, for a few optimizers at most."""
        self.forget()
        if not self.knows(optimizer) and not self.is_full():
            key = id(optimizer)
            self.alive[key] = weakref.ref(optimizer)
            self.threads[key] = threading.get_ident()
            self.counted[key] = [
                (id(parameter), parameter.numel()) for parameter in trained(optimizer) if parameter.requires_grad
            ]

    def knows(self, optimizer):
        there = self.alive.get(id(optimizer))
        return there is not None and there() is optimizer

    def is_full(self):
        return len(self.counted) >= MOST

    def forget(self):
        """Forgets deleted optimizers."""
        for key in [key for key, there in self.alive.items() if there() is None]:
            del self.alive[key], self.counted[key], self.threads[key]

    def of(self, thread):
        """Keys of the optimizers of a thread."""
        return [key for key, one in self.threads.items() if one == thread]

    def those_there(self, thread):
        return [made for made in (self.alive[key]() for key in self.of(thread)) if made is not None]

    def parameters(self, thread):
        """Elements of all parameters; a parameter of two optimizers counts once."""
        return sum({key: numel for one in self.of(thread) for key, numel in self.counted[one]}.values())

    def tensors(self, thread):
        """Number of tensors that they train."""
        return sum(len(self.counted[key]) for key in self.of(thread))
