"""Models `torch.compile`: kernels that combine many calls and pass results on in registers.

Nothing is compiled. The calls of a compiled function or module, forward and backward, are combined by the rules
of PyTorch's compiler Inductor (torch/_inductor/scheduler.py), as far as they decide which memory is read and
written:
- pointwise calls, and reductions of the last dimensions (norms, softmax), are fused with
  calls that use their results; a result that nothing else reads is never written;
- other reductions fuse with the calls that produce their inputs, but not with those that use their results;
- products, convolutions, attention and scatters are separate kernels that read their inputs from memory;
- products whose rows have odd lengths are padded if they are compute-bound
  (torch/_inductor/fx_passes/pad_mm.py; the compiler also tries which is faster);
- backward recomputes cheap results from tensors that forward read
  (torch/_functorch/partitioners.py, `min_cut_rematerialization_partition`).
"""

import functools

import torch

from .failure import is_packaged
from .memory import parts

# Types passed to `torch.compile` in this process, including at the import of a script.
ASKED = []
# Attribute of modules whose calls are compiled.
COMPILED = "_habitat_compiled"
# Backends of `torch.compile` that fuse nothing.
EAGER = ("eager", "eager_noexcept", "aot_eager", "cudagraphs")
# Modes whose kernels are replayed as CUDA graphs (torch/_inductor/__init__.py, `list_mode_options`).
REPLAYED = ("reduce-overhead", "max-autotune")
# Pointwise, although PyTorch does not tag them so.
POINTWISE = """
    _to_copy clone copy_ cat stack where constant_pad_nd slice_backward select_backward embedding index gather
    index_select masked_fill native_dropout native_dropout_backward zeros zeros_like ones ones_like full full_like arange
    new_zeros new_ones new_full scalar_tensor fill_ zero_ nll_loss_forward nll_loss_backward expand_copy repeat roll flip
    tril triu lift_fresh_copy bernoulli rand_like randn_like
""".split()
# Reductions, with the index of the dimensions among the arguments.
REDUCTIONS = dict.fromkeys("sum mean amax amin max min var var_mean std logsumexp argmax argmin prod any all".split(), 1)
REDUCTIONS["linalg_vector_norm"] = 2
NOTE = (
    "torch.compile was not run: which calls its kernels fuse, and what backward recomputes, follows from rules"
)
NOTHING = "torch.compile changes nothing that is traced: its function is not called, or has nothing to fuse"
# Row-wise reductions and what follows from them. Those in the second list reduce over more than a row can hold,
# and read their inputs again before they write. Under `torch.inference_mode` the names lack the "_".
ROWS = """
    softmax layer_norm rms_norm _softmax _softmax_backward_data native_layer_norm _fused_rms_norm
    _native_batch_norm_legit_no_training
""".split()
TWICE = """
    log_softmax group_norm batch_norm _log_softmax _log_softmax_backward_data native_layer_norm_backward _fused_rms_norm_backward
    native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward
    cudnn_batch_norm cudnn_batch_norm_backward _native_batch_norm_legit
""".split()
# Most calls of one kernel (torch/_inductor/config.py, `max_fusion_size`).
MOST_CALLS = 64
# Padded operators; elements to pad to, by bytes of the type; and FLOPs per element read or written from which
# padding applies: half the machine balance in 16 bits is 76 on an A100, 148 on an H100.
PADDED, ALIGNED, BOUND = ("mm", "addmm", "bmm"), {2: 8, 4: 4}, 100
# Backward reads again what forward read, if that is at most this multiple of what forward would have to write.
CHEAP = 2


def compiling(step, compile):
    """A replacement of `torch.compile` that marks its argument and returns it unchanged."""

    def compiled(model=None, **options):
        if model is None:
            return lambda model: compiled(model, **options)
        if options.get("disable") or options.get("backend") in EAGER:
            return model
        # Packages compile functions when they are imported, whether or not these are called.
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
    # Of the batch norms, only those that use the batch's statistics.
    return name in TWICE and not (name.endswith("batch_norm") and args[5] is False)


def fuses(func):
    """Whether a call is fused with others."""
    name = stem(func)
    known = name in ROWS or name in TWICE or name in POINTWISE or name in REDUCTIONS
    return func.namespace == "aten" and (known or torch.Tag.pointwise in func.tags)


def is_padded(func, args):
    """Whether the compiler pads the matrices of a call, which must be a product."""
    if stem(func) not in PADDED:
        return False
    one, other = [value for value in args if isinstance(value, torch.Tensor)][-2:]
    aligned = ALIGNED.get(one.element_size())
    sizes = (*one.shape[-2:], other.shape[-1])
    is_odd = aligned is not None and any(size % aligned for size in sizes)
    return is_odd and 0 not in sizes and 1 / sum(1 / size for size in sizes) > BOUND


def ends(func, args):
    """Whether a call is a reduction over other than the last dimensions: it fuses with the calls that produce
    its inputs, but not with those that use its result."""
    place = REDUCTIONS.get(stem(func))
    dims = args[place] if place is not None and place < len(args) else None
    # The larger of two tensors is not a reduction.
    if place is None or isinstance(dims, torch.Tensor):
        return False
    dims = [dims] if isinstance(dims, int) else dims or []
    count = args[0].dim()
    return len(dims) in (0, count) or {dim % count for dim in dims} != set(range(count - len(dims), count))


class Kernel:
    """Fused calls: the tensors that they read, and the bytes that they write."""

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
        """The kernel that this one was merged into."""
        kernel = self
        while kernel.into is not None:
            kernel = kernel.into
        if kernel is not self:
            self.into = kernel
        return kernel


class Made:
    """A tensor that a kernel computes: its bytes, and the tensors that it is computed from."""

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
    """The kernels of the compiled parts of one step. Tensors are identified by their entry in the step's
    memory."""

    def __init__(self, memory):
        self.memory, self.kernels = memory, []
        # Tensors that were computed and not written.
        self.made = {}
        # Until which position of the memory's log backward needs the tensors from which it recomputes others.
        self.held = {}
        # The region that runs, and its first kernel.
        self.region, self.first = None, 0

    def enter(self, region):
        """Closes the kernels of a compiled region when another region begins."""
        if region != self.region:
            for kernel in self.kernels[self.first :]:
                kernel.open = False
            self.region, self.first = region, len(self.kernels)

    def entries(self, values):
        found = ((self.memory.see(part), part) for value in values for part in parts(value))
        return [(entry, value) for entry, value in found if entry is not None]

    def alone(self, given):
        """A call that is not fused reads its inputs from memory."""
        for entry, _ in self.entries(given) if self.made else ():
            made = self.made.pop(entry, None)
            if made is not None:
                made.write()

    def fused(self, func, args, place, given, results):
        """Fuses a call with those that computed its inputs."""
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
                # It writes in place to a tensor that others use, so the result is written at the end.
                is_open = kernel.open
                made.write()
                kernel.open = is_open
            else:
                self.made[entry] = made

    def rows(self):
        """Rows of the op list; equal rows are counted."""
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
