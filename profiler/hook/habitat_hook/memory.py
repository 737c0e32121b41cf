"""Memory that stays in use between two steps."""

from .optimizers import tensor_of, trained


def peak_memory():
    """Peak memory of tensors on this process's GPU since it started, in bytes."""
    import torch

    try:
        if torch.cuda.is_initialized():
            return int(torch.cuda.max_memory_allocated())
    except Exception:
        pass
    return None


def held(optimizers, modules):
    """Bytes of the parameters, their gradients and the optimizers' state right after a step: reads sizes only,
    no values. None if unknown."""
    try:
        parameters = {}
        for optimizer in optimizers:
            for parameter in trained(optimizer):
                parameters[id(parameter)] = parameter
        own = list(parameters.values())
        for module in modules:
            for tensor in list(module.parameters()) + list(module.buffers()):
                parameters[id(tensor)] = tensor
        device = own[0].device.type
        sizes = Sizes(device)
        total = {"device": device, "parameters_bytes": sizes.of(parameters.values())}
        # Reading .grad of a tensor that is not a leaf makes torch warn.
        gradients = [parameter.grad for parameter in own if parameter.is_leaf]
        total["gradients_bytes"] = sizes.of(gradients)
        total["optimizer_state_bytes"] = sizes.of([state(optimizer) for optimizer in optimizers])
        total["whole_model"] = bool(modules) and sizes.complete
        return total if sizes.complete else None
    except Exception:
        return None


def state(optimizer):
    """The tensors that an optimizer keeps; all its attributes if its class is not PyTorch's."""
    kept = getattr(optimizer, "state", None)
    return list(kept.values()) if isinstance(kept, dict) else vars(optimizer)


class Sizes:
    """Bytes of tensors on one kind of device; each tensor counts once."""

    MOST = 200000

    def __init__(self, device):
        import torch

        self.torch = torch
        self.device = device
        self.seen = set()
        self.complete = True

    def of(self, values, depth=0):
        if isinstance(values, dict):
            values = values.values()
        total = 0
        for value in values:
            tensor = tensor_of(value)
            if tensor is not None:
                total += self.one(tensor)
            elif depth < 3 and isinstance(value, (dict, list, tuple)):
                total += self.of(value, depth + 1)
        return total

    def one(self, tensor):
        tensor = getattr(tensor, "_local_tensor", tensor)  # A DTensor's share of this rank.
        if id(tensor) in self.seen or tensor.device.type != self.device:
            return 0
        if len(self.seen) >= self.MOST or tensor.layout is not self.torch.strided:
            self.complete = False
            return 0
        self.seen.add(id(tensor))
        return tensor.numel() * tensor.element_size()
