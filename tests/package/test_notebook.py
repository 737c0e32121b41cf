"""A notebook, executed as Jupyter does."""

import os
import tempfile
import unittest
from unittest import mock

import nbformat
from nbclient import NotebookClient
from nbformat import v4

MODEL = """\
import torch, habitat_tui

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)
    def forward(self, x):
        return self.layer(x).relu()

model = Net()
optimizer = torch.optim.Adam(model.parameters())
step = {"inputs": torch.randn(16, 64), "optimizer": optimizer, "loss": lambda out: out.mean()}
"""
CELLS = [
    MODEL,
    'found = habitat_tui.predict(model, ["h100-sxm", "l4"], **step)\nfound',
    'found.frame()[["gpu", "step_time_us_mid", "fits_in_memory"]]',
    'habitat_tui.plan(model, steps="10M", **step)',
    'try:\n    habitat_tui.predict("missing.json")\nexcept habitat_tui.HabitatError as error:\n    print(error)',
]
# Without cloudpickle a class of a notebook is refused, with the remedy.
REFUSED = "import sys; sys.modules['cloudpickle'] = None\n"
REFUSED += "try:\n    habitat_tui.trace_shapes(model, **step)\nexcept habitat_tui.HabitatError as error:\n    print(error)"


class Notebook(unittest.TestCase):
    def test_every_cell_runs_and_shows_its_result(self):
        notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in [*CELLS, REFUSED]])
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, JUPYTER_RUNTIME_DIR=folder):
            client = NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}})
            client.execute()
        nbformat.validate(notebook)
        shown = [cell.outputs[-1] if cell.outputs else None for cell in notebook.cells]
        for number, word in ((1, "h100-sxm5-80gb"), (3, "net")):
            page = shown[number].data["text/html"]
            self.assertIn("<iframe srcdoc=", page)
            self.assertIn(word, page)
            self.assertNotIn("<script", page)
        self.assertIn("step_time_us_mid", shown[2].data["text/html"])
        self.assertEqual(shown[4].text, "missing.json: no such file\n")
        self.assertIn("Net is defined in a notebook", shown[5].text)
        self.assertIn("pip install cloudpickle", shown[5].text)


if __name__ == "__main__":
    unittest.main()
