"""Loaded by every Python that `habitat-tui run` starts, before the program's own code.

Standard library only, and little of it: what costs time waits until the program itself
imports torch. Whatever goes wrong here stays here: the program must not notice.
"""

import os
import sys


def _habitat_start():
    """Says that a Python started, and waits for `torch.optim.optimizer` to be imported."""
    here = os.path.dirname(os.path.abspath(__file__))
    # What the program sees as its search path is what it would see without us.
    sys.path[:] = [entry for entry in sys.path if not (entry and os.path.abspath(entry) == here)]
    address = os.environ.get("HABITAT_TUI_SOCKET")
    if not address or hasattr(sys, "_habitat_tui_hook"):
        return
    sys._habitat_tui_hook = here
    try:
        import _socket

        greeting = b'{"type":"hello","version":1,"pid":%d,"stage":"python","python":"%d.%d.%d"}' % (
            (os.getpid(),) + sys.version_info[:3]
        )
        with_no_signal = getattr(_socket, "MSG_NOSIGNAL", 0)
        link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            link.settimeout(0.2)
            link.connect(address)
            link.send(len(greeting).to_bytes(4, "little") + greeting, with_no_signal)
        finally:
            link.close()
    except Exception:
        return  # Nobody listens any more: nothing to do in this process.

    class Finder:
        """Lets the real finders find the optimizer's module, and adds one call after it ran."""

        busy = False

        def find_spec(self, name, path=None, target=None):
            if name != "torch.optim.optimizer" or self.busy:
                return None
            try:
                import importlib.util

                self.busy = True
                try:
                    spec = importlib.util.find_spec(name)
                finally:
                    self.busy = False
                if spec is None or spec.loader is None:
                    return None
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    _habitat_install(here, module)

                spec.loader.exec_module = exec_module
                return spec
            except Exception:
                return None
            finally:
                if self in sys.meta_path:
                    sys.meta_path.remove(self)

    sys.meta_path.insert(0, Finder())


def _habitat_install(here, module):
    try:
        from importlib import util

        folder = os.path.join(here, "habitat_hook")
        file = os.path.join(folder, "__init__.py")
        spec = util.spec_from_file_location("_habitat_tui_hook", file, submodule_search_locations=[folder])
        hook = util.module_from_spec(spec)
        sys.modules["_habitat_tui_hook"] = hook
        spec.loader.exec_module(hook)
        hook.install(module)
    except Exception:
        pass


def _habitat_chain():
    """Runs the `sitecustomize` that would have run without us, in its own name.

    Its errors go on to `site`, which reports them as it always does.
    """
    import importlib.machinery
    import importlib.util

    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None or spec.origin == __file__:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _habitat_start()
except Exception:
    pass
_habitat_chain()
