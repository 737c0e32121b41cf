"""Makes the calls that a GPU would get, on tensors that are on the CPU.

Without a GPU, fake "cuda" tensors can go forward but not backward. So everything runs on the CPU here, and
calls that differ between CPU and GPU are replaced by the GPU's. Each rule names its source in PyTorch.
"""

import contextlib
import functools
import types
import warnings

import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

from . import jagged, losses, norms, recurrent, values
from .compiled import compiling

aten = torch.ops.aten

# Functions that autocast runs in 32 bits on a GPU ("CUDA Ops that can autocast to float32" in torch.amp's
# documentation); on a CPU it leaves some of them in 16.
IN_32_BITS = """
    acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist
    cosine_similarity cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss
    kl_div layer_norm log log10 log_softmax log1p log2 margin_ranking_loss norm pdist
    poisson_nll_loss pow prod reciprocal rsqrt sinh softmax sum renorm tan
    triplet_margin_loss __pow__ __rpow__ __rdiv__ __rtruediv__
""".split()
IN_32_BITS_NN = """
    cross_entropy_loss l1_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss
    nll_loss_nd smooth_l1_loss soft_margin_loss softplus
""".split()


def on_cpu(value):
    """`value` with the CPU instead of any GPU."""
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
        return "cpu"
    return value


def of_numbers(args, kwargs):
    """Arguments of `torch.tensor` with numbers instead of fake tensors in a list: no mode sees how it reads
    these."""
    leaves = tree_flatten(args[0])[0]
    if not any(isinstance(leaf, FakeTensor) for leaf in leaves):
        return args, kwargs
    if kwargs.get("dtype") is None:
        types = (leaf.dtype if isinstance(leaf, torch.Tensor) else torch.tensor(leaf).dtype for leaf in leaves)
        kwargs = dict(kwargs, dtype=functools.reduce(torch.promote_types, types))
    number = lambda leaf: leaf.item() if isinstance(leaf, FakeTensor) else leaf
    return (tree_map(number, args[0]), *args[1:]), kwargs


def in_32_bits(value):
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, (list, tuple)) and any(isinstance(item, torch.Tensor) for item in value):
        return type(value)(in_32_bits(item) for item in value)
    return value


def takes(low):
    return lambda value: value.to(low) if value is not None and value.is_floating_point() else value


def gemm_4bit(
    A, B, shapeB, absmax, blocksize, quant_type, bias=None, absmax_8bit=None, absmax_code=None, absmax_offset=None
):
    """bitsandbytes' product with 4-bit weights, as a GPU computes it for more than a few rows: dequantizes the
    weights, then multiplies (`_dequant_linear_fallback` in bitsandbytes/backends)."""
    of_4_bits = torch.ops.bitsandbytes
    if absmax_8bit is not None:
        absmax = of_4_bits.dequantize_blockwise(absmax_8bit, absmax, absmax_code, 256, torch.float32) + absmax_offset
    weight = of_4_bits.dequantize_4bit(B, absmax, blocksize, quant_type, shapeB, A.dtype)
    rows = A.reshape(-1, A.shape[-1])
    made = torch.mm(rows, weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
    return made.view(*A.shape[:-1], shapeB[0])


# Operators of other packages, replaced by operators of PyTorch.
APART = {"bitsandbytes::gemm_4bit": gemm_4bit}


@functools.lru_cache(maxsize=None)
def fake_kind(kind):
    """A class of fake tensors that is also a subclass of `kind`."""
    return type(kind.__name__, (kind, FakeTensor), {"__module__": kind.__module__})


class Devices(TorchFunctionMode):
    """Replaces every GPU in arguments by the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func in STAYS:
            return args[0]
        if getattr(func, "__name__", None) == "__set__" and func.__self__ is torch.Tensor.data:
            values.take_over(*args)
        if any(on_cpu(value) is not value for value in args):
            args = tuple(on_cpu(value) for value in args)
        if kwargs and any(on_cpu(value) is not value for value in kwargs.values()):
            kwargs = {name: on_cpu(value) for name, value in kwargs.items()}
        if kwargs.get("pin_memory"):
            kwargs = dict(kwargs, pin_memory=False)
        if func in LISTS and args and isinstance(args[0], (list, tuple)):
            args, kwargs = of_numbers(args, kwargs)
        return func(*args, **kwargs)


LISTS = {torch.tensor, torch.as_tensor}
STAYS = {torch.Tensor.cuda, torch.Tensor.pin_memory}


class Calls:
    """Replaces calls of a CPU by those of a GPU. Replaces the functions where they are defined, because a mode
    does not see the calls inside functions of torch.nn.functional."""

    def __init__(self, step):
        self.step = step

    def replacements(self):
        """(module, name, function) of each replacement."""
        fused = F.scaled_dot_product_attention
        for place in (F, torch._C._nn):
            yield place, "scaled_dot_product_attention", self.unless_inside(self.attention, fused)
        for place in (torch._VF, torch):
            yield place, "dropout", self.unless_inside(self.dropout, torch._C._VariableFunctions.dropout)
        if hasattr(torch, "rms_norm"):
            yield torch, "rms_norm", self.unless_inside(norms.layer, torch.rms_norm)
        yield torch, "ctc_loss", self.unless_inside(losses.ctc, torch.ctc_loss)
        for kind in recurrent.MODES:
            original = getattr(torch._C._VariableFunctions, kind)
            for place in (torch._VF, torch):
                yield place, kind, self.unless_inside(recurrent.layer(kind, original), original)
        pad = torch._C._VariableFunctions._pad_packed_sequence
        yield torch._VF, "_pad_packed_sequence", self.unless_inside(recurrent.pad, pad)
        for place, names in ((torch, IN_32_BITS), (torch.Tensor, IN_32_BITS), (torch._C._nn, IN_32_BITS_NN)):
            for name in names:
                if hasattr(place, name):
                    yield place, name, self.wide(getattr(place, name))

    def unless_inside(self, replacement, original):
        """`replacement`, but `original` if it returns None or if PyTorch computes the result of a call."""

        def call(*args, **kwargs):
            out = None if self.step.inside else replacement(*args, **kwargs)
            return original(*args, **kwargs) if out is None else out

        return call

    def wide(self, original):
        def call(*args, **kwargs):
            if torch.is_autocast_cpu_enabled() and not self.step.inside:
                args = tuple(in_32_bits(value) for value in args)
                kwargs = {name: in_32_bits(value) for name, value in kwargs.items()}
            return original(*args, **kwargs)

        return call

    def dropout(self, input, p, train):
        """One call that keeps a mask of one byte per element (`dropout` of Dropout.cpp)."""
        return torch.native_dropout(input, p, True)[0] if train and 0 < p < 1 else None

    def attention(self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        """Flash attention in 16 bits without a mask, else memory-efficient attention, else separate products
        (`_fused_sdp_choice_cuda` of sdp_utils.cpp); cuDNN's if the program allows nothing else."""
        if jagged.is_jagged(query):
            return jagged.attention(query, key, value, dropout_p, is_causal, scale)
        q, k, v = query, key, value
        if torch.is_autocast_cpu_enabled():
            q, k, v = map(takes(torch.get_autocast_cpu_dtype()), (q, k, v))
            attn_mask = attn_mask if attn_mask is None or attn_mask.dtype == torch.bool else attn_mask.to(q.dtype)
        head = q.shape[-1]
        fused = q.dim() == k.dim() == v.dim() == 4 and head == v.shape[-1] and not (attn_mask is not None and is_causal)
        narrow = q.dtype in (torch.float16, torch.bfloat16)
        align = 8 if narrow else 4
        if fused and enable_gqa and q.shape[1] != k.shape[1]:
            if not (narrow and attn_mask is None):
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        if fused and narrow and attn_mask is None and head <= 256 and torch.backends.cuda.flash_sdp_enabled():
            if head % 8:
                scale = scale if scale is not None else head**-0.5
                q, k, v = (F.pad(x, (0, 8 - head % 8)) for x in (q, k, v))
            out = aten._scaled_dot_product_flash_attention(q, k, v, dropout_p, is_causal, False, scale=scale)[0]
            return out[..., :head]
        for_backward = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        if fused and narrow and head % align == 0 and only_cudnn():
            return aten._scaled_dot_product_cudnn_attention(
                q, k, v, attn_mask, for_backward, dropout_p, is_causal, False, scale=scale
            )[0]
        if fused and head % align == 0 and torch.backends.cuda.mem_efficient_sdp_enabled():
            if attn_mask is not None:
                if attn_mask.dtype == torch.bool:
                    attn_mask = torch.zeros_like(attn_mask, dtype=q.dtype).masked_fill_(~attn_mask, float("-inf"))
                attn_mask = attn_mask.expand(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
            return aten._scaled_dot_product_efficient_attention(
                q, k, v, attn_mask, for_backward, dropout_p, is_causal, scale=scale
            )[0]
        self.step.note(
            "attention is computed unfused, product by product: no fused GPU kernel takes its shapes"
            + (", with its dropout kept as a tensor" if dropout_p else "")
        )
        more = {"scale": scale} if scale is not None else {}
        if enable_gqa:
            more["enable_gqa"] = True
        return aten._scaled_dot_product_attention_math(q, k, v, attn_mask, dropout_p, is_causal, **more)[0]


def only_cudnn():
    """Whether the program allows only cuDNN's attention, as `sdpa_kernel` does; the others come before it."""
    of = torch.backends.cuda
    others = of.flash_sdp_enabled() or of.mem_efficient_sdp_enabled() or of.math_sdp_enabled()
    return not others and getattr(of, "cudnn_sdp_enabled", lambda: False)()


def formatted(tensor, form):
    """Formats a number, such as that of an expert in the name of a layer."""
    try:
        return tensor.item().__format__(form) if tensor.dim() == 0 else object.__format__(tensor, form)
    except DataDependentOutputException:
        return str(tensor)


def converted(module, fn, recurse=True):
    """Module.to and similar methods, in place: PyTorch would replace a fake parameter by a new one, and refuses
    if anything refers to it."""
    for child in module.children() if recurse else ():
        converted(child, fn)
    with torch.no_grad():
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if isinstance(parameter, FakeTensor) and type(parameter) is not FakeTensor:
                # Quantized parameters become so on their way to the GPU.
                module._parameters[name] = fn(parameter)
                continue
            parameter.data = fn(parameter.data)
            if parameter.grad is not None:
                parameter.grad.data = fn(parameter.grad.data)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fn(buffer)
    return module


def foreach_on_cpu(*args, **kwargs):
    return True


class NoTensor:
    """A class without instances."""


@contextlib.contextmanager
def patched(step):
    """Patches classes and switches that no mode sees, and restores them."""
    changes = []

    def change(place, name, value):
        if hasattr(place, name):
            changes.append((place, name, getattr(place, name)))
            setattr(place, name, value)

    for place, name, function in list(Calls(step).replacements()):
        change(place, name, function)

    change(torch, "compile", compiling(step, torch.compile))
    make_subclass = torch.Tensor._make_subclass

    def subclass(kind, data, requires_grad=False, **options):
        # A fake tensor keeps its class; other tensor classes, as of quantized parameters, contain one.
        if type(data) is not FakeTensor or kind in (torch.Tensor, torch.nn.Parameter):
            return make_subclass(kind, data, requires_grad, **options)
        made = data.detach()
        made.__class__ = fake_kind(kind)
        return made.requires_grad_(requires_grad)

    change(torch.Tensor, "_make_subclass", staticmethod(subclass))
    # `swap_tensors` refuses a tensor with weak references, which the fake tensor mode has to every tensor.
    change(torch.utils, "weakref", types.SimpleNamespace(getweakrefs=lambda tensor: []))

    autocast = torch.amp.autocast_mode.autocast
    made, entered = autocast.__init__, autocast.__enter__

    def make(self, device_type, dtype=None, enabled=True, cache_enabled=None):
        if device_type == "cuda":
            # GPUs use float16 by default.
            device_type, dtype = "cpu", dtype or torch.float16
        return made(self, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def enter(self):
        if self._enabled and step.stage == "step":
            step.autocast = str(self.fast_dtype)[6:]
        return entered(self)

    change(autocast, "__init__", make)
    change(autocast, "__enter__", enter)

    data_ptr = torch.Tensor.data_ptr

    def address(tensor):
        if step.stage == "step":
            step.note("the step reads addresses of tensors (data_ptr): work of its own kernels there is not traced")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return data_ptr(tensor)

    change(torch.Tensor, "data_ptr", address)

    copied = torch.Tensor.__deepcopy__

    def copy(tensor, memo):
        # By its storage, which a tensor without values does not share.
        if type(tensor) is not FakeTensor or not tensor.is_leaf:
            return copied(tensor, memo)
        if id(tensor) not in memo:
            memo[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        return memo[id(tensor)]

    change(torch.Tensor, "__deepcopy__", copy)

    change(torch.nn.Module, "cuda", lambda self, device=None: self.to("cpu"))
    change(torch.nn.Module, "_apply", converted)
    default_device = getattr(torch, "set_default_device", None)
    change(torch, "set_default_device", lambda device: default_device(on_cpu(device)))
    for name in ("synchronize", "set_device", "empty_cache", "reset_peak_memory_stats"):
        change(torch.cuda, name, lambda *args, **kwargs: None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        change(torch.cuda, name, lambda *args, **kwargs: 0)

    # Tensors without values need no initialisation, and some functions read values back.
    init = torch.nn.init
    for name in [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]:
        change(init, name, lambda tensor, *args, **kwargs: (values.lose(tensor), tensor)[1])

    change(FakeTensor, "__format__", formatted)

    # Distributions would read back whether their parameters are valid.
    change(torch.distributions.Distribution, "_validate_args", False)

    # Libraries that check for tracing leave out code that reads values: transformers then passes a mask even
    # without padding, and attention is no longer flash attention.
    change(torch._subclasses, "FakeTensor", NoTensor)

    # Optimizers handle lists of tensors in one call, the default on a GPU.
    change(torch.nn.utils.clip_grad, "_has_foreach_support", foreach_on_cpu)
    change(torch.nn.utils.clip_grad, "_device_has_foreach_support", foreach_on_cpu)

    # A scaler reads back whether anything overflowed; nothing does here.
    scaler = getattr(getattr(torch.amp, "grad_scaler", None), "GradScaler", None) or torch.cuda.amp.GradScaler
    scaler_made = scaler.__init__

    def make_scaler(self, *args, **kwargs):
        scaler_made(self, *args, **dict(kwargs, enabled=False))
        step.note("the gradient scaler's own calls are left out")

    change(scaler, "__init__", make_scaler)
    try:
        yield
    finally:
        for place, name, value in reversed(changes):
            setattr(place, name, value)
