"""Attention of jagged nested tensors (`layout=torch.jagged`), whose sequences follow one another."""

import torch

from . import values

aten = torch.ops.aten


def is_jagged(tensor):
    return isinstance(tensor, torch.Tensor) and tensor.is_nested and tensor.layout is torch.jagged


def longest(offsets, total):
    """The longest sequence, which PyTorch reads from a GPU; all positions if it is unknown."""
    known = values.of(offsets)
    return int(known.diff().max()) if known is not None and known.numel() > 1 else int(total)


def attention(query, key, value, dropout_p, is_causal, scale):
    """Flash attention in 16 bits, else memory-efficient attention (`jagged_scaled_dot_product_attention` of
    torch/nested/_internal/sdpa.py, on a GPU)."""
    tensors = [tensor.transpose(1, 2) for tensor in (query, key, value)]
    q, k, v = (tensor.values() for tensor in tensors)
    if torch.is_autocast_cpu_enabled():
        q, k, v = (tensor.to(torch.get_autocast_cpu_dtype()) for tensor in (q, k, v))
    offsets = [tensor.offsets() for tensor in tensors[:2]]
    lengths = [longest(ends, total.shape[0]) for ends, total in zip(offsets, (q, k))]
    ends = [given.to(torch.int32) for given in offsets]
    if q.dtype in (torch.float16, torch.bfloat16):
        out = aten._flash_attention_forward(q, k, v, *ends, *lengths, dropout_p, is_causal, False, scale=scale)[0]
    else:
        one = (tensor.unsqueeze(0) for tensor in (q, k, v))
        learns = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (q, k, v))
        causal = int(is_causal)
        out = aten._efficient_attention_forward(*one, None, *ends, *lengths, dropout_p, causal, learns, scale=scale)[0]
        out = out.squeeze(0)
    return torch.nested.nested_tensor_from_jagged(out, offsets[0]).transpose(1, 2)
