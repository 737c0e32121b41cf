"""Counts the optimizer's steps, times them, and records a few with torch.profiler.

Loaded once `torch.optim.optimizer` has been imported, in every process of the job. All of
it runs inside the user's training process, so these rules hold throughout:

- no exception of ours reaches the program, and all of its own do: the handlers of its
  signals, which may raise, wait until our work is done;
- nothing is written to its output;
- nothing waits for the program that listens: what cannot be sent at once is kept, and
  once the listener is gone nothing more is done;
- in a step outside a window the clock is read, and once a second the times are sent;
- no window opens or closes while a CUDA graph is captured, which that would break, nor
  inside backward(), nor closes in a thread that PyTorch's profiler cannot stop it in;
- the user's own profiler comes first: our window is dropped before it starts.
"""

import json
import os
import sys

from .hook import Hook
from .link import PROTOCOL, greet
from .pytorch import OLDEST, is_before, torch_version
from .signals import Held


def install(module):
    """Called once, right after `torch.optim.optimizer` was executed."""
    address = os.environ["HABITAT_TUI_SOCKET"]
    settings = json.loads(os.environ["HABITAT_TUI_HOOK"])
    if settings.get("version") != PROTOCOL:
        return
    register = getattr(module, "register_optimizer_step_post_hook", None)
    if register is None or is_before(torch_version(), OLDEST):
        link = greet(address)
        link.send({"type": "refused", "reason": "torch_too_old"})
        link.finish(0.2)
        return
    hook = Hook(settings, address)
    hook.connect()
    try:
        if "torch.autograd.profiler" in sys.modules:
            hook.guard.set()
    except Exception as problem:
        hook.fail(problem)  # Without the guard no window is safe; steps are still timed.

    os.register_at_fork(after_in_child=Held.forked)
    os.register_at_fork(before=hook.before_fork, after_in_parent=hook.after_fork, after_in_child=hook.forked)
    after_step = hook.after_step()
    register(after_step)
    try:
        hook.backward.set(after_step, lambda: hook.window is not None)
    except Exception:
        pass  # Optimizers that are not PyTorch's are not found then, nor what ranks wait for one another.
