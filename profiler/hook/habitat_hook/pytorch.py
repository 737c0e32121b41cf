"""PyTorch's interfaces that the hook needs, for every version from 2.1 on."""

import os
import sys

OLDEST = (2, 1)


def torch_version():
    for name in ("torch", "torch.version"):
        version = getattr(sys.modules.get(name), "__version__", None)
        if version:
            return str(version)
    return None


def is_before(version, other):
    digits = (version or "").split("+")[0].split(".")
    try:
        return (int(digits[0]), int(digits[1])) < other
    except (IndexError, ValueError):
        return False


def capturing():
    """Whether a CUDA graph is being captured. torch.profiler waits for the device when it starts and stops;
    during a capture CUDA then fails with an error in the program."""
    import torch

    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def in_backward():
    """Whether autograd runs in this thread. If a hook of autograd starts a profiler there, autograd removes it
    from the thread when it goes on: it would be neither running nor stopped."""
    import torch

    task = getattr(torch._C, "_current_graph_task_id", None)
    return task is not None and task() != -1


def all_threads():
    """A setting that makes torch.profiler record all threads, each of which may then stop it; None if PyTorch
    has no such setting."""
    import torch

    try:
        return torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    except (AttributeError, TypeError):
        return None


def is_batched(tensor):
    """Whether torch.func.vmap has batched the tensor."""
    import torch

    functorch = getattr(torch._C, "_functorch", None)
    if functorch is None or not hasattr(functorch, "is_functorch_wrapped_tensor"):
        return False
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def autocast():
    """The data type that autocast computes in, if it is on."""
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


def tf32():
    """Whether matrix products may run in TF32, and whether cuDNN's convolutions and recurrent layers may."""
    import os

    import torch

    override = os.environ.get("NVIDIA_TF32_OVERRIDE")
    if override in ("0", "1"):
        return [override == "1"] * 2  # The libraries obey it, not PyTorch's flags.

    def allowed(new, old):
        # From PyTorch 2.9 on: if a program sets these, reading the old flags is an error.
        precision = getattr(new, "fp32_precision", None)
        return bool(old.allow_tf32) if precision is None else precision == "tf32"

    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    return [allowed(cuda.matmul, cuda.matmul), allowed(getattr(cudnn, "conv", cudnn), cudnn)]


def end_kineto_thread():
    """Ends the thread that Kineto starts with the first profiler of a process, to wait for requests of a
    daemon. A child of os.fork() lacks that thread, but the destructor of libkineto::ConfigLoader waits for its
    end: forever, or until it aborts."""
    if "KINETO_USE_DAEMON" in os.environ:
        return  # The job uses the daemon.
    import ctypes

    import torch

    try:
        library = ctypes.CDLL(torch._C.__file__)  # With the libraries that it links to.
        instance = library._ZN9libkineto12ConfigLoader8instanceEv
        stop = library._ZN9libkineto12ConfigLoader10stopThreadEv
    except (AttributeError, OSError):
        return  # This PyTorch hides them.
    instance.restype, stop.argtypes, stop.restype = ctypes.c_void_p, [ctypes.c_void_p], None
    stop(instance())


def set_eval_frame(callback):
    """Sets the function that the interpreter calls for every frame of this thread, for torch.compile, and
    returns the previous one. torch.compiler.disable does the same, but would load torch._dynamo."""
    from torch._C._dynamo import eval_frame

    return eval_frame.set_eval_frame(callback)


def in_region():
    """Whether this runs inside code of torch.compile, or inside the step of an optimizer that another one
    calls. PyTorch warns if its profiler stops inside such a region."""
    frame, steps = sys._getframe(), 0
    while frame is not None:
        name = frame.f_globals.get("__name__")
        # PyTorch wraps every optimizer's step() there.
        steps += name == "torch.optim.optimizer" and frame.f_code.co_name == "wrapper"
        if name == "torch._dynamo.eval_frame" or steps > 1:
            return True
        frame = frame.f_back
    return False


def skip(code):
    """Makes torch.compile run this code as it is between two compiled parts."""
    from torch._C._dynamo import eval_frame

    if hasattr(eval_frame, "skip_code"):
        eval_frame.skip_code(code)  # Before PyTorch 2.7.
    else:
        leave = eval_frame._FrameAction.SKIP
        eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(leave, leave))
