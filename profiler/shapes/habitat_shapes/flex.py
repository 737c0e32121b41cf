"""FlexAttention as the kernel that `torch.compile` generates for a GPU: one call, and one for its backward,
which PyTorch refuses on a CPU. A block mask is computed in whole blocks."""

import math
import sys

import torch
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import _disable_current_modes

from . import values

PLACE = "torch.nn.attention.flex_attention"
# Positions per side at which a mask is sampled.
LOOKED_AT = 512
INSIDE = (
    "FlexAttention is traced as its compiled kernel: arithmetic of score_mod and mask_mod, and gradients of tensors "
    "that they capture, are left out"
)
WHOLE = "the values of a block mask of FlexAttention are unknown: all of its blocks are counted"

library = torch.library.Library("habitat", "DEF")
library.define("flex_attention(Tensor query, Tensor key, Tensor value, float seen) -> (Tensor, Tensor)")
library.define(
    "flex_attention_backward(Tensor query, Tensor key, Tensor value, float seen, Tensor out, Tensor logsumexp, "
    "Tensor gradient) -> (Tensor, Tensor, Tensor)"
)
ops = torch.ops.habitat


def forward(query, key, value, seen):
    out = query.new_empty((*query.shape[:-1], value.shape[-1]))
    return out, query.new_empty(query.shape[:-1], dtype=torch.float32)


def backward(query, key, value, seen, out, logsumexp, gradient):
    return tuple(torch.empty_like(tensor) for tensor in (query, key, value))


CALLS = {"habitat.flex_attention.default": forward, "habitat.flex_attention_backward.default": backward}


class FlexAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, query, key, value, seen):
        out, logsumexp = ops.flex_attention(query, key, value, seen)
        ctx.save_for_backward(query, key, value, out, logsumexp)
        ctx.seen = seen
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(logsumexp)
        return out, logsumexp

    @staticmethod
    def backward(ctx, gradient, _):
        query, key, value, out, logsumexp = ctx.saved_tensors
        return (*ops.flex_attention_backward(query, key, value, ctx.seen, out, logsumexp, gradient), None)


def seen(mask):
    """The share of blocks that a block mask keeps; None if unknown."""
    counts = [getattr(mask, name, None) for name in ("kv_num_blocks", "full_kv_num_blocks")]
    known = [values.of(count) for count in counts if count is not None]
    rows, columns = mask.seq_lengths
    blocks = [math.ceil(size / block) for size, block in zip((rows, columns), mask.BLOCK_SIZE)]
    if known and all(count is not None for count in known):
        with no_dispatch():
            kept = sum(float(count.sum()) for count in known)
            return min(1.0, kept / (known[0].numel() * blocks[1]))
    return looked_at(mask.mask_mod, rows, columns, blocks)


def looked_at(mask_mod, rows, columns, blocks):
    """The share of blocks that a function keeps, sampled at equal distances; None if it needs values that are
    unknown."""
    try:
        with _disable_current_modes():
            # A multiple of the blocks on each side, so that every block has as many samples.
            counts = [count * max(1, LOOKED_AT // count) for count in blocks]
            places = [
                torch.linspace(0, size - 1, count).long() for size, count in zip((rows, columns), counts)
            ]
            zero = torch.zeros((), dtype=torch.long)
            kept = mask_mod(zero, zero, places[0][:, None], places[1][None, :])
            kept = kept.expand(counts).reshape(blocks[0], counts[0] // blocks[0], blocks[1], counts[1] // blocks[1])
            return float(kept.any(3).any(1).float().mean())
    except Exception:
        return None


def attention(step, module):
    """A replacement of `flex_attention` in `module`."""

    def flex_attention(
        query,
        key,
        value,
        score_mod=None,
        block_mask=None,
        scale=None,
        enable_gqa=False,
        return_lse=False,
        kernel_options=None,
        *,
        return_aux=None,
    ):
        step.note(INSIDE)
        part = 1.0
        if block_mask is not None and math.prod(block_mask.seq_lengths) > 1:
            known = seen(block_mask)
            if known is None:
                step.note(WHOLE)
            part = 1.0 if known is None else known
        out, logsumexp = FlexAttention.apply(query, key, value, part)
        if return_aux is not None:
            return out, module.AuxOutput(lse=logsumexp if return_aux.lse else None)
        return (out, logsumexp) if return_lse else out

    return flex_attention


class Finder:
    """Replaces the function when its module is imported: importing it for every trace takes too long."""

    def __init__(self, step):
        self.step, self.replaced = step, []

    def find_spec(self, name, path=None, target=None):
        if name != PLACE:
            return None
        sys.meta_path.remove(self)
        try:
            spec = __import__("importlib.util").util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def run(module):
                load(module)
                self.replace(module)

            spec.loader.exec_module = run
        return spec

    def replace(self, module):
        if hasattr(module, "flex_attention"):
            self.replaced.append((module, module.flex_attention))
            module.flex_attention = attention(self.step, module)

    def __enter__(self):
        if PLACE in sys.modules:
            self.replace(sys.modules[PLACE])
        else:
            sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *error):
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for module, function in self.replaced:
            module.flex_attention = function
