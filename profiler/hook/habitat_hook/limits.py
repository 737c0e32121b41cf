"""Limits of the process that a window could hit: `ulimit`, and free disk space."""

import os
import threading
import time

try:
    import resource
except ImportError:  # Not Unix.
    resource = None

# Bytes that must be free for traces before a window opens (a choice).
SPARE = 500_000_000
# Most that an event of a window takes: bytes of trace, bytes of memory, seconds of CPU time until its trace is
# written. Measured: 500, 3,500, 30e-6.
FILE_BYTES, MEMORY_BYTES, SECONDS = 600, 4_500, 50e-6
# Needs of a window without events: the stacks and heaps of two threads, which the C library reserves, and the
# libraries that the profiler loads.
MEMORY_LEAST, SECONDS_LEAST = 300_000_000, 2.0


def short_of(folder, events):
    """The resource that a window of this many events would exhaust, else None."""
    if not can_open_files():
        return "the job has no file descriptor left for its trace (ulimit -n)"
    free = free_bytes(folder)
    if free is not None and free < SPARE:
        reason = "%.0f MB are free in %s, and a trace may need %.0f MB; set XDG_CACHE_HOME to a folder with room"
        return reason % (free / 1e6, folder, SPARE / 1e6)
    reason = short_of_limit(events)
    if reason is None and not can_start_threads():
        reason = "the job cannot start another thread (ulimit -u, or a container's limit of processes)"
    return reason


def short_of_limit(events):
    """The limit that a window of this many events would exceed, else None. Exceeding it would end the job: by
    SIGXFSZ, by SIGXCPU, or because PyTorch gets no memory."""
    left = soft("RLIMIT_FSIZE")
    if left is not None and left < FILE_BYTES * events:
        return "the job may write no file over %s (ulimit -f), and a trace may need %s" % (
            megabytes(left),
            megabytes(FILE_BYTES * events),
        )
    left = soft("RLIMIT_CPU")
    need = SECONDS_LEAST + SECONDS * events
    if left is not None and left - time.process_time() < need:
        return "the job has %.1f s of processor time left (ulimit -t), and a window may take %.1f s" % (
            max(left - time.process_time(), 0.0),
            need,
        )
    need = MEMORY_LEAST + MEMORY_BYTES * events
    for name, field, switch in (("RLIMIT_AS", "VmSize", "v"), ("RLIMIT_DATA", "VmData", "d")):
        most, used = soft(name), status_bytes(field)
        if most is not None and used is not None and most - used < need:
            return "the job may take %s more memory (ulimit -%s), and a window may take %s" % (
                megabytes(max(most - used, 0)),
                switch,
                megabytes(need),
            )
    return None


def megabytes(count):
    return "%.*f MB" % (1 if count < 1e7 else 0, count / 1e6)


def soft(name):
    """The current soft limit; None if there is no limit."""
    number = getattr(resource, name, None)
    if number is None:
        return None
    limit = resource.getrlimit(number)[0]
    # On macOS such large numbers mean no limit.
    return None if limit == resource.RLIM_INFINITY or limit >= 1 << 62 else limit


def status_bytes(field):
    """A size in /proc/self/status; None if it cannot be read."""
    try:
        with open("/proc/self/status") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith(field + ":"))
    except (OSError, StopIteration, ValueError):
        return None


def can_open_files():
    """Whether there are descriptors for a trace, for files that PyTorch reads for it, and for a link."""
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


def can_start_threads():
    """Whether there is room for the threads of a window."""
    enough, started = threading.Event(), []
    try:
        for _ in range(3):
            one = threading.Thread(target=enough.wait, name="habitat-tui", daemon=True)
            one.start()
            started.append(one)
        return True
    except RuntimeError:
        return False
    finally:
        enough.set()
        for one in started:
            one.join()


def free_bytes(folder):
    """Bytes that this user may still write there; None if unknown."""
    try:
        disk = os.statvfs(folder)
        return disk.f_bavail * disk.f_frsize
    except OSError:
        return None
