"""Facts about the process."""

import os
import sys


def rank():
    """The rank on this machine, else in the job; None for a single process."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return None


# Variables in which the launchers of MPI and Slurm number their processes.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)
# Packages with which such processes train one model without torch.distributed.
MESSAGES = ("horovod.torch", "mpi4py.MPI")


def number(name):
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else None


def world():
    """Number of processes that train together with this one (1 if it trains alone), and a name that they share
    and processes of another training do not have.

    A rank in the environment is not enough: a process that trains alone may have one, as a task of `srun` in a
    hyperparameter search, or may inherit one from what runs around the job.
    """
    size = 1
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        size = distributed.get_world_size()
    elif number("RANK") is not None or number("LOCAL_RANK") is not None:
        size = number("WORLD_SIZE") or number("LOCAL_WORLD_SIZE") or 1
    elif any(name in sys.modules for name in MESSAGES):
        sizes = [number(size) for rank, size in LAUNCHERS if number(rank) is not None]
        size = next((size for size in sizes if size), 1)
    return size, meeting()


def meeting():
    """The address at which the processes of a training meet, or another name that they share."""
    get = os.environ.get
    if get("MASTER_ADDR") and get("MASTER_PORT"):
        return "%s:%s %s" % (get("MASTER_ADDR"), get("MASTER_PORT"), get("TORCHELASTIC_RUN_ID", ""))
    for names in (("PMIX_NAMESPACE",), ("SLURM_JOB_ID", "SLURM_STEP_ID")):
        if all(get(name) for name in names):
            return " ".join(get(name) for name in names)
    return "children of %d" % os.getppid()


def cores():
    """CPU cores that this process may use; its share if several ranks run on the machine."""
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        count = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, -(-int(quota) // int(period)))  # The limit of a container.
    except (OSError, ValueError):
        pass
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, count // max(1, int(ranks) if ranks.isdigit() else 1))


def at_exit(call):
    """Calls `call` when the process ends. Children of multiprocessing do not run atexit's list, but their own.
    """
    import atexit

    atexit.register(call)
    from multiprocessing import process, util

    if process.parent_process() is not None:
        util.Finalize(None, call, exitpriority=0)


def remove(path):
    try:
        os.remove(path)
    except OSError:
        pass


def is_whole(path):
    """Whether the file of a JSON object is complete."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.path.getsize(path) - 64, 0))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def give_back_memory():
    """Returns freed memory to the system: the C library keeps hundreds of MB after a large window."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
