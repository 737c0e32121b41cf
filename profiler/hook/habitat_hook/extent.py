"""How much a window is to record, told before it opens at no cost."""

# Events of a window at most, of one step and of several. On a machine of 2026, with shapes: 430
# bytes of trace each, 3.5 kB of memory once the profiler has stopped, 8 us that the training
# stands still, and in the first window of a process, whose memory is new, 15 us.
MOST_EVENTS, MOST_OF_SEVERAL = 100_000, 40_000
# Events of a step for each node of autograd (its operators in the forward and the backward
# pass, and those within them), for each parameter that an optimizer steps in a loop, and for
# each call of a module that autograd does not see. Found: 7 to 10, 25 to 60, 7.
PER_NODE, PER_PARAMETER, PER_CALL = 10, 30, 8
# How many times more with kernels of a GPU, with allocations, with calls of Python.
WITH_KERNELS, WITH_MEMORY, WITH_STACKS = 1.5, 1.5, 4.0


def nodes():
    """Nodes of autograd that this thread has made so far; 0 where PyTorch does not tell."""
    import torch

    count = getattr(torch.autograd, "_get_sequence_nr", None)
    return count() if count is not None else 0


def steps(wanted, total):
    """Steps to record of `wanted`, each with `total` events; 0 if one is too many."""
    return min(wanted, max(MOST_OF_SEVERAL // max(total, 1), int(total <= MOST_EVENTS)))


def events(made, parameters, calls, settings):
    """Events of a step with so many nodes, trained parameters, and calls without gradients."""
    import torch

    if torch.cuda.is_initialized():
        # Optimizers work on all tensors at once there.
        total = (PER_NODE * made + parameters + PER_CALL * calls) * WITH_KERNELS
    else:
        total = PER_NODE * made + PER_PARAMETER * parameters + PER_CALL * calls
    total *= WITH_MEMORY if settings["memory"] else 1
    return int(total * (WITH_STACKS if settings.get("stacks") else 1))
