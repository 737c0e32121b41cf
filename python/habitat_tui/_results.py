"""Results of the commands: dictionaries that can also be shown and put into frames."""

from __future__ import annotations

import html
import os
import shutil
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Union

if TYPE_CHECKING:
    import pandas

PathLike = Union[str, "os.PathLike[str]"]
# The tables of the JSON forms, by the name of the list.
ROWS = ("predictions", "parts", "operations", "rows")
# Characters of a cell that is a list.
SEPARATOR = "; "


def _flat(row: dict[str, Any], before: str = "") -> dict[str, Any]:
    """A row without levels: `step_time_us_low`, and the texts of notes."""
    found: dict[str, Any] = {}
    for key, value in row.items():
        name = before + key
        if isinstance(value, dict):
            found.update(_flat(value, name + "_"))
        elif isinstance(value, list):
            texts = [item.get("text", item) if isinstance(item, dict) else item for item in value]
            found[name] = SEPARATOR.join(map(str, texts))
        else:
            found[name] = value
    return found


class Result(Dict[str, Any]):
    """The JSON of a command as a dictionary. `html` is its report, or None if the command has none."""

    def __init__(self, answer: dict[str, Any], report: str | None = None) -> None:
        super().__init__(answer)
        self.html = report

    def rows(self) -> list[dict[str, Any]]:
        """The GPUs of a prediction or the parts of a plan, one flat dictionary each (`step_time_us_mid`)."""
        name = next((name for name in ROWS if isinstance(self.get(name), list)), None)
        return [_flat(row) for row in self[name]] if name else []

    def frame(self) -> pandas.DataFrame:
        """The rows as a frame of pandas."""
        import pandas

        return pandas.DataFrame(self.rows())

    def save(self, path: PathLike) -> None:
        """Writes the report, one HTML file."""
        if self.html is None:
            raise ValueError("this result has no report")
        Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str | None:
        if self.html is None:
            return None
        # A frame of its own keeps the styles of the report and of the notebook apart. It has no scripts.
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" sandbox width="100%" height="640" style="border: 0"></iframe>'


class Profile(os.PathLike):  # type: ignore[type-arg]
    """A recorded or traced step, in a file; that of a traced one lives as long as this object. `facts` is the report of
    the program on it: workload, FLOPs, bytes, memory."""

    def __init__(self, path: PathLike, facts: dict[str, Any], folder: str | None = None) -> None:
        self.path, self.facts = Path(path), facts
        if folder is not None:
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __fspath__(self) -> str:
        return str(self.path)

    def __repr__(self) -> str:
        workload = self.facts.get("workload", {})
        return f"Profile({workload.get('name', self.path.name)!r}, batch_size={workload.get('batch_size')})"

    def save(self, path: PathLike) -> None:
        """Copies the file."""
        shutil.copyfile(self.path, path)
