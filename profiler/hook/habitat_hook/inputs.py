"""Watches one step for the inputs of the model."""

import dataclasses
import inspect
import sys
import time
import weakref
from collections.abc import Mapping

from .optimizers import trained
from .pytorch import autocast, in_backward, is_batched, set_eval_frame, skip, tf32
from .signals import Held
from .times import FORWARD, MARK

# Most inputs whose shapes are reported, and depth to which containers of tensors are searched.
MOST = 16
DEEP = 3


class Inputs:
    """Watches the calls of modules in this thread until `stop`.

    Uses Python's own `sys.setprofile`: code that compiles, exports or copies modules meanwhile would see hooks
    on them.

    The model is the first module in training that owns parameters of the optimizer; a module of a data loader,
    such as a normalisation, owns none.
    """

    def __init__(self, optimizer, sums):
        import torch

        self.trained = {id(one) for one in trained(optimizer)}
        self.found = {
            "calls": 0,
            "autocast": None,
            "tf32": None,
            "module": None,
            "inputs": [],
            "leads": [],
            "lists": False,
            "opaque": None,
            "sequence_first": False,
            "again": False,
        }
        # The first tensor of the model's first call.
        self.first = None
        self.model = None
        # Whether the model owns the optimizer's parameters, or only parameters that could be trained: some
        # optimizers keep copies.
        self.is_sure = False
        # The modules that the program calls itself, and those that they call.
        self.outer = {}
        self.inner = set()
        # Calls that autograd does not see.
        self.unseen = 0
        # `sums`: the sums of `Times`. `forward`: its forward time at the beginning. `ahead`: the program's time
        # from marks to the first call of the model in training after them. `own`, `since`: time of our own
        # looks, in all and since the last mark. `mark`: the last mark. `marked`: the last mark after which the
        # model was called.
        self.sums, self.forward = sums, sums[FORWARD]
        self.ahead, self.own, self.since, self.mark, self.marked = 0.0, 0.0, 0.0, None, None
        self.over = False
        call, has_gradients = torch.nn.Module._call_impl.__code__, torch.is_grad_enabled
        # Traced or exported code has no shapes of its own.
        traced = torch.jit.is_tracing, getattr(torch.compiler, "is_compiling", bool)

        def seen(frame, event, argument):
            if event != "call" or frame.f_code is not call:
                return
            if self.over:
                sys.setprofile(None)  # Another thread ended the watch.
                return
            callback, began = set_eval_frame(None), time.perf_counter()
            if self.mark != sums[MARK]:
                self.mark, self.since = sums[MARK], 0.0
            try:
                with Held():
                    try:
                        if not has_gradients():
                            self.unseen += 1
                        if not any(is_traced() for is_traced in traced):
                            there = frame.f_locals
                            self.called(there["self"], there["args"], there["kwargs"], began)
                    except Exception:
                        pass  # Then less is known of the model.
            finally:
                took = time.perf_counter() - began
                if not in_backward():
                    self.own, self.since = self.own + took, self.since + took
                set_eval_frame(callback)

        self.seen = seen
        skip(seen.__code__)
        # Yappi's profile function has no object that sys.getprofile() could return.
        if sys.getprofile() is None and "_yappi" not in sys.modules:
            sys.setprofile(seen)

    def called(self, module, inputs, keywords, began):
        if id(module) not in self.inner or self.found["autocast"] is None:
            self.begins(module)
        if self.model is not None and self.model() is module:
            self.given(inputs, keywords)
            if self.marked != self.mark and self.trains(module):
                self.marked = self.mark
                self.ahead += began - self.mark - self.since

    def trains(self, called):
        import torch

        return called.training and torch.is_grad_enabled() and not in_backward()

    def begins(self, called):
        trains = self.trains(called)
        if trains and self.found["autocast"] is None:
            self.found["autocast"] = autocast()
        if trains and self.found["tf32"] is None:
            self.found["tf32"] = tf32()
        if id(called) in self.inner:
            return
        if id(called) not in self.outer:
            self.outer[id(called)] = weakref.ref(called)
            self.inner.update(id(module) for module in called.modules() if module is not called)
        if trains and not self.is_sure and (self.model is None or self.model() is not called):
            parameters = list(called.parameters())
            is_sure = any(id(one) in self.trained for one in parameters)
            if is_sure or self.model is None and any(one.requires_grad for one in parameters):
                self.is_sure = is_sure
                self.model = weakref.ref(called)
                self.found.update(calls=0, inputs=[], leads=[], lists=False, opaque=None, again=False)
                self.first = None
                self.found["module"] = type(called).__name__
                flags = (getattr(module, "batch_first", None) for module in called.modules())
                self.found["sequence_first"] = any(flag is False for flag in flags)

    def given(self, inputs, keywords):
        """A call of the model. Keeps the inputs of the first call, and the first extents of later ones."""
        if not self.trains(self.model()):
            return
        found = self.found
        found["calls"] += 1
        # Later calls: only the shapes matter.
        seen = found if found["calls"] == 1 else dict(found, inputs=[])
        values = *inputs, *keywords.values()
        for value in values:
            self.look(value, seen, 0)
        found["again"] = found["again"] or self.is_again(values)
        lead = seen["inputs"][0]["shape"][0] if seen["inputs"] else 0
        if lead not in found["leads"] and len(found["leads"]) < MOST:
            found["leads"].append(lead)

    def is_again(self, values):
        """Whether this call may repeat the samples of another: it has the same tensor, or one that an adversary
        changes, or another network generates or judges them."""
        import torch

        tensor = next((value for value in values if isinstance(value, torch.Tensor)), None)
        if tensor is None:
            return False
        if self.first is None:
            self.first = weakref.ref(tensor)
        elif self.first() is tensor:
            return True
        others = (module for module in (there() for there in self.outer.values()) if module is not None)
        return tensor.requires_grad or sum(any(True for _ in one.parameters()) for one in others) > 1

    def look(self, value, found, depth):
        import torch

        if isinstance(value, torch.Tensor):
            if value.layout is not torch.strided:
                found["opaque"] = "sparse tensor"
            elif is_batched(value):
                found["opaque"] = "tensor of torch.func.vmap"
            elif value.dim() > 0 and len(found["inputs"]) < MOST:
                shape = [int(extent) for extent in value.shape]
                found["inputs"].append({"shape": shape, "dtype": str(value.dtype).replace("torch.", "")})
        elif value is None or isinstance(value, (str, bytes, int, float, complex, torch.dtype, torch.device)):
            pass
        elif depth >= DEEP:
            found["opaque"] = type(value).__name__
        elif isinstance(value, Mapping):
            for one in value.values():
                self.look(one, found, depth + 1)
        elif isinstance(value, (list, tuple)):
            ranks = [one.dim() for one in value if isinstance(one, torch.Tensor)]
            if ranks and len(set(ranks)) == 1:
                # One tensor per sample, or several inputs: the shapes do not show which.
                found["lists"] = True
            else:
                for one in value:
                    self.look(one, found, depth + 1)
        elif dataclasses.is_dataclass(value):
            for one in vars(value).values():
                self.look(one, found, depth + 1)
        elif not isinstance(value, (type, torch.nn.Module)) and not inspect.isroutine(value):
            found["opaque"] = type(value).__name__

    def passes(self):
        """Time of the program in a step before it calls the model, as in loading without a DataLoader or in a
        pause, and the time of its forward passes from there."""
        whole = self.sums[FORWARD] - self.forward
        return self.ahead, max(whole - self.ahead - self.own, 0.0)

    def stop(self):
        self.over = True
        if sys.getprofile() is self.seen:
            sys.setprofile(None)
