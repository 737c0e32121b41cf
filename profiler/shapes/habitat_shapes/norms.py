"""RMS norms as the single call that a GPU gets from PyTorch 2.9 on; a CPU gets several calls."""

import torch

aten = torch.ops.aten


class RmsNorm(torch.autograd.Function):
    """The call and its backward, which keep their names if nothing above autograd decomposes them."""

    @staticmethod
    def forward(ctx, x, shape, weight, eps):
        with torch._C._AutoDispatchBelowAutograd():
            out, rstd = aten._fused_rms_norm(x, shape, weight, eps)
        ctx.save_for_backward(x, rstd, weight)
        ctx.shape = shape
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, rstd, weight = ctx.saved_tensors
        wanted = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
        with torch._C._AutoDispatchBelowAutograd():
            of_x, of_weight = aten._fused_rms_norm_backward(gradient, x, ctx.shape, rstd, weight, wanted)
        return of_x, None, of_weight, None


def layer(input, normalized_shape, weight=None, eps=None):
    """A replacement of torch.rms_norm; None if a GPU would not make the call either: in older versions, for a
    weight of another type, complex numbers, and channels-last order (`rms_norm_symint` of layer_norm.cpp); and
    within `torch.func`, whose transforms do not support such functions."""
    x = input
    if not hasattr(aten, "_fused_rms_norm_backward") or x.is_complex() or torch._C._functorch.peek_interpreter_stack():
        return None
    if torch.is_autocast_cpu_enabled():
        x, weight = (value if value is None else value.float() for value in (x, weight))
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.dim())
    if last is not None and x.is_contiguous(memory_format=last) and not x.is_contiguous():
        return None
    if weight is not None and weight.dtype != x.dtype:
        return None
    return RmsNorm.apply(x, list(normalized_shape), weight, eps)


def forward(x, shape, weight, eps):
    rows = list(x.shape[: x.dim() - len(shape)]) + [1] * len(shape)
    kept = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
    return torch.empty_like(x, memory_format=torch.contiguous_format), x.new_empty(rows, dtype=kept)


def backward(gradient, x, shape, rstd, weight, wanted):
    of = lambda like, is_wanted: torch.empty_like(like) if is_wanted else None
    return of(x, wanted[0]), of(weight, wanted[1])


CALLS = {"aten._fused_rms_norm.default": forward, "aten._fused_rms_norm_backward.default": backward}
