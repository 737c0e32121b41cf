"""What the hook asks of PyTorch, of any version from 2.1 on."""

import sys

OLDEST = (2, 1)


def torch_version():
    for name in ("torch", "torch.version"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            return str(version)
    return None


def is_too_old(version):
    digits = (version or "").split("+")[0].split(".")
    try:
        return (int(digits[0]), int(digits[1])) < OLDEST
    except (IndexError, ValueError):
        return False


def compiled():
    """Whether torch.compile has compiled anything in this process."""
    utils = sys.modules.get("torch._dynamo.utils")
    frames = getattr(utils, "counters", {}).get("frames", {}) if utils is not None else {}
    return bool(frames.get("total"))


def capturing():
    """Whether a CUDA graph is being captured: torch.profiler waits for the device when it
    starts and stops, and CUDA then gives the capture up with an error in the program."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def in_backward():
    """Whether autograd is at work in this thread. What a hook of its starts there, it takes
    out of the thread when it goes on: a profiler would be neither running nor stopped."""
    import torch

    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def all_threads():
    """What has torch.profiler record all threads, and lets each of them stop it; None where
    PyTorch has no such thing."""
    import torch

    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return None


def autocast():
    """The data type that autocast computes in, where it is on."""
    import torch

    for device in ("cuda", "cpu"):
        try:
            if torch.is_autocast_enabled(device):
                return str(torch.get_autocast_dtype(device)).replace("torch.", "")
        except TypeError:  # Before torch 2.4.
            suffix = "" if device == "cuda" else "_cpu"
            if getattr(torch, "is_autocast%s_enabled" % suffix)():
                dtype = "gpu" if device == "cuda" else "cpu"
                return str(getattr(torch, "get_autocast_%s_dtype" % dtype)()).replace("torch.", "")
    return None
