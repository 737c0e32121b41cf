"""What the model is given: a look at one step."""

import dataclasses
import inspect
import weakref
from collections.abc import Mapping

from .pytorch import autocast, in_backward, is_batched
from .signals import Held

# Inputs whose shapes are told, and how deep containers of tensors are looked into.
MOST = 16
DEEP = 3


class Inputs:
    """Watches the calls of modules from now on, until it is told to stop.

    The model is the first module in training that owns parameters which the optimizer
    trains; a module of a data loader, such as a normalisation, owns none.
    """

    def __init__(self, optimizer):
        import torch
        from torch.nn.modules import module

        self.trained = {id(one) for group in optimizer.param_groups for one in group["params"]}
        self.found = {
            "calls": 0,
            "autocast": None,
            "module": None,
            "inputs": [],
            "leads": [],
            "lists": False,
            "opaque": None,
            "sequence_first": False,
        }
        self.model = None
        # Whether the model owns what the optimizer trains, or only what could be trained:
        # some optimizers keep copies of the parameters.
        self.is_sure = False
        # The modules that the program calls itself, and those that they call.
        self.outer = {}
        self.inner = set()
        # Calls that autograd does not see.
        self.unseen = 0
        has_gradients = torch.is_grad_enabled

        def guarded(call, *arguments):
            with Held():
                try:
                    call(*arguments)
                except Exception:
                    pass  # Less is known of the model then.

        def before(called, inputs):
            if not has_gradients():
                self.unseen += 1
            if id(called) not in self.inner or self.found["autocast"] is None:
                guarded(self.begins, called)

        def after(called, inputs, keywords, result=None):
            if self.model is not None and self.model() is called:
                guarded(self.ends, inputs, keywords)

        def after_without(called, inputs, result):
            after(called, inputs, {})

        for hook in (before, after, after_without):
            hook._torchdynamo_disable = True
        self.handles = [module.register_module_forward_pre_hook(before)]
        try:
            self.handles.append(module.register_module_forward_hook(after, with_kwargs=True))
        except TypeError:  # PyTorch 2.1 tells positional arguments only.
            self.handles.append(module.register_module_forward_hook(after_without))

    def trains(self, called):
        import torch

        return called.training and torch.is_grad_enabled() and not in_backward()

    def begins(self, called):
        trains = self.trains(called)
        if trains and self.found["autocast"] is None:
            self.found["autocast"] = autocast()
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
                self.found.update(calls=0, inputs=[], leads=[], lists=False, opaque=None)
                self.found["module"] = type(called).__name__
                flags = (getattr(module, "batch_first", None) for module in called.modules())
                self.found["sequence_first"] = any(flag is False for flag in flags)

    def ends(self, inputs, keywords):
        """The model has been called; its inputs are those of the first call, and of later ones
        their first extents."""
        if not self.trains(self.model()):
            return
        found = self.found
        found["calls"] += 1
        # Of later calls only the shapes are of interest.
        seen = found if found["calls"] == 1 else dict(found, inputs=[])
        for value in (*inputs, *keywords.values()):
            self.look(value, seen, 0)
        lead = seen["inputs"][0]["shape"][0] if seen["inputs"] else 0
        if lead not in found["leads"] and len(found["leads"]) < MOST:
            found["leads"].append(lead)

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
                # One tensor a sample, or several inputs: shapes do not say which.
                found["lists"] = True
            else:
                for one in value:
                    self.look(one, found, depth + 1)
        elif dataclasses.is_dataclass(value):
            for one in vars(value).values():
                self.look(one, found, depth + 1)
        elif not isinstance(value, (type, torch.nn.Module)) and not inspect.isroutine(value):
            found["opaque"] = type(value).__name__

    def stop(self):
        for handle in self.handles:
            handle.remove()
