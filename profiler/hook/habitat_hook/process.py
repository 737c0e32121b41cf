"""What the hook asks of its process and of the disk."""

import os
import sys


def rank():
    """The rank on this machine, else in the job; None where there is but one process."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "RANK"):
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank()
    return None


def cores():
    """Processors that this process may use, its share where several ranks are on the machine."""
    try:
        count = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        count = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            count = min(count, -(-int(quota) // int(period)))  # As a container is limited.
    except (OSError, ValueError):
        pass
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, count // max(1, int(ranks) if ranks.isdigit() else 1))


def at_exit(call):
    """Children of multiprocessing run their own list of last calls, not atexit's."""
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


def can_open_files():
    """Whether there are descriptors for a trace, what PyTorch reads for it, and a link."""
    opened = []
    try:
        for _ in range(8):
            opened.append(os.open(os.devnull, os.O_RDONLY))
        return True
    except OSError:
        return False
    finally:
        for one in opened:
            os.close(one)


def free_bytes(folder):
    """Bytes that this user may still write there; None where that cannot be told."""
    try:
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize
    except OSError:
        return None


def is_whole(path):
    """Whether the file of a JSON object has its end."""
    try:
        with open(path, "rb") as file:
            file.seek(max(os.path.getsize(path) - 64, 0))
            return file.read().rstrip().endswith(b"}")
    except OSError:
        return False


def give_back_memory():
    """What the profiler freed, the C library keeps: hundreds of MB after a large window."""
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
