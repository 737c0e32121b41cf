"""Loaded by every Python that `habitat-tui run` starts, before the program's own code.

Uses the standard library only, and little of it: slow work waits until the program itself imports torch. Errors
here stay here: the program must not notice.
"""

import os
import sys


# Frameworks whose steps the hook cannot see. The report names them if PyTorch was not imported.
_HABITAT_OTHERS = ("jax", "tensorflow", "paddle", "mxnet", "mindspore")


def _habitat_tell(address, *messages):
    """Sends messages of this process over its own connection."""
    import _socket

    greeting = b'{"type":"hello","version":1,"pid":%d,"stage":"python","python":"%d.%d.%d"}' % (
        (os.getpid(),) + sys.version_info[:3]
    )
    with_no_signal = getattr(_socket, "MSG_NOSIGNAL", 0)
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        link.settimeout(0.2)
        link.connect(address)
        for text in (greeting,) + messages:
            link.send(len(text).to_bytes(4, "little") + text, with_no_signal)
    finally:
        link.close()


def _habitat_start():
    """Reports that a Python started, and waits for the import of `torch.optim.optimizer`."""
    here = os.path.dirname(os.path.abspath(__file__))
    # Show the program the search path that it would have without us.
    for entry in sys.path[:]:
        if entry and os.path.abspath(entry) == here:
            sys.path.remove(entry)
            sys.path_importer_cache.pop(entry, None)
    address = os.environ.get("HABITAT_TUI_SOCKET")
    if not address or hasattr(sys, "_habitat_tui_hook"):
        return
    sys._habitat_tui_hook = here
    try:
        _habitat_tell(address)
    except Exception:
        return  # The listener is gone: nothing to do in this process.

    class Finder:
        """Lets the real finders find the optimizer's module, and adds one call after it ran."""

        busy = False

        def find_spec(self, name, path=None, target=None):
            if self.busy or name != "torch.optim.optimizer" and name not in _HABITAT_OTHERS:
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
                    if name in _HABITAT_OTHERS:
                        _habitat_note(address, name)
                    else:
                        _habitat_install(here, module)

                spec.loader.exec_module = exec_module
                return spec
            except Exception:
                return None
            finally:
                if name not in _HABITAT_OTHERS and self in sys.meta_path:
                    sys.meta_path.remove(self)

    sys.meta_path.insert(0, Finder())


def _habitat_note(address, name):
    try:
        _habitat_tell(address, b'{"type":"framework","name":"%s"}' % name.encode())
    except Exception:
        pass


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
    """Runs the `sitecustomize` that would have run without us, under its own name.

    Its errors go to `site`, which reports them as usual. If there is none, `site` gets the error that it would
    have got, and a later `import sitecustomize` fails as usual.
    """
    import importlib.util

    for finder in sys.meta_path:
        spec = finder.find_spec("sitecustomize", None) if hasattr(finder, "find_spec") else None
        if spec is not None:
            break
    if spec is None or spec.loader is None or spec.origin == __file__:
        raise ModuleNotFoundError("No module named 'sitecustomize'", name="sitecustomize")
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


try:
    _habitat_start()
except Exception:
    pass
_habitat_chain()
