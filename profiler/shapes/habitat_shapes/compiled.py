"""What `torch.compile` makes of a step: kernels of many calls, which pass results on in registers.

Nothing is compiled here. The calls of a compiled function or module, forward and backward, are put together by
the rules of PyTorch's compiler Inductor (torch/_inductor/scheduler.py) as far as they decide what memory is read
and written:
- calls that work element by element, and reductions of the last dimensions (norms, softmax), are fused with
  those that use their results; a result that nothing else reads is never written;
- other reductions take in what makes their inputs, and what uses their results is another kernel;
- products, convolutions, attention and scatters are kernels of their own: what they read is in memory;
- products whose rows have odd lengths are padded, where arithmetic and not traffic takes their time
  (torch/_inductor/fx_passes/pad_mm.py; the compiler also tries which is faster);
- backward makes again what is cheap to make, from what forward read
  (torch/_functorch/partitioners.py, `min_cut_rematerialization_partition`).
"""

import functools

import torch

from .failure import is_packaged
from .memory import parts

# What `torch.compile` was given in this process, at the import of a script too.
ASKED = []
# What marks a module whose calls are compiled.
COMPILED = "_habitat_compiled"
# Backends of `torch.compile` that fuse nothing.
EAGER = ("eager", "eager_noexcept", "aot_eager", "cudagraphs")
# Modes whose kernels are replayed as CUDA graphs (torch/_inductor/__init__.py, `list_mode_options`).
REPLAYED = ("reduce-overhead", "max-autotune")
# Element by element, though PyTorch does not tag them so.
POINTWISE = """
    _to_copy clone copy_ cat stack where constant_pad_nd slice_backward select_backward embedding index gather
    index_select masked_fill native_dropout native_dropout_backward zeros zeros_like ones ones_like full full_like arange
    new_zeros new_ones new_full scalar_tensor fill_ zero_ nll_loss_forward nll_loss_backward expand_copy repeat roll flip
    tril triu lift_fresh_copy bernoulli rand_like randn_like
""".split()
# Reductions, by the place of their dimensions among the arguments.
REDUCTIONS = dict.fromkeys("sum mean amax amin max min var var_mean std logsumexp argmax argmin prod any all".split(), 1)
REDUCTIONS["linalg_vector_norm"] = 2
NOTE = (
    "torch.compile was not run: which calls its kernels take together, and what backward makes again, follows from "
    "rules, not from the compiler"
)
NOTHING = "torch.compile changes nothing that is traced: what it is given is not called, or has nothing to fuse"
# Reductions and what follows from them, row by row; those of the second list reduce over more than a row can hold, and
# read their inputs once more before they write. Under `torch.inference_mode` they come by the names without "_".
ROWS = """
    softmax layer_norm rms_norm _softmax _softmax_backward_data native_layer_norm _fused_rms_norm
    _native_batch_norm_legit_no_training
""".split()
TWICE = """
    log_softmax group_norm batch_norm _log_softmax _log_softmax_backward_data native_layer_norm_backward _fused_rms_norm_backward
    native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward
    cudnn_batch_norm cudnn_batch_norm_backward _native_batch_norm_legit
""".split()
# Calls of one kernel (torch/_inductor/config.py, `max_fusion_size`).
MOST_CALLS = 64
# What is padded, to how many elements by their bytes, and from how many multiplications on for each element that is
# read or written: half the machine balance of an A100 in 16 bits is 76, of an H100 148.
PADDED, ALIGNED, BOUND = ("mm", "addmm", "bmm"), {2: 8, 4: 4}, 100
# Backward reads again what forward read, where that is at most so many times what forward would have to write.
CHEAP = 2


def compiling(step, compile):
    """`torch.compile`, which marks what it is given and leaves it as it is."""

    def compiled(model=None, **options):
        if model is None:
            return lambda model: compiled(model, **options)
        if options.get("disable") or options.get("backend") in EAGER:
            return model
        # Packages compile functions of their own when they are imported, whether these are called or not.
        code = getattr(model, "__code__", None)
        if code is None or not is_packaged(code.co_filename):
            ASKED.append(type(model).__name__)
        replayed = options.get("mode") in REPLAYED or (options.get("options") or {}).get("triton.cudagraphs", False)
        made = compile(model, **options)
        if isinstance(made, torch.nn.Module):
            made.__dict__[COMPILED] = {"replayed": replayed}
            return made

        return functools.wraps(model)(lambda *args, **kwargs: step.run_compiled(made, args, kwargs, replayed))

    return compiled


def stem(func):
    return func._schema.name.split("::")[1]


def reads_twice(func, args):
    name = stem(func)
    # Of batch norms, those that take the statistics of the batch.
    return name in TWICE and not (name.endswith("batch_norm") and args[5] is False)


def fuses(func):
    """Whether a call is fused with others."""
    name = stem(func)
    known = name in ROWS or name in TWICE or name in POINTWISE or name in REDUCTIONS
    return func.namespace == "aten" and (known or torch.Tag.pointwise in func.tags)


def is_padded(func, args):
    """Whether the compiler pads the matrices of a call, which is a product."""
    if stem(func) not in PADDED:
        return False
    one, other = [value for value in args if isinstance(value, torch.Tensor)][-2:]
    aligned = ALIGNED.get(one.element_size())
    sizes = (*one.shape[-2:], other.shape[-1])
    is_odd = aligned is not None and any(size % aligned for size in sizes)
    return is_odd and 0 not in sizes and 1 / sum(1 / size for size in sizes) > BOUND


def ends(func, args):
    """Whether a call is a reduction that goes not over the last dimensions of rows: it takes in what makes its
    inputs, and what uses its result is another kernel."""
    place = REDUCTIONS.get(stem(func))
    dims = args[place] if place is not None and place < len(args) else None
    # The larger of two tensors is no reduction.
    if place is None or isinstance(dims, torch.Tensor):
        return False
    dims = [dims] if isinstance(dims, int) else dims or []
    count = args[0].dim()
    return len(dims) in (0, count) or {dim % count for dim in dims} != set(range(count - len(dims), count))


class Kernel:
    """Calls that are fused: what they read, and how much they write, in bytes."""

    def __init__(self, phase, module):
        self.phase, self.module = phase, module
        self.reads, self.twice, self.written, self.calls = {}, {}, 0, 1
        self.open, self.dtype, self.into = True, None, None

    def take_in(self, other):
        other.into, other.open = self, False
        self.calls += other.calls
        self.reads.update(other.reads)
        self.twice.update(other.twice)
        self.written, self.dtype = self.written + other.written, self.dtype or other.dtype

    def last(self):
        """The kernel that this one became a part of."""
        kernel = self
        while kernel.into is not None:
            kernel = kernel.into
        if kernel is not self:
            self.into = kernel
        return kernel


class Made:
    """A tensor that a kernel makes: its bytes, and what has to be read for it."""

    def __init__(self, kernel, value, reads, twice):
        self.maker, self.dtype, self.reads, self.twice = kernel, value.dtype, reads, twice
        self.size = value.numel() * value.element_size()

    def write(self):
        kernel = self.maker.last()
        kernel.open = False
        kernel.reads.update(self.reads)
        kernel.twice.update(self.twice)
        if kernel.dtype is None or self.size > kernel.written:
            kernel.dtype = self.dtype
        kernel.written += self.size


class Fusion:
    """The kernels of the compiled parts of one step. A tensor is known by its entry in the step's memory."""

    def __init__(self, memory):
        self.memory, self.kernels = memory, []
        # Tensors that were made and not written.
        self.made = {}
        # Until which place of the memory's log backward needs what it makes others from again.
        self.held = {}
        # The region that is run, and its first kernel.
        self.region, self.first = None, 0

    def enter(self, region):
        """Kernels of one compiled region take in no call of another."""
        if region != self.region:
            for kernel in self.kernels[self.first :]:
                kernel.open = False
            self.region, self.first = region, len(self.kernels)

    def entries(self, values):
        found = ((self.memory.see(part), part) for value in values for part in parts(value))
        return [(entry, value) for entry, value in found if entry is not None]

    def alone(self, given):
        """A call that is not fused reads what is in memory."""
        for entry, _ in self.entries(given) if self.made else ():
            made = self.made.pop(entry, None)
            if made is not None:
                made.write()

    def fused(self, func, args, place, given, results):
        """A call that is fused with those that made what it reads."""
        given, phase, is_end = self.entries(given), place[0], ends(func, args)
        kernel = Kernel(*place)
        self.kernels.append(kernel)
        reads, twice = {}, {}
        for entry, value in given:
            made = self.made.get(entry)
            maker = made and made.maker.last()
            size = value.numel() * value.element_size()
            is_room = maker is kernel or maker is not None and kernel.calls + maker.calls <= MOST_CALLS
            if is_room and maker.open and not is_end:
                if maker is not kernel:
                    kernel.take_in(maker)
            elif maker is not None:
                is_past = is_end or phase == "backward" and maker.phase == "forward"
                if not is_past or sum(made.reads.values()) > CHEAP * size:
                    self.alone([value])
                    made = None
                elif not maker.open:
                    self.held.update(dict.fromkeys(made.reads, len(self.memory.log)))
            if made is None:
                reads[entry] = max(size, reads.get(entry, 0))
            else:
                reads.update(made.reads)
                twice.update(made.twice)
        if reads_twice(func, args):
            twice.update(reads)
        kernel.open = not is_end
        for entry, value in self.entries(results):
            made = Made(kernel, value, reads, twice)
            if entry in reads:
                # In place, on what others have: it is written in the end.
                is_open = kernel.open
                made.write()
                kernel.open = is_open
            else:
                self.made[entry] = made

    def rows(self):
        """As rows of the op list, alike ones counted."""
        found = {}
        for kernel in self.kernels:
            if kernel.into is not None or not kernel.written:
                continue
            size = kernel.dtype.itemsize
            read = sum(kernel.reads.values()) + sum(kernel.twice.values())
            key = (kernel.phase, kernel.module, read // size, kernel.written // size, str(kernel.dtype)[6:])
            found[key] = found.get(key, 0) + 1
        return [
            {
                "op": "triton_poi_fused",
                "phase": phase,
                "module": module,
                "inputs": [{"shape": [read], "dtype": dtype}] if read else [],
                "kwargs": None,
                "outputs": [{"shape": [written], "dtype": dtype}],
                "count": count,
            }
            for (phase, module, read, written, dtype), count in found.items()
        ]
