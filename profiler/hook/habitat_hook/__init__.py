"""Counts the optimizer's steps, times them, and records a few with torch.profiler.

Loaded once `torch.optim.optimizer` is imported, in every process of the job. It runs inside the user's training
process, so these rules hold everywhere:

- no exception of the hook reaches the program, and every exception of the program passes
  through: the program's signal handlers, which may raise, wait until the hook's work is done;
- the hook writes nothing to the program's output;
- the hook never waits for the listener: it keeps messages that it cannot send at once, and
  stops working when the listener is gone;
- in a step outside a window it reads the clock, and once a second it sends the times;
- no window opens or closes during the capture of a CUDA graph, which it would break, or
  inside backward(); none closes in a thread in which PyTorch's profiler cannot stop;
- the user's own profiler comes first: the hook drops its window before that one starts.
"""

import json
import os
import sys

from .hook import Hook
from .link import PROTOCOL, greet
from .pytorch import OLDEST, is_before, torch_version
from .signals import Held


def install(module):
    """Called once, right after `torch.optim.optimizer` ran."""
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
        pass  # Then optimizers that are not PyTorch's are not found, and waits for other ranks are not timed.
