# needs: IPython
"""Cells run by IPython, one of which fails and is run again."""
import truth
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance(colors="nocolor")
cells = [
    "import torch; from torch import nn; torch.manual_seed(0)",
    "model = nn.Linear(16, 4); optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
    """
for step in range(12):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
assert False, 'interrupted'
""",
    """
for step in range(28):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
""",
    "truth.finish(loss, model, steps=40, batch=8)",
]
shell.push({"truth": truth})
for cell in cells:
    print(shell.run_cell(cell, store_history=False).success)
