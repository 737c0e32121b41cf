"""The CTC loss by its shapes: PyTorch reads the lengths of inputs and targets outside of its dispatcher."""

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from . import values

aten = torch.ops.aten
# `at::Reduction` for the numbers that torch.nn.functional passes on.
MEAN, SUM = 1, 2


def numbers(lengths, count, most):
    """Lengths as numbers; the maximum if they are unknown."""
    if not isinstance(lengths, torch.Tensor):
        return [int(length) for length in lengths]
    known = values.of(lengths)
    if known is not None:
        return [int(length) for length in known.reshape(-1)]
    if most is None:
        raise DynamicOutputShapeException(aten._ctc_loss.Tensor)
    return [most] * count


def ctc(log_probs, targets, input_lengths, target_lengths, blank=0, reduction=MEAN, zero_infinity=False):
    """A replacement of torch.ctc_loss: the loss of every sequence by PyTorch's own kernel (`ctc_loss` of
    LossCTC.cpp; cuDNN's takes targets only on the CPU), then their mean or sum. Autocast computes it in 32
    bits."""
    if torch.is_autocast_cpu_enabled():
        log_probs = log_probs.float()
    batch = log_probs.shape[1] if log_probs.dim() == 3 else 1
    inputs = numbers(input_lengths, batch, int(log_probs.shape[0]))
    places = numbers(target_lengths, batch, int(targets.shape[1]) if targets.dim() == 2 else None)
    loss = aten._ctc_loss(log_probs, targets, inputs, places, blank, zero_infinity)[0]
    if zero_infinity:
        loss = torch.where(loss == float("inf"), torch.zeros((), dtype=loss.dtype), loss)
    if reduction == MEAN:
        return (loss / torch.tensor(places, dtype=loss.dtype).clamp_min(1)).mean()
    return loss.sum() if reduction == SUM else loss


def forward(log_probs, targets, input_lengths, target_lengths, blank=0, zero_infinity=False):
    """`ctc_loss_gpu` of LossCTC.cu: a loss for each sequence, and the forward variables at each position."""
    steps, *batch = log_probs.shape[:-1]
    places = 2 * max(target_lengths, default=0) + 1
    return log_probs.new_empty(tuple(batch)), log_probs.new_empty((batch[0] if batch else 1, steps, places))


def backward(gradient, log_probs, *rest):
    return torch.empty_like(log_probs)


CALLS = {"aten._ctc_loss.default": forward, "aten._ctc_loss_backward.default": backward}
