"""The calls of a step, as PyTorch dispatches them, with phase and module.

The phase of a call: backward while autograd runs a graph (gradient accumulation where its
node is AccumulateGrad); forward inside a module, or before the first backward pass;
optimizer inside an optimizer's step and zero_grad, and from the end of a backward pass to
the next module's forward (clipping, unscaling).
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

# Calls that are answered by their shapes.
CALLS = {**recurrent.CALLS, **norms.CALLS, **losses.CALLS, **flex.CALLS}
# Read back from a tensor in place of the number that nobody computed.
ANSWER = 1.0
# Where a sparse tensor keeps how many rows it has: without values PyTorch knows of none.
ROWS = "_habitat_rows"
# The same of all elements that a sparse matrix has.
ELEMENTS = "_habitat_elements"
# Where something depends on values that nobody computed.
CHOSEN = (
    "a size or a value that the step reads depends on what a top-k or an argmax chose; the choices were spread evenly, "
    "as tokens over experts"
)
# Beginnings of the names of arguments with the ends of sequences that lie one after another.
ENDS = ("cu_seq", "cum_seq", "seqstart")
# The number of a layer in a module's path: layers.3.norm, encoder_layer_3.
NUMBER = re.compile(r"(^|[._])\d+(?=\.|$)")


# Where the channels of a pixel lie side by side (NHWC, NDHWC), by dimensions.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def has_channels_last(tensor):
    """Whether it has, and is not in the usual order of memory as well, as with one channel."""
    form = CHANNELS_LAST.get(tensor.dim()) if tensor.layout is torch.strided else None
    return form is not None and tensor.is_contiguous(memory_format=form) and not tensor.is_contiguous()


def steps_of(tensor):
    """How far apart elements lie, by dimension of more than one."""
    return [(step, size) for step, size in zip(tensor.stride(), tensor.shape) if size > 1]


def is_dense(steps):
    """Whether elements that lie so fill their place in memory, in any order of dimensions."""
    expected = 1
    for step, size in sorted(steps):
        if step != expected:
            return False
        expected *= size
    return True


def access(given, made):
    """How a call passes over its tensors where not as they lie in memory: "strided" over parts of rows, or rows in
    another order; "transposed" where elements that are neighbours in one tensor are not in another. Tensors of
    fewer elements than the result, and what is spread over it, say nothing."""
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
        # A sum over everything takes it as it lies.
        if (first.numel() == 1 or steps == own) and is_dense(steps):
            continue
        if tensor.shape == first.shape and steps.index(min(steps)) != own.index(min(own)):
            return "transposed"
        found = "strided"
    return found


def shape(tensor, spread=False):
    """Its sizes; of one that is `spread` over others, what is read of it; of a sparse one, the rows that it has."""
    if hasattr(tensor, ROWS):
        return (getattr(tensor, ROWS), *tensor.shape[1:])
    if spread and tensor.layout is torch.strided and 0 in tensor.stride():
        return tuple([1 if step == 0 else size for step, size in zip(tensor.stride(), tensor.shape)])
    return tensor.shape


def short(value, spread=False):
    """An argument as the op list has it."""
    if isinstance(value, torch.Tensor):
        told = {"shape": [int(size) for size in shape(value, spread)], "dtype": str(value.dtype)[6:]}
        if has_channels_last(value):
            told["layout"] = "channels_last"
        return told
    if isinstance(value, (list, tuple)):
        return [short(item, spread) for item in value]
    if isinstance(value, float):
        # JSON has no other numbers.
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
    """Notes on results whose rows are sparse, as gradients of look-ups are, how many they have: those of what they
    are made of, or as many as places were looked up."""
    for made in flat((out,)):
        if made.layout is not torch.sparse_coo or made.sparse_dim() != 1 or hasattr(made, ROWS):
            continue
        given = list(flat(args))
        rows = [getattr(value, ROWS) for value in given if hasattr(value, ROWS)]
        rows = rows or [value.shape[-1] if value.dim() else 1 for value in given if value.dtype is torch.int64]
        if rows:
            setattr(made, ROWS, max(rows))


def note_elements(args, out):
    """Notes on sparse matrices how many elements they have: those of the values that they are made of, or of the
    matrix."""
    for made in flat((out,)):
        if made.layout is torch.strided or hasattr(made, ROWS) or made.layout is torch.sparse_coo and made.sparse_dim() < 2:
            continue
        given = list(flat(args))
        counts = [getattr(value, ELEMENTS) for value in given if hasattr(value, ELEMENTS)]
        # The values come last, behind their places.
        counts = counts or [value.shape[0] for value in given[1:][-1:] if value.layout is torch.strided and value.dim()]
        if counts:
            setattr(made, ELEMENTS, counts[0])


def elements(given):
    """Elements of the first sparse matrix among some tensors; None without one."""
    return next((getattr(value, ELEMENTS) for value in given if hasattr(value, ELEMENTS)), None)


def part_of_rows(func, args):
    """The values or the places of a tensor whose rows are sparse; None of another."""
    rows = getattr(args[0], ROWS, None) if args else None
    if rows is None or func not in (torch.ops.aten._values.default, torch.ops.aten._indices.default):
        return None
    if func is torch.ops.aten._values.default:
        return torch.empty((rows, *args[0].shape[1:]), dtype=args[0].dtype)
    return torch.empty((1, rows), dtype=torch.int64)


def dense(func, args):
    """A call that adds a sparse tensor to another is one that adds rows."""
    is_sparse = len(args) > 1 and hasattr(args[1], ROWS)
    if func is not torch.ops.aten.add_.Tensor or not is_sparse:
        return str(func), short(args, torch.Tag.pointwise in func.tags)
    places = {"shape": [getattr(args[1], ROWS)], "dtype": "int64"}
    return "aten.index_add_.default", [short(args[0]), 0, places, short(args[1])]


def pairs_of_packed(func, args, kwargs):
    """Pairs of a query and a key in attention over sequences that lie one after another, by the ends of the sequences;
    None for other calls, and if the ends are unknown."""
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
    """What is known of the step while it runs: shared by the modes and the hooks."""

    def __init__(self):
        self.stage = "import"
        # PyTorch works out the result of a call.
        self.inside = 0
        self.memory = Memory()
        self.notes = []
        self.optimizers, self.parameters, self.roots = [], {}, []
        self.steps_made = 0
        self.autocast = None
        self.inputs = None
        # Whether all models are taken for compiled.
        self.compiles_all = False
        # What compiled calls are fused into, in the step that is recorded.
        self.fusion = None
        # The last call that PyTorch had no result for: (error, operator, shapes).
        self.refused = None
        self.reset()

    def reset(self):
        """Before each step."""
        self.modules, self.in_optimizer = [], 0
        self.after_backward = self.had_backward = self.in_backward = False
        self.updates = self.backwards = 0
        # Of each model the calls for the same update, the updates and backward passes before the last of them, and what
        # it was given; the most calls, and whether one was given the same again.
        self.micro_batches, self.most_calls, self.again = {}, 1, False
        self.names, self.module_of = {}, {}
        # Compiled functions that run now; which entry of one autograd's nodes come from; entries that are replayed as
        # CUDA graphs.
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
        """The path of the module that a call belongs to; layers that differ by a number
        alone are one."""
        if phase == "forward":
            path = self.modules[-1] if self.modules else None
            # The node that autograd has just made for this call has the last number.
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
        """Calls what `torch.compile` was given."""
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
        """A module's forward begins; within backward it is made again, and backward goes on."""
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
        """A model is called again for the same update where its gradients of another backward pass are kept; with the
        same tensors, as where an attack on them is trained with, it may be given no other samples."""
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
            # What an optimizer does by default where the parameters are on a GPU.
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
        """Every module and optimizer tells when it runs."""
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
    """Whether tensors of a class do operators by others, as those in 8 bits do: these run on the device."""
    disabled = torch._C._disabled_torch_dispatch_impl
    return kind.__torch_dispatch__ is not disabled and not issubclass(kind, FakeTensor)


class Recorder(TorchDispatchMode):
    """Runs calls on fake tensors, counts the memory of those of a step and keeps the last
    step's."""

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
            func = torch.ops.aten._local_scalar_dense.default  # What it calls, but for tensors that are made of others.
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
        # Module and phase are those of the call; what it is made of is not the user's.
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
        """Whether a call is a part of a kernel of `torch.compile`."""
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
        """A call, with the values of small tensors where they are known."""
        is_read = func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.equal.default)
        try:
            out = self.answer(func, args, kwargs) if not is_read else None
        except Exception as error:
            if type(error).__name__ != "DynamicOutputShapeException":
                raise
            # How large the result is depends on the values.
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
        """Notes it where the values that a call depends on are not the step's own."""
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
            # What is there before the step and changes in it, as averages of parameters do, is no input.
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
