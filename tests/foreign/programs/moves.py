"""Goes to another folder, empties the one for temporary files, and changes the environment."""
import os
import shutil
import sys
import tempfile

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 5:
        os.makedirs("run/1")
        os.chdir("run/1")
    if step == 8:
        for name in os.listdir(tempfile.gettempdir()):
            path = os.path.join(tempfile.gettempdir(), name)
            shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.remove(path)
    if step == 9:
        os.environ.clear()
print(os.listdir("."))
truth.finish(loss, model, steps=40, batch=8)
