"""Why a step could not be traced, as it is told."""

import os
import traceback

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Frames of the user's own code that are shown.
FRAMES = 5
STANDARD = os.path.dirname(os.__file__) + os.sep


class Failure(Exception):
    """Ends the trace; `kind` is one of those in README.md."""

    def __init__(self, kind, message, remedy=None, trace=None):
        super().__init__(message)
        self.kind, self.message, self.remedy, self.trace = kind, message, remedy, trace

    def told(self):
        facts = {"kind": self.kind, "message": self.message, "remedy": self.remedy, "trace": self.trace}
        return {name: value for name, value in facts.items() if value is not None}


class TrainsAtImport(BaseException):
    """Not an Exception, so that no handler of the user's takes it."""


class RebuildsEachStep(BaseException):
    """The function made its optimizer anew for the second step."""


def users_frames(error):
    """The last frames of the user's own code, where it was left last, and the error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)]
    own = [frame for frame in frames if not is_installed(frame.filename)][-FRAMES:]
    # What was called last, where that is not the user's own, nor how fake tensors say no.
    own += [frame for frame in frames[-1:] if is_installed(frame.filename) and "_subclasses" not in frame.filename]
    lines = traceback.format_list(own) + traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip()


def is_ours(path):
    return path.startswith("<frozen") or os.path.abspath(path).startswith(OURS + os.sep)


def is_installed(path):
    parts = os.path.abspath(path).split(os.sep)
    return any(part in ("site-packages", "dist-packages", "torch") for part in parts) or path.startswith(STANDARD)


def of(error, where):
    """The failure that an exception of the user's code stands for."""
    trace = users_frames(error)
    kind, remedy = "raised", None
    names = {base.__name__ for base in type(error).__mro__}
    text = str(error)
    if "DynamicOutputShapeException" in names:
        kind = "data_dependent"
        remedy = (
            "the size of its result depends on values, which a trace by shapes does not have (boolean masks, nonzero, "
            "unique); use torch.where or a mask that is multiplied in the traced step, or record a real step: "
            "`habitat-tui run -- python ...`"
        )
    elif "DataDependentOutputException" in names:
        kind = "data_dependent"
        remedy = (
            "it reads a value, and a trace by shapes has none; leave that out of the traced step "
            "(.item(), .tolist(), if tensor: ...), or record a real step: `habitat-tui run -- python ...`"
        )
    elif "numpy() is not supported" in text or "Cannot access data pointer" in text or "FakeTensor" in text:
        kind = "data_dependent"
        remedy = "a traced tensor holds no values: leave .numpy(), custom kernels and the like out of the traced step"
    elif "CUDA" in text or "cuda" in text or "NVIDIA driver" in text:
        remedy = 'no GPU is there while tracing, and none is needed: build everything with device = "cpu"'
    elif isinstance(error, SystemExit):
        kind = "exited"
        remedy = "it ended Python; put what a program does, reading of arguments too, under `if __name__ == \"__main__\":`"
    return Failure(kind, "%s: %s" % (where, text_of(error)), remedy, trace)


def text_of(error):
    lines = "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()
    return lines[0] if lines else type(error).__name__
