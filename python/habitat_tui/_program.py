"""Finds the program and runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import warnings
from pathlib import Path
from typing import Any, Iterator, Mapping, Sequence

NAME = "habitat-tui.exe" if os.name == "nt" else "habitat-tui"


# A command in full, or a flag with the form of its value.
_FLAG = re.compile(r"`habitat-tui [^`]*`|(?<![\w-])--([a-z][a-z0-9-]*)(?: <[^>]*>)?")
# Arguments that are not named as their flags.
_NAMES = {"to": "gpus", "batch_sizes": "batch_size"}


class HabitatError(Exception):
    """An error of the program: its message (file, place, value and remedy), and its exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class HabitatWarning(UserWarning):
    """A warning of the program about its input."""


def _folders() -> Iterator[str]:
    yield sysconfig.get_path("scripts")
    yield str(Path(sys.executable).parent)
    user = "nt_user" if os.name == "nt" else "posix_user"
    if user in sysconfig.get_scheme_names():
        yield sysconfig.get_path("scripts", user)
    # `pip install --target`.
    yield str(Path(__file__).parent.parent / "bin")


def program() -> str:
    """The path of the program: `HABITAT_TUI_PROGRAM`, the one that the wheel installed, or the first on `PATH`."""
    given = os.environ.get("HABITAT_TUI_PROGRAM")
    if given:
        return given
    for folder in _folders():
        path = os.path.join(folder, NAME)
        if os.path.isfile(path):
            return path
    found = shutil.which(NAME)
    if found is None:
        raise HabitatError(f"{NAME} is neither beside {sys.executable} nor on PATH: reinstall the wheel of habitat-tui")
    return found


def flags(given: Mapping[str, Any]) -> list[str]:
    """Flags of the command line: `max_machines=4` is `--max-machines 4`, `True` a flag alone, a list its items with
    commas. `None` and `False` are left out."""
    words: list[str] = []
    for name, value in given.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag)
        elif isinstance(value, Mapping):
            # `arg={"depth": 3}`: once for each.
            words += [f"{flag}={key}={item}" for key, item in value.items()]
        else:
            is_list = isinstance(value, Sequence) and not isinstance(value, str)
            words.append(f"{flag}={','.join(map(str, value)) if is_list else value}")
    return words


def said(text: str) -> str:
    """A message of the program with arguments of this package for flags, without help of the command line."""
    text = re.split(r"\n\n(?:Usage:|For more information|  tip: to pass)", text)[0]

    def argument(found: re.Match[str]) -> str:
        name = found[1].replace("-", "_") if found[1] else ""
        return _NAMES.get(name, name) or found[0]

    return _FLAG.sub(argument, text)


def run(words: Sequence[str], codes: Sequence[int] = (0,), **variables: str) -> str:
    """The output of the program, with more variables in its environment. Its warnings become warnings of Python at the
    line that called this package, any exit code that is not in `codes` a `HabitatError`."""
    command = [program(), *words]
    try:
        ended = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, env={**os.environ, **variables})
    except OSError as error:
        raise HabitatError(f"{command[0]}: {error.strerror}") from error
    messages = said(ended.stderr.decode("utf-8", "replace"))
    if ended.returncode not in codes:
        message = messages.strip()
        found = message.rfind("error: ")
        raise HabitatError(message[found + 7 :] if found >= 0 else message or "no message", ended.returncode)
    for line in messages.splitlines():
        if line.startswith("warning: "):
            warnings.warn(line[len("warning: ") :], HabitatWarning, stacklevel=_frames() + 1)
    return ended.stdout.decode("utf-8", "replace")


def _frames() -> int:
    """Number of frames of this package between the caller of this function and the program that uses the package."""
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        frame, count = frame.f_back, count + 1
    return count
