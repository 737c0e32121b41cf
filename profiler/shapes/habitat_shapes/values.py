"""Values of small tensors.

A fake tensor has a shape and no values, but some programs read values back: to build a model (rates of layers
from `linspace(...).item()`, widths from `unique`), to draw the strength of an augmentation
(`torch.empty(1).uniform_(a, b)`), or to check whether a batch is padded (masks and positions of tokens, which
may be larger). Results of small tensors with known values are computed for real beside the fake call, and kept
on the fake tensor. The choices of a top-k or an argmax, as the experts of a token, are unknown: they are spread
evenly, and their results are marked.
"""

import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten, tree_map

# Most elements of a tensor whose values are kept: in general, and for integers and booleans.
MOST, MOST_WHOLE = 1 << 22, 1 << 24
# Attributes of a fake tensor: its values, and whether they come from choices that were spread.
KEPT, SPREAD = "_habitat_values", "_habitat_spread"
# Operators that choose along a dimension: index of the chosen positions among the results, and of the dimension
# among the arguments.
CHOICES = {
    torch.ops.aten.topk.default: (1, 2),
    torch.ops.aten.argmax.default: (None, 1),
    torch.ops.aten.argmin.default: (None, 1),
    torch.ops.aten.max.dim: (1, 1),
    torch.ops.aten.min.dim: (1, 1),
}
# Operators that look for numbers that are not finite, with their result: there are none.
FINITE = {
    torch.ops.aten.isnan.default: False, torch.ops.aten.isinf.default: False, torch.ops.aten.eq.Tensor: True,
    torch.ops.aten.ne.Tensor: False, torch.ops.aten.ne.Scalar: True,
}
# Storages that unknown values were written to, by address, while they exist: all their views lose their values.
LOST = {}
# Prefixes of operators whose results have no values.
UNSET = ("empty", "new_empty", "resize")
# Prefixes of operators that overwrite every value of a tensor.
FILLS = (
    "bernoulli_", "cauchy_", "exponential_", "fill_", "geometric_", "log_normal_", "normal_", "random_", "uniform_",
    "zero_",
)
# Operators that read all elements of a tensor, of any size.
WHOLE = ("all", "any", "sum", "min", "max", "amin", "amax", "equal")
# Operators whose results have one value: the value, or its index among the arguments and its name.
CONSTANTS = {
    "ones": 1, "ones_like": 1, "new_ones": 1, "zeros": 0, "zeros_like": 0, "new_zeros": 0,
    "full": (1, "fill_value"), "full_like": (1, "fill_value"), "new_full": (2, "fill_value"),
}


def most(tensor):
    return MOST if tensor.is_floating_point() or tensor.is_complex() else MOST_WHOLE


def of(tensor):
    """The real tensor with the same values; None if they are unknown."""
    if not isinstance(tensor, FakeTensor):
        return tensor if isinstance(tensor, torch.Tensor) and tensor.numel() <= most(tensor) else None
    kept = getattr(tensor, KEPT, None)
    if kept is None or kept.layout is torch.strided and kept.untyped_storage()._cdata in LOST:
        return None
    # A tensor that was resized or filled without our knowledge is another one.
    return kept if kept.shape == tensor.shape else None


def computed(func, args, kwargs):
    """Runs the call on real tensors; None if a value is unknown, a tensor is large, or the CPU has no kernel
    for it. Never runs operators of other packages, which may do anything."""
    if func.namespace != "aten" or func.__name__.startswith(UNSET):
        return None
    is_filled = func.__name__.startswith(FILLS) and isinstance(args[0], FakeTensor) and of(args[0]) is None
    if is_filled and args[0].numel() <= most(args[0]):
        with no_dispatch():
            args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    known = [of(value) for value in given]
    if any(value is None for value in known) or any(0 in of(value).stride() for value in written(func, args, kwargs)):
        return None
    whole = func.is_view or func.__name__.split(".")[0] in WHOLE
    if not whole and any(value.numel() > most(value) for value in known):
        # It has one value and is too large to compute with.
        return None
    real = lambda value: of(value) if isinstance(value, torch.Tensor) else value
    args, kwargs = tree_map(real, args), tree_map(real, kwargs)
    try:
        with no_dispatch():
            return func(*args, **kwargs)
    except (IndexError, NotImplementedError, RuntimeError):
        return None


def folded(func, args, kwargs, out):
    """The result of a pointwise call on tensors of one value; None for other calls."""
    is_copy = func in (torch.ops.aten._to_copy.default, torch.ops.aten.clone.default)
    if not (is_copy or torch.Tag.pointwise in func.tags) or not isinstance(out, torch.Tensor):
        return None
    given = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    known = [of(value) for value in given]
    if not known or any(value is None or any(value.stride()) or value.numel() == 0 for value in known) or list(written(func, args, kwargs)):
        return None
    one = lambda value: of(value)[(0,) * value.dim()] if isinstance(value, torch.Tensor) else value
    # A single element has no memory order.
    kwargs = {name: value for name, value in kwargs.items() if name != "memory_format"}
    with no_dispatch():
        return func(*tree_map(one, args), **tree_map(one, kwargs)).expand(out.shape)


def is_infinity(value):
    return isinstance(value, float) and value == float("inf")


def constant(func, args, kwargs, out):
    """The real tensor of one value that a call makes, of any size: one element in memory; None for other calls.
    """
    # A comparison of a tensor with itself or with infinity looks for numbers that are not finite. Masks contain
    # infinities; a scalar, or a tensor with gradients, does not.
    if func is torch.ops.aten.isinf.default and args[0].dim() > 0 and not args[0].requires_grad:
        return None
    looks = func in FINITE and (len(args) == 1 or args[1] is args[0] or is_infinity(args[1]))
    value = FINITE[func] if looks else made_of(func, args, kwargs)
    if value is None or out.layout is not torch.strided:
        return None
    with no_dispatch():
        return torch.full((), value, dtype=out.dtype).expand(out.shape)


def made_of(func, args, kwargs):
    """The value of every element of a new tensor; None if they differ."""
    value = CONSTANTS.get(func._schema.name[6:]) if func.namespace == "aten" else None
    if isinstance(value, tuple):
        place, name = value
        value = kwargs.get(name, args[place] if place < len(args) else None)
    return value if isinstance(value, (bool, int, float)) else None


def written(func, args, kwargs):
    """The tensors that a call writes to."""
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            yield from (value for value in tree_flatten(given)[0] if isinstance(value, torch.Tensor))


def is_small(out):
    tensors = [value for value in tree_flatten(out)[0] if isinstance(value, torch.Tensor)]
    return 0 < len(tensors) and sum(value.numel() / most(value) for value in tensors) <= 1


def spread(func, args, kwargs, out):
    """Sets the positions that a call chooses along a dimension on its result: each equally often, in turn."""
    if func not in CHOICES:
        return
    chosen, at = CHOICES[func]
    if args[0].dim() == 0:
        return
    places = out if chosen is None else out[chosen]
    dim = args[at] if at < len(args) else kwargs.get("dim", -1 if chosen else None)
    if dim is None or places.numel() == 0 or not is_small(places):
        return
    size, count = args[0].shape[dim], args[1] if func is torch.ops.aten.topk.default else 1
    rest = [length for place, length in enumerate(args[0].shape) if place != dim % args[0].dim()]
    with no_dispatch():
        real = (torch.arange(places.numel()) % size).view(*rest, count).movedim(-1, dim).reshape(places.shape)
    setattr(places, KEPT, real)
    setattr(places, SPREAD, True)


def are_spread(args, kwargs):
    return any(getattr(value, SPREAD, False) for value in tree_flatten((args, kwargs))[0])


def keep(out, real, given):
    """Keeps the values of a call's results on them; `given` are its arguments."""
    is_spread = are_spread(given, None)
    for fake, value in zip(tree_flatten(out)[0], tree_flatten(real)[0]):
        if isinstance(fake, FakeTensor) and isinstance(value, torch.Tensor):
            setattr(fake, KEPT, value)
            setattr(fake, SPREAD, is_spread)


def by_places(func, args):
    """The arguments of an index by masks of known values, with positions instead of the masks; None for other
    calls."""
    if func is not torch.ops.aten.index.Tensor:
        return None
    places = []
    for index in args[1]:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
            places.append(index)
            continue
        real = of(index)
        if real is None:
            return None
        with no_dispatch():
            places.extend(real.nonzero().unbind(1))
    return (args[0], places)


def forget(func, args, kwargs):
    """Forgets the values of tensors that a call overwrites with unknown values."""
    for value in written(func, args, kwargs):
        lose(value)


def lose(value):
    """Forgets the values of a tensor, and of all that share its memory."""
    kept = getattr(value, KEPT, None)
    if isinstance(value, FakeTensor) and kept is not None:
        if kept.layout is torch.strided:
            storage = kept.untyped_storage()
            LOST[storage._cdata] = weakref.finalize(storage, LOST.pop, storage._cdata, None)
        setattr(value, KEPT, None)


def take_over(tensor, other):
    """Sets a tensor's data to another's."""
    if isinstance(tensor, FakeTensor):
        setattr(tensor, KEPT, of(other))
        setattr(tensor, SPREAD, getattr(other, SPREAD, False))
