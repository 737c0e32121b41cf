"""The user's own profiler comes first."""

import threading
import weakref


class Guard:
    """Calls `make_way` before a profiler of the user's starts: two profilers cannot run at once."""

    def __init__(self, make_way):
        self.make_way = make_way
        self.is_set = False
        # The thread that starts our profiler now.
        self.ours = None
        # The user's profilers that are prepared or running (their inner objects).
        self.users = weakref.WeakSet()

    def set(self):
        """Once in a process, when `torch.autograd.profiler` can be imported."""
        self.is_set = True
        from torch.autograd import profiler

        prepare, leave = profiler.profile._prepare_trace, profiler.profile.__exit__

        def _prepare_trace(inner, *args, **kwargs):
            if self.ours != threading.get_ident():
                self.users.add(inner)  # From here on no window opens.
                self.make_way()
            return prepare(inner, *args, **kwargs)

        def __exit__(inner, *args, **kwargs):
            try:
                return leave(inner, *args, **kwargs)
            finally:
                self.users.discard(inner)  # Only now: no window may open while it stops.

        profiler.profile._prepare_trace = _prepare_trace
        profiler.profile.__exit__ = __exit__
        for name in ("emit_nvtx", "emit_itt"):
            other = getattr(profiler, name, None)
            if other is not None:
                self.set_on_ranges(other)

    def set_on_ranges(self, kind):
        enter = kind.__enter__

        def __enter__(inner):
            self.make_way()
            return enter(inner)

        kind.__enter__ = __enter__

    def user_profiles(self):
        import torch

        return torch.autograd._profiler_enabled() or bool(self.users)
