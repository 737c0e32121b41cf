"""What `torch.compile` makes of a step: kernels of many calls, which pass results on in registers.

Nothing is compiled here. The calls of a compiled function or module, forward and backward, are put together by
the rules of PyTorch's compiler Inductor (torch/_inductor/scheduler.py) as far as they decide what memory is read
and written:
- calls that work element by element, and reductions of the last dimensions (norms, softmax), are fused with
  those that use their results; a result that nothing else reads is never written;
- products, convolutions, attention, scatters and other reductions are kernels of their own: what they read is in memory;
- backward makes again what is cheap to make, from what forward read
  (torch/_functorch/partitioners.py, `min_cut_rematerialization_partition`).
"""

import functools

import torch

# What marks a module whose calls are compiled.
COMPILED = "_habitat_compiled"
# Backends of `torch.compile` that fuse nothing.
EAGER = ("eager", "eager_noexcept", "aot_eager")
# Element by element, though PyTorch does not tag them so.
POINTWISE = """
    _to_copy clone copy_ cat stack where constant_pad_nd slice_backward select_backward embedding index gather
    index_select masked_fill native_dropout native_dropout_backward zeros zeros_like ones ones_like full full_like arange
    new_zeros new_ones new_full scalar_tensor fill_ zero_ nll_loss_forward nll_loss_backward expand_copy repeat roll flip
    tril triu lift_fresh_copy bernoulli rand_like randn_like
""".split()
# Reductions that are fused where they go over the last dimensions, by the place of the dimensions among the arguments.
REDUCTIONS = {"sum": 1, "mean": 1, "amax": 1, "amin": 1, "var": 1, "var_mean": 1, "logsumexp": 1, "argmax": 1}
NOTE = (
    "torch.compile was not run: which calls its kernels take together follows from rules, not from the compiler; the "
    "peak memory is that without it"
)
# Reductions and what follows from them, row by row; those of the second list reduce over more than a row can hold, and
# read their inputs once more before they write.
ROWS = "_softmax _softmax_backward_data native_layer_norm _fused_rms_norm _native_batch_norm_legit_no_training".split()
TWICE = """
    _log_softmax _log_softmax_backward_data native_layer_norm_backward _fused_rms_norm_backward
    native_group_norm native_group_norm_backward native_batch_norm native_batch_norm_backward
    cudnn_batch_norm cudnn_batch_norm_backward _native_batch_norm_legit
""".split()
# Backward reads again what forward read, where that is at most so many times what forward would have to write.
CHEAP = 2


def compiling(step, compile):
    """`torch.compile`, which marks what it is given and leaves it as it is."""

    def compiled(model=None, **options):
        if model is None:
            return lambda model: compiled(model, **options)
        if options.get("disable") or options.get("backend") in EAGER:
            return model
        made = compile(model, **options)
        if isinstance(made, torch.nn.Module):
            made.__dict__[COMPILED] = True
            return made

        return functools.wraps(model)(lambda *args, **kwargs: step.run_compiled(made, args, kwargs))

    return compiled


def stem(func):
    return func._schema.name.split("::")[1]


def reads_twice(func, args):
    name = stem(func)
    # Of batch norms, those that take the statistics of the batch.
    return name in TWICE and not (name.endswith("batch_norm") and args[5] is False)


def fuses(func, args):
    """Whether a call is fused with others."""
    name = stem(func)
    if func.namespace != "aten":
        return False
    if name in ROWS or name in TWICE or name in POINTWISE or torch.Tag.pointwise in func.tags:
        return True
    if name in REDUCTIONS and args[0].dim():
        place = REDUCTIONS[name]
        dims = args[place] if place < len(args) else None
        dims = [dims] if isinstance(dims, int) else dims
        if not dims:
            return False
        dims = sorted(dim % args[0].dim() for dim in dims)
        # All dimensions are not the last ones of rows.
        return dims == list(range(args[0].dim() - len(dims), args[0].dim())) and len(dims) < args[0].dim()
    return False


class Kernel:
    """Calls that are fused: what they read, and what they made that may have to be written, in bytes."""

    def __init__(self, phase, module):
        self.phase, self.module = phase, module
        self.reads, self.twice, self.makes, self.written = {}, {}, {}, 0
        self.open, self.dtype = True, None

    def take_in(self, other):
        self.reads.update(other.reads)
        self.makes.update(other.makes)
        self.twice.update(other.twice)
        self.written += other.written


class Fusion:
    """The kernels of the compiled parts of one step. A tensor is known by its entry in the step's memory."""

    def __init__(self, memory):
        self.memory, self.kernels = memory, []
        # The kernel that makes a tensor that was not yet written.
        self.maker = {}
        self.region = None

    def enter(self, region):
        """Kernels of one compiled region take in no call of another."""
        if region != self.region:
            self.region = region
            for kernel in self.kernels:
                kernel.open = False

    def entries(self, values):
        found = ((self.memory.see(value), value) for value in values)
        return [(entry, value.numel() * value.element_size()) for entry, value in found if entry is not None]

    def write(self, entry):
        """Something other than its own kernel reads it, so it is written."""
        kernel = self.maker.pop(entry, None)
        if kernel is not None:
            kernel.open = False
            kernel.written += kernel.makes[entry]

    def fused(self, func, args, place, given, made):
        """A call that is fused with those that made what it reads."""
        given, outputs = self.entries(given), self.entries(made)
        kernel, phase = Kernel(*place), place[0]
        makers = {id(maker): maker for maker in (self.maker.get(entry) for entry, _ in given) if maker and maker.open}
        if makers:
            kernel, *others = makers.values()
            for other in others:
                kernel.take_in(other)
                self.kernels.remove(other)
                self.maker.update((entry, kernel) for entry in other.makes if self.maker.get(entry) is other)
        else:
            self.kernels.append(kernel)
        for entry, size in given:
            maker = self.maker.get(entry)
            if maker is kernel:
                continue
            if maker is not None:
                again = sum(maker.reads.values())
                if phase == "backward" and maker.phase == "forward" and again <= CHEAP * size:
                    kernel.reads.update(maker.reads)
                    continue
                self.write(entry)
            kernel.reads[entry] = max(size, kernel.reads.get(entry, 0))
        if reads_twice(func, args):
            kernel.twice.update(kernel.reads)
        before = {entry for entry, _ in given}
        for (entry, size), value in zip(outputs, made):
            kernel.makes[entry] = size
            if kernel.dtype is None or size >= max(kernel.makes.values()):
                kernel.dtype = value.dtype
            self.maker[entry] = kernel
            if entry in before and entry in kernel.reads:
                # In place, on what others have: it is written in the end.
                kernel.written += size
                del self.maker[entry]

    def alone(self, given):
        """A call that is not fused reads what is in memory."""
        for entry, _ in self.entries(given):
            self.write(entry)

    def rows(self):
        """As rows of the op list, alike ones counted."""
        found = {}
        for kernel in self.kernels:
            size = (kernel.dtype or torch.uint8).itemsize
            read, written = sum(kernel.reads.values()) + sum(kernel.twice.values()), kernel.written
            if written:
                key = (kernel.phase, kernel.module, read // size, written // size, str(kernel.dtype)[6:])
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
