"""cuDNN's recurrent layers by their shapes, which PyTorch does not have for fake tensors.

`layer` replaces torch.lstm and similar functions and makes the single call that a GPU gets; CALLS has the
results of that call and its backward.
"""

import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.utils._mode_utils import no_dispatch

from . import values

# cuDNN's number of each mode, and the gates of a cell.
MODES = {"rnn_relu": (0, 1), "rnn_tanh": (1, 1), "lstm": (2, 4), "gru": (3, 3)}
GATES = dict(MODES.values())


def layer(kind, original):
    """A replacement of torch.`kind`; None if a GPU would not make the call either."""
    mode = MODES[kind][0]

    def run(*args, **kwargs):
        packed = len(args) > 3 and isinstance(args[1], torch.Tensor) and isinstance(args[3], (list, tuple))
        if kwargs or len(args) != 9:
            return None
        if packed:
            x, sizes, state, weights, bias, layers, dropout, train, both = args
            known = values.of(sizes)
            batch_first, lengths = False, [int(x.shape[0])] if known is None else known.tolist()
        else:
            x, state, weights, bias, layers, dropout, train, both, batch_first = args
            sizes, lengths = None, []
        h, c = state if kind == "lstm" else (state, None)
        size = int(h.shape[-1])
        if kind == "lstm" and int(c.shape[-1]) != size:
            # A projection.
            return None
        if torch.is_autocast_cpu_enabled():
            low = torch.get_autocast_cpu_dtype()
            x, h, c = [value if value is None else value.to(low) for value in (x, h, c)]
            weights = [weight.to(low) for weight in weights]
        del sizes
        out = torch.ops.aten._cudnn_rnn(
            x, list(weights), 4 if bias else 2, None, h, c, mode, size, 0, layers, batch_first, dropout, train, both, lengths, None
        )
        return (out[0], out[1], out[2]) if kind == "lstm" else (out[0], out[1])

    return run


def forward(x, weights, stride, buffer, h, c, mode, size, projection, layers, batch_first, dropout, train, both, lengths, state):
    ways = 2 if both else 1
    output = x.new_empty(tuple(x.shape[:-1]) + (size * ways,))
    rows = output.numel() // (size * ways)
    # Gates, cell and result of every position of every layer: an estimate, since only cuDNN knows its reserve.
    kept = rows * size * ways * layers * (GATES[mode] + 2) * x.element_size() if train else 0
    reserve = x.new_empty((kept,), dtype=torch.uint8)
    return (
        output,
        torch.empty_like(h),
        torch.empty_like(c) if c is not None else x.new_empty((0,)),
        reserve,
        x.new_empty((0,)),
    )


def backward(x, weights, stride, buffer, h, c, output, *rest):
    return (
        torch.empty_like(x),
        torch.empty_like(h),
        torch.empty_like(c) if c is not None else None,
        [torch.empty_like(weight) for weight in weights],
    )


def pack(x, lengths, batch_first):
    """The positions of sequences, packed. PyTorch reads the number of sequences at each position outside of its
    dispatcher, so these are real values."""
    known = values.of(lengths)
    if known is None:
        raise DynamicOutputShapeException(torch.ops.aten._pack_padded_sequence.default)
    with no_dispatch():
        _, going_on = torch.ops.aten._pack_padded_sequence(torch.empty(*x.shape[:2], 1), known, batch_first)
        count = int(known.sum())
    return x.new_empty((count, *x.shape[2:])), going_on


def pad(data, going_on, batch_first, value, longest):
    """The sequences padded again, and their lengths; None if these are unknown."""
    known = values.of(going_on)
    if known is None:
        return None
    with no_dispatch():
        counts = known.tolist()
        rows, steps = counts[0], max(longest, len(counts))
        places = torch.cat([step * rows + torch.arange(count) for step, count in enumerate(counts)])
        lengths = (known[:, None] > torch.arange(rows)).sum(0)
    padded = data.new_full((steps * rows, *data.shape[1:]), value).index_copy(0, places, data)
    padded = padded.view(steps, rows, *data.shape[1:])
    return (padded.transpose(0, 1) if batch_first else padded), lengths


CALLS = {
    "aten._cudnn_rnn.default": forward,
    "aten._cudnn_rnn_backward.default": backward,
    "aten._pack_padded_sequence.default": pack,
}
