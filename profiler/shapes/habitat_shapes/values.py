"""Values of small tensors.

A fake tensor has a shape and no values, but some programs read values back: models to build
themselves (rates of layers from `linspace(...).item()`, widths from `unique`), augmentations to
draw their strength (`torch.empty(1).uniform_(a, b)`), and to see whether a batch is padded (masks and
positions of tokens, which may be larger). What is made of small tensors with known values is computed
for real beside the fake call, and kept on the fake tensor.
"""

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten, tree_map

# Elements of the largest tensor whose values are kept, and of the largest of whole numbers and truth values.
MOST, MOST_WHOLE = 1 << 12, 1 << 22
# Where a fake tensor keeps its values.
KEPT = "_habitat_values"
# Storages of values that something not known was written to, by their addresses: every view of one is lost. They are
# held, so that no other takes the address.
LOST = {}
# What makes tensors without a value.
UNSET = ("empty", "new_empty", "resize")
# What writes every value of a tensor, whatever it held.
FILLS = (
    "bernoulli_", "cauchy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
    "zero_",
)


def most(tensor):
    return MOST if tensor.is_floating_point() or tensor.is_complex() else MOST_WHOLE


def of(tensor):
    """The real tensor of the same values; None where they are not known."""
    if not isinstance(tensor, FakeTensor):
        return tensor if isinstance(tensor, torch.Tensor) and tensor.numel() <= most(tensor) else None
    kept = getattr(tensor, KEPT, None)
    if kept is None or kept.untyped_storage()._cdata in LOST:
        return None
    # What was resized or filled behind our back is another tensor.
    return kept if kept.shape == tensor.shape else None


def computed(func, args, kwargs):
    """The call on real tensors; None where a value is not known, a tensor is large, or the CPU has no
    kernel for it. Operators of others are never run: what theirs does is not ours to start."""
    if func.namespace != "aten" or func.__name__.startswith(UNSET):
        return None
    is_filled = func.__name__.startswith(FILLS) and isinstance(args[0], FakeTensor) and of(args[0]) is None
    if is_filled and args[0].numel() <= most(args[0]):
        with no_dispatch():
            args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    if any(of(value) is None for value in given):
        return None
    real = lambda value: of(value) if isinstance(value, torch.Tensor) else value
    args, kwargs = tree_map(real, args), tree_map(real, kwargs)
    try:
        with no_dispatch():
            return func(*args, **kwargs)
    except (IndexError, NotImplementedError, RuntimeError):
        return None


def is_small(out):
    tensors = [value for value in tree_flatten(out)[0] if isinstance(value, torch.Tensor)]
    return 0 < len(tensors) and sum(value.numel() / most(value) for value in tensors) <= 1


def keep(out, real):
    """Keeps the values of a call's results on them."""
    for fake, value in zip(tree_flatten(out)[0], tree_flatten(real)[0]):
        if isinstance(fake, FakeTensor) and isinstance(value, torch.Tensor):
            setattr(fake, KEPT, value)


def forget(func, args, kwargs):
    """Forgets what a call writes to, where what it writes is not known."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written = args[place] if place < len(args) else kwargs.get(argument.name)
            for value in tree_flatten(written)[0]:
                if isinstance(value, FakeTensor):
                    kept = getattr(value, KEPT, None)
                    if kept is not None:
                        LOST[kept.untyped_storage()._cdata] = kept.untyped_storage()
                    setattr(value, KEPT, None)
