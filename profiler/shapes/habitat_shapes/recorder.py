"""Records the calls of a step as PyTorch dispatches them, with phase and module.

The phase of a call: backward while autograd runs a graph (gradient accumulation if its node is AccumulateGrad);
forward inside a module, or before the first backward pass; optimizer inside an optimizer's step and zero_grad,
and from the end of a backward pass to the next module's forward (clipping, unscaling).
"""

import contextlib
import re
import weakref

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from . import flex, losses, norms, recurrent, values
from .as_on_gpu import APART
from .compiled import ASKED, COMPILED, NOTE, NOTHING, Fusion, fuses, is_padded
from .failure import RebuildsEachStep, TrainsAtImport
from .memory import GRADIENTS, PARAMETERS, STATE, Memory

# Calls whose results come from shapes alone.
CALLS = {**recurrent.CALLS, **norms.CALLS, **losses.CALLS, **flex.CALLS}
# Value read back from a tensor that nobody computed.
ANSWER = 1.0
# Attribute of a sparse tensor with its number of rows, which PyTorch does not know without values.
ROWS = "_habitat_rows"
# Attribute of a sparse matrix with its number of elements.
ELEMENTS = "_habitat_elements"
# Note if something depends on values that nobody computed.
CHOSEN = (
    "a size or a value that the step reads depends on the choices of a top-k or an argmax; the choices were spread "
    "evenly, as tokens over experts"
)
# Prefixes of arguments with the ends of packed sequences.
ENDS = ("cu_seq", "cum_seq", "seqstart")
# The number of a layer in a module's path: layers.3.norm, encoder_layer_3.
NUMBER = re.compile(r"(^|[._])\d+(?=\.|$)")


# Channels-last memory formats (NHWC, NDHWC), by number of dimensions.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def has_channels_last(tensor):
    """Whether it is in channels-last order and not also in the usual order, as with one channel."""
    form = CHANNELS_LAST.get(tensor.dim()) if tensor.layout is torch.strided else None
    return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()


def steps_of(tensor):
    """(stride, size) of each dimension larger than one."""
    return [(step, size) for step, size in zip(tensor.stride(), tensor.shape) if size > 1]


def is_dense(steps):
    """Whether such elements fill their memory without gaps, in any order of dimensions."""
    expected = 1
    for step, size in sorted(steps):
        if step != expected:
            return False
        expected *= size
    return True


def access(given, made):
    """How a call reads its tensors if not in memory order: "strided" over parts of rows, or rows in another
    order; "transposed" if neighbours in one tensor are not neighbours in another. Ignores tensors with fewer
    elements than the result, and broadcast ones."""
    first = made[0] if made else given[0] if given else None
    if first is None or first.layout is not torch.strided:
        return None
    least = max(first.numel(), 2)
    tensors = [one for one in (*given, *made) if one.layout is torch.strided and one.numel() >= least]
    if all(tensor.is_contiguous() for tensor in tensors):
        return None
    found, own = None, steps_of(first)
    for tensor in tensors:
        if tensor.is_contiguous() and first.is_contiguous():
            continue
        steps = steps_of(tensor)
        if any(step == 0 for step, _ in steps):
            continue
        # A sum over everything reads it in memory order.
        if (first.numel() == 1 or steps == own) and is_dense(steps):
            continue
        if tensor.shape == first.shape and steps.index(min(steps)) != own.index(min(own)):
            return "transposed"
        found = "strided"
    return found


def shape(tensor, spread=False):
    """Its sizes; of a broadcast tensor, if `spread`, the part that is read; of a sparse one, its rows."""
    if hasattr(tensor, ROWS):
        return (getattr(tensor, ROWS), *tensor.shape[1:])
    if spread and tensor.layout is torch.strided and 0 in tensor.stride():
        return tuple([1 if step == 0 else size for step, size in zip(tensor.stride(), tensor.shape)])
    return tensor.shape


def short(value, spread=False):
    """An argument in the form of the op list."""
    if isinstance(value, torch.Tensor):
        told = {"shape": [int(size) for size in shape(value, spread)], "dtype": str(value.dtype)[6:]}
        if has_channels_last(value):
            told["layout"] = "channels_last"
        return told
    if isinstance(value, (list, tuple)):
        return [short(item, spread) for item in value]
    if isinstance(value, float):
        # JSON has no infinity and no NaN.
        return value if value - value == 0.0 else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)


def is_real(value):
    return isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor)


def frozen(value, spread=False):
    if isinstance(value, torch.Tensor):
        return (shape(value, spread), value.dtype, has_channels_last(value))
    if isinstance(value, (list, tuple)):
        return tuple([frozen(item, spread) for item in value])
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def note_rows(args, out):
    """Notes the number of rows of results with sparse rows, as gradients of look-ups: that of their inputs, or
    the number of indices."""
    for made in flat((out,)):
        if made.layout is not torch.sparse_coo or made.sparse_dim() != 1 or hasattr(made, ROWS):
            continue
        given = list(flat(args))
        rows = [getattr(value, ROWS) for value in given if hasattr(value, ROWS)]
        rows = rows or [value.shape[-1] if value.dim() else 1 for value in given if value.dtype is torch.int64]
        if rows:
            setattr(made, ROWS, max(rows))


def note_elements(args, out):
    """Notes the number of elements of sparse matrices: that of the values or the matrix that they are made
    from."""
    for made in flat((out,)):
        if made.layout is torch.strided or hasattr(made, ROWS) or made.layout is torch.sparse_coo and made.sparse_dim() < 2:
            continue
        given = list(flat(args))
        counts = [getattr(value, ELEMENTS) for value in given if hasattr(value, ELEMENTS)]
        # The values come last, after their indices.
        counts = counts or [value.shape[0] for value in given[1:][-1:] if value.layout is torch.strided and value.dim()]
        if counts:
            setattr(made, ELEMENTS, counts[0])


def elements(given):
    """Elements of the first sparse matrix among some tensors; None without one."""
    return next((getattr(value, ELEMENTS) for value in given if hasattr(value, ELEMENTS)), None)


def part_of_rows(func, args):
    """The values or the indices of a tensor with sparse rows; None for other tensors."""
    rows = getattr(args[0], ROWS, None) if args else None
    if rows is None or func not in (torch.ops.aten._values.default, torch.ops.aten._indices.default):
        return None
    if func is torch.ops.aten._values.default:
        return torch.empty((rows, *args[0].shape[1:]), dtype=args[0].dtype)
    return torch.empty((1, rows), dtype=torch.int64)


def dense(func, args):
    """Records a call that adds a sparse tensor as one that adds rows."""
    is_sparse = len(args) > 1 and hasattr(args[1], ROWS)
    if func is not torch.ops.aten.add_.Tensor or not is_sparse:
        return str(func), short(args, torch.Tag.pointwise in func.tags)
    places = {"shape": [getattr(args[1], ROWS)], "dtype": "int64"}
    return "aten.index_add_.default", [short(args[0]), 0, places, short(args[1])]


def pairs_of_packed(func, args, kwargs):
    """Pairs of query and key in attention over packed sequences, from the ends of the sequences; None for other
    calls, and if the ends are unknown."""
    ends = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.name.startswith(ENDS):
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            ends.append(values.of(value) if isinstance(value, torch.Tensor) else None)
    # Some operators take the keys' ends from the queries'.
    ends = [ends[0] if value is None else value for value in ends[:2]]
    if not ends or any(value is None or value.dim() != 1 for value in ends):
        return None
    with no_dispatch():
        queries, keys = (value.long().diff() for value in (ends[0], ends[-1]))
        return int((queries * keys).sum()) if queries.shape == keys.shape else None


class Step:
    """State of the running step, shared by the modes and the hooks."""

    def __init__(self):
        self.stage = "import"
        # Whether PyTorch is computing the result of a call.
        self.inside = 0
        self.memory = Memory()
        self.notes = []
        self.optimizers, self.parameters, self.roots = [], {}, []
        self.steps_made = 0
        self.autocast = None
        self.inputs = None
        # Whether to treat all models as compiled.
        self.compiles_all = False
        # Fusion of compiled calls, in the recorded step.
        self.fusion = None
        # The last call for which PyTorch has no result: (error, operator, shapes).
        self.refused = None
        self.reset()

    def reset(self):
        """Resets the state before each step."""
        self.modules, self.in_optimizer = [], 0
        self.after_backward = self.had_backward = self.in_backward = False
        self.updates = self.backwards = 0
        # For each model: its calls for the same update, the updates and backward passes before the last of
        # them, and its inputs; then the most calls, and whether a model got the same inputs again.
        self.micro_batches, self.most_calls, self.again = {}, 1, False
        self.names, self.module_of = {}, {}
        # Compiled functions that run now; number of entries; the entry that autograd's nodes belong to; entries
        # that are replayed as CUDA graphs.
        self.compiled, self.entered, self.regions, self.graphs = 0, 0, {}, set()

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def phase(self):
        if torch._C._current_graph_task_id() != -1:
            if not self.in_backward:
                self.in_backward = self.had_backward = self.after_backward = True
                self.backwards += 1
                self.memory.backward_begins()
            node = torch._C._current_autograd_node()
            return "gradient_accumulation" if node is not None and "AccumulateGrad" in node.name() else "backward"
        self.in_backward = False
        if self.modules:
            return "forward"
        return "optimizer" if self.in_optimizer or self.after_backward else "forward"

    def module(self, phase):
        """The path of the module that a call belongs to; layers that differ only by a number are one."""
        if phase == "forward":
            path = self.modules[-1] if self.modules else None
            # The node that autograd has just created for this call has the last number.
            self.module_of.setdefault(torch.autograd._get_sequence_nr() - 1, path)
            return path
        if phase == "backward":
            node = torch._C._current_autograd_node()
            return self.module_of.get(node._sequence_nr()) if node is not None else None
        return None

    def region(self, phase):
        """The entry of a compiled function or module that a call belongs to, with its phase; None outside."""
        if phase == "forward":
            entered = self.entered if self.compiled else None
            self.regions.setdefault(torch.autograd._get_sequence_nr() - 1, entered)
        else:
            node = torch._C._current_autograd_node() if phase == "backward" else None
            entered = self.regions.get(node._sequence_nr()) if node is not None else None
            entered = self.entered if self.compiled else entered
        return None if entered is None else (entered, phase)

    def run_compiled(self, function, args, kwargs, replayed=False):
        """Calls a function that `torch.compile` received."""
        self.entered += self.compiled == 0
        if replayed:
            self.graphs.add(self.entered)
        self.compiled += 1
        try:
            made = function(*args, **kwargs)
        finally:
            self.compiled -= 1
        if self.fusion is not None and not self.compiled:
            self.fusion.alone([value for value in tree_flatten(made)[0] if isinstance(value, torch.Tensor)])
        return made

    # Hooks of modules and optimizers.

    def enter(self, module, inputs):
        """A module's forward begins; within backward it is recomputed, and backward goes on."""
        if torch._C._current_graph_task_id() == -1:
            self.after_backward = False
        if not self.modules:
            if module not in self.roots:
                self.roots.append(module)
            self.count_micro_batch(module, [value for value in tree_flatten(inputs)[0] if isinstance(value, torch.Tensor)])
            for name, inner in module.named_modules():
                self.names.setdefault(id(inner), NUMBER.sub(r"\1*", name))
        self.modules.append(self.names.get(id(module)) or None)
        if self.stage == "step" and self.inputs is None and not self.had_backward:
            tensors = [value for value in tree_flatten(inputs)[0] if isinstance(value, torch.Tensor)]
            self.inputs = [(tuple(tensor.shape), tensor.dtype.is_floating_point) for tensor in tensors]

    def count_micro_batch(self, root, given):
        """Counts calls of a model for the same update: those whose gradients are kept from another backward
        pass. With the same tensors, as in adversarial training, the samples may be the same."""
        if torch._C._current_graph_task_id() != -1 or not torch.is_grad_enabled():
            return
        calls, updates, backwards, seen = self.micro_batches.get(id(root), (0, self.updates, self.backwards, ()))
        if not calls or updates != self.updates:
            calls, seen = 1, ()
        elif self.backwards > backwards and any(parameter.grad is not None for parameter in root.parameters()):
            again = any(value is other() for value in given for other in seen)
            calls, self.again = calls + (not again), self.again or again
        self.most_calls = max(self.most_calls, calls)
        self.micro_batches[id(root)] = (calls, self.updates, self.backwards, (*seen, *map(weakref.ref, given)))

    def before_update(self, optimizer, args, kwargs):
        if self.stage == "import":
            raise TrainsAtImport()
        if optimizer not in self.optimizers:
            if self.stage == "step" and self.steps_made > 0:
                raise RebuildsEachStep()
            self.optimizers.append(optimizer)
        for group in optimizer.param_groups:
            # The default of optimizers if the parameters are on a GPU.
            if "foreach" in group and group["foreach"] is None and not group.get("fused"):
                group["foreach"] = True
            for parameter in group["params"]:
                self.parameters[id(parameter)] = parameter
                if parameter.grad is not None:
                    self.memory.tag(parameter.grad, GRADIENTS)
        self.in_optimizer += 1

    def after_update(self, optimizer, args, kwargs):
        self.in_optimizer = max(0, self.in_optimizer - 1)
        self.updates += 1
        for state in optimizer.state.values():
            if isinstance(state, dict):
                self.tag_state(state)

    def tag_state(self, state):
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                if name == "step" and value.dim() == 0:
                    self.memory.on_host(value)
                else:
                    self.memory.tag(value, STATE)

    def tag_model(self, model=None):
        """Parameters and buffers of every module called, of the optimizers, and of `model`."""
        for root in self.roots + ([model] if isinstance(model, torch.nn.Module) else []):
            for parameter in root.parameters():
                self.parameters[id(parameter)] = parameter
            for buffer in root.buffers():
                self.memory.tag(buffer, PARAMETERS)
        for parameter in self.parameters.values():
            self.memory.tag(parameter, PARAMETERS)
            if parameter.grad is not None:
                self.memory.tag(parameter.grad, GRADIENTS)

    @contextlib.contextmanager
    def watched(self):
        """Hooks every module and optimizer, so that the step knows when they run."""
        from torch.optim import Optimizer
        from torch.optim import optimizer as optimizers

        zero_grad, call = Optimizer.zero_grad, torch.nn.Module.__call__

        def calling(module, *args, **kwargs):
            compiled = module.__dict__.get(COMPILED)
            is_compiled = compiled is not None or (self.compiles_all and not self.modules)
            self.enter(module, (args, kwargs))
            try:
                if is_compiled:
                    return self.run_compiled(call, (module, *args), kwargs, **(compiled or {}))
                return call(module, *args, **kwargs)
            finally:
                if self.modules:
                    self.modules.pop()

        def zeroing(optimizer, *args, **kwargs):
            self.in_optimizer += 1
            try:
                return zero_grad(optimizer, *args, **kwargs)
            finally:
                self.in_optimizer -= 1

        handles = [
            optimizers.register_optimizer_step_pre_hook(self.before_update),
            optimizers.register_optimizer_step_post_hook(self.after_update),
        ]
        Optimizer.zero_grad, torch.nn.Module.__call__ = zeroing, calling
        try:
            yield
        finally:
            Optimizer.zero_grad, torch.nn.Module.__call__ = zero_grad, call
            for handle in handles:
                handle.remove()


def takes_apart(kind):
    """Whether a tensor class decomposes its operators, as 8-bit tensors do: those run on the device."""
    disabled = torch._C._disabled_torch_dispatch_impl
    return kind.__torch_dispatch__ is not disabled and not issubclass(kind, FakeTensor)


class Recorder(TorchDispatchMode):
    """Runs calls on fake tensors, tracks the memory of a step's tensors and keeps the calls of the last step.
    """

    def __init__(self, step):
        super().__init__()
        self.step = step
        self.rows, self.calls = None, 0
        # Calls of forward and backward that are launched, and those that are replayed as CUDA graphs.
        self.launched, self.replayed = 0, 0

    def record(self):
        self.rows, self.calls, self.launched, self.replayed = {}, 0, 0, 0
        self.step.fusion = Fusion(self.step.memory)

    def told(self):
        """The rows of the step."""
        fused = self.step.fusion.rows()
        self.calls += sum(row["count"] for row in fused)
        if fused:
            self.step.note(NOTE)
        elif (self.step.compiles_all or ASKED) and flex.INSIDE not in self.step.notes:
            self.step.note(NOTHING)
        return [*self.rows.values(), *fused]

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace in ("prim", "profiler"):
            return func(*args, **kwargs)
        if any(takes_apart(kind) for kind in types):
            return NotImplemented
        if func is torch.ops.aten.item.default:
            func = torch.ops.aten._local_scalar_dense.default  # What it calls, except for tensors made of other tensors.
        apart = APART.get(func._schema.name)
        if apart is not None:
            with self:
                return apart(*args, **kwargs)
        step = self.step
        if step.stage != "step":
            out = self.valued(func, args, kwargs)
            note_elements(args, out)
            return out
        phase = step.phase()
        # Module and phase are those of the call; its parts are not the user's.
        with torch._C.DisableTorchFunction():
            out = self.valued(func, args, kwargs)
        note_rows(args, out)
        note_elements(args, out)
        view = func.is_view or func is torch.ops.aten.detach.default
        if view and self.rows is None:
            return out
        self.remember(func, phase, args, kwargs, out)
        if self.rows is not None and not self.is_fused(func, phase, args, kwargs, out, view):
            self.calls += 1
            if not view:
                self.keep(func, phase, args, kwargs, out)
        return out

    def is_fused(self, func, phase, args, kwargs, out, view):
        """Whether a call is part of a kernel of `torch.compile`."""
        region, fusion = self.step.region(phase), self.step.fusion
        given = [*flat(args), *flat(kwargs.values())]
        if view:
            return False
        if phase in ("forward", "backward"):
            is_replayed = region is not None and region[0] in self.step.graphs
            self.replayed, self.launched = self.replayed + is_replayed, self.launched + (not is_replayed)
        if region is None or not fuses(func):
            fusion.alone(given)
            return False
        fusion.enter(region)
        fusion.fused(func, args, (phase, self.step.module(phase)), given, list(flat((out,))))
        return True

    def valued(self, func, args, kwargs):
        """Runs a call, with the values of small tensors if they are known."""
        is_read = func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        try:
            out = self.answer(func, args, kwargs) if not is_read else None
        except Exception as error:
            if type(error).__name__ != "DynamicOutputShapeException":
                raise
            # The size of the result depends on values.
            real, places = values.computed(func, args, kwargs), values.by_places(func, args)
            if real is None and places is None:
                raise
            mode = next(value.fake_mode for value in flat(args) if isinstance(value, FakeTensor))
            faked = lambda made: tree_map(lambda value: mode.from_tensor(value) if is_real(value) else value, made)
            self.step.refused = None
            self.mark(args, kwargs)
            if real is None:
                return self.answer(func, faked(places), kwargs)
            out = faked(real)
            values.keep(out, real, (args, kwargs))
            return out
        if is_read:
            real = values.computed(func, args, kwargs)
            if real is None:
                return self.answer(func, args, kwargs)
            self.mark(args, kwargs)
            return real
        real = values.computed(func, args, kwargs) if values.is_small(out) or func.is_view else None
        if real is None:
            real = values.folded(func, args, kwargs, out)
        if real is None:
            real = values.constant(func, args, kwargs, out)
        if real is None:
            values.forget(func, args, kwargs)
            values.spread(func, args, kwargs, out)
        else:
            values.keep(out, real, (args, kwargs))
        return out

    def mark(self, args, kwargs):
        """Notes that a call depends on values that are not the step's own."""
        if values.are_spread(args, kwargs):
            self.step.note(CHOSEN)

    def answer(self, func, args, kwargs):
        known = CALLS.get(str(func))
        if known is not None:
            return known(*args, **kwargs)
        part = part_of_rows(func, args)
        if part is not None:
            return part
        self.step.inside += 1
        try:
            return func(*args, **kwargs)
        except Exception as error:
            if type(error).__name__ != "DataDependentOutputException" or "_local_scalar_dense" not in str(error):
                shapes = [str(list(value.shape)) for value in flat(args)]
                self.step.refused = (error, "::".join(str(func).split(".")[:2]), shapes)
                raise
            if not args[0].dtype.is_floating_point:
                raise
            self.step.note(
                "the step reads numbers back from tensors (such as loss.item()); each was answered with %g" % ANSWER
            )
            return ANSWER
        finally:
            self.step.inside -= 1

    def remember(self, func, phase, args, kwargs, out):
        memory = self.step.memory
        for value in flat(args):
            memory.see(value)
        if kwargs:
            for value in flat(kwargs.values()):
                memory.see(value)
        host = func is torch.ops.aten.lift_fresh.default
        if phase == "optimizer":
            # A tensor older than the step that it changes, as averages of parameters, is not an input.
            for value in values.written(func, args, kwargs):
                memory.keep_as_state(value)
        for value in flat((out,)):
            if host and value.dim() == 0:
                memory.on_host(value)
            else:
                memory.see(value, phase)

    def keep(self, func, phase, args, kwargs, out):
        module = self.step.module(phase)
        how = access([*flat(args), *flat(kwargs.values())], list(flat((out,))))
        spread = torch.Tag.pointwise in func.tags
        pairs = pairs_of_packed(func, args, kwargs)
        if pairs is not None:
            kwargs = dict(kwargs, pairs=pairs)
        count = elements(flat(args))
        if count is not None:
            kwargs = dict(kwargs, nonzero=count)
        named = tuple((name, frozen(value)) for name, value in kwargs.items())
        key = (func, phase, module, frozen(args, spread), named, how)
        row = self.rows.get(key)
        if row is None:
            name, inputs = dense(func, args)
            row = self.rows[key] = {
                "op": name,
                "phase": phase,
                "module": module,
                "inputs": inputs,
                "kwargs": short_map(kwargs),
                "outputs": [short(value) for value in flat((out,))],
                "count": 0,
            }
            if how is not None:
                row["access"] = how
            if self.step.region(phase) is not None and is_padded(func, args):
                row["kwargs"] = dict(row["kwargs"] or {}, padded=True)
        row["count"] += 1


def short_map(kwargs):
    return {name: short(value) for name, value in kwargs.items()} or None


def flat(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from flat(value)
