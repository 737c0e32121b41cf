"""Explains why a step could not be traced."""

import linecache
import os
import re
import sys
import sysconfig
import traceback

OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Most characters of a line in a message.
WIDTH = 300
STANDARD = tuple({os.path.abspath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})
PACKAGED = "call the package in a way that does not need the value"
RECORD = ", or record a real step: `habitat-tui run -- python ...`"


class Failure(Exception):
    """Ends the trace; README.md lists the values of `kind`."""

    def __init__(self, kind, message, remedy=None, error=None):
        super().__init__(message)
        self.kind, self.message, self.remedy, self.error = kind, message, remedy, error

    def told(self):
        facts = {"kind": self.kind, "message": self.message, "remedy": self.remedy}
        if self.error is not None:
            facts["where"] = places(self.error)
            facts["trace"] = "".join(
                traceback.format_exception(type(self.error), self.error, self.error.__traceback__)
            ).rstrip()
        return {name: value for name, value in facts.items() if value}


class TrainsAtImport(BaseException):
    """Not an Exception, so that no handler of the user's catches it."""


class RebuildsEachStep(BaseException):
    """The function created a new optimizer for the second step."""


def places(error):
    """Where it happened: the innermost line of the user's own code, then the innermost line of a package that
    it called, except PyTorch."""
    if isinstance(error, SyntaxError) and error.filename:
        return [place(error.filename, error.lineno, None, error.text)]
    mine, packaged = None, None
    for frame, line in traceback.walk_tb(error.__traceback__):
        code, path = frame.f_code, frame.f_code.co_filename
        if path.startswith("<") or is_ours(path):
            continue
        if is_packaged(path):
            packaged = packaged if is_torchs(path) else (code, line)
        elif not os.path.abspath(path).startswith(STANDARD):
            mine, packaged = (code, line), None
    found = [at for at in (mine, packaged) if at is not None]
    return [
        place(code.co_filename, line, getattr(code, "co_qualname", code.co_name), linecache.getline(code.co_filename, line))
        for code, line in found
    ]


def place(path, line, function, text):
    if function is not None:
        # Of `build.<locals>.step` the last part is enough; `Net.forward` stays.
        function = function.split("<locals>.")[-1]
    return {"file": shown(path), "line": line, "function": function, "text": clipped((text or "").strip())}


def shown(path):
    """A path relative to this folder, if it is below."""
    whole, here = os.path.abspath(path), os.getcwd() + os.sep
    return whole[len(here) :] if whole.startswith(here) else whole


def clipped(text):
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def is_ours(path):
    return os.path.abspath(path).startswith(OURS + os.sep)


def is_packaged(path):
    return any(part in ("site-packages", "dist-packages") for part in os.path.abspath(path).split(os.sep))


def is_torchs(path):
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    return torch is not None and os.path.abspath(path).startswith(os.path.dirname(os.path.abspath(torch)) + os.sep)


def of(error, where, refused=None):
    """The failure for an exception of the user's code; `refused` is the last call for which PyTorch has no
    result: (the error, operator, shapes)."""
    names = {base.__name__ for base in type(error).__mro__}
    text = str(error)
    operator = text.split()[0].replace(".default", "").replace(".", "::", 1) if text.split() else ""

    def failure(kind, message, remedy=None):
        return Failure(kind, "%s: %s" % (where, message), remedy, error)

    def data_dependent(message, remedy):
        # The second place is in a package, which the user does not change.
        return failure("data_dependent", message, (PACKAGED if len(places(error)) > 1 else remedy) + RECORD)

    if "DynamicOutputShapeException" in names:
        return data_dependent(
            "the size of a result depends on values (%s), which a trace by shapes does not have" % operator,
            "use torch.where, or multiply by a mask, in the traced step",
        )
    if "DataDependentOutputException" in names:
        return data_dependent(
            "it reads a value of a tensor (%s), which a trace by shapes does not have" % operator,
            "leave .item(), .tolist() or `if tensor:` out of the traced step",
        )
    if "UnsupportedOperatorException" in names and "nested" in operator:
        return failure(
            "custom_operator",
            "nested tensors in strided layout have no shapes to trace (%s)" % operator,
            "make them with layout=torch.jagged" + RECORD,
        )
    if "UnsupportedOperatorException" in names or "no fake impl" in text or "no abstract impl" in text:
        defined = re.search(r"CustomOpDef\(([^)]+)\)", text)
        named = operator if "UnsupportedOperatorException" in names else defined.group(1) if defined else "its operator"
        return failure(
            "custom_operator",
            "%s does not say what shape its result has" % named,
            "register that with torch.library.register_fake (before PyTorch 2.4: impl_abstract)" + RECORD,
        )
    message = text_of(error)
    if any(part in text for part in ("numpy() is not supported", "data pointer", "FakeTensor", "not allocated yet")):
        return failure(
            "data_dependent",
            message,
            "a traced tensor holds no values: leave .numpy(), kernels of your own and the like out of the traced "
            "step" + RECORD,
        )
    if "active drivers" in text or type(error).__module__.split(".")[0] == "triton":
        return failure(
            "kernel",
            message,
            "Triton's kernels need a GPU: wrap them with torch.library.triton_op or custom_op and register_fake" + RECORD,
        )
    if isinstance(error, SystemExit):
        return failure(
            "exited",
            message,
            'it ended Python; put what a program does, reading of arguments too, under `if __name__ == "__main__":`',
        )
    if "CUDA" in text or "NVIDIA driver" in text or "no NVIDIA GPU" in text:
        remedy = 'tracing sees no GPU and needs none: build everything with device = "cpu"'
        return failure("raised", message, remedy)
    if isinstance(error, ModuleNotFoundError):
        remedy = "install it for %s, or name the Python that has it with --python" % sys.executable
        return failure("raised", message, remedy)
    if isinstance(error, ImportError) and "relative import" in text:
        remedy = "a file in a package is named as a module, from the folder above the package: package.module:function"
        return failure("raised", message, remedy)
    if refused is not None and refused[0] is error and refused[2]:
        shapes = " and ".join(filter(None, (", ".join(refused[2][:-1]), refused[2][-1])))
        return failure("shapes", message, "%s was given %s; a real step would fail there too" % (refused[1], shapes))
    return failure("raised", message)


def text_of(error):
    """The error in one line, or two if the first only opens it."""
    name = type(error).__name__
    text = error.msg if isinstance(error, SyntaxError) and error.msg else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return name
    first = "%s: %s" % (name, lines[0])
    if len(lines) > 1 and (lines[0].endswith(":") or len(lines[0]) < 24):
        first += " " + lines[1]
    return clipped(first)
