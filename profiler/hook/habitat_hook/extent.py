"""Estimates how much a window will record, at no cost, before it opens."""

# Most events of a window of one step, and of several. Measured on a machine of 2026, with shapes, per event:
# 430 bytes of trace, 3.5 kB of memory once the profiler has stopped, 8 us of training time; 15 us in the first
# window of a process, whose memory is new.
MOST_EVENTS, MOST_OF_SEVERAL = 100_000, 40_000
# Events of a step per autograd node (its operators in the forward and the backward pass, and those within
# them), per parameter that an optimizer steps in a loop, and per call of a module that autograd does not see.
# Measured: 7 to 10, 25 to 60, 7.
PER_NODE, PER_PARAMETER, PER_CALL = 10, 30, 8
# Factors with GPU kernels, with allocations, with Python calls.
WITH_KERNELS, WITH_MEMORY, WITH_STACKS = 1.5, 1.5, 4.0


def nodes():
    """Autograd nodes that this thread has created so far; 0 if PyTorch does not report it."""
    import torch

    count = getattr(torch.autograd, "_get_sequence_nr", None)
    return count() if count is not None else 0


def steps(wanted, total):
    """Number of the `wanted` steps to record, at `total` events each; 0 if one step is too many."""
    return min(wanted, max(MOST_OF_SEVERAL // max(total, 1), int(total <= MOST_EVENTS)))


def events(made, parameters, calls, settings):
    """Events of a step with this many nodes, trained parameters, and calls without gradients."""
    import torch

    if torch.cuda.is_initialized():
        # On a GPU, optimizers handle all tensors at once.
        total = (PER_NODE * made + parameters + PER_CALL * calls) * WITH_KERNELS
    else:
        total = PER_NODE * made + PER_PARAMETER * parameters + PER_CALL * calls
    total *= WITH_MEMORY if settings["memory"] else 1
    return int(total * (WITH_STACKS if settings.get("stacks") else 1))
