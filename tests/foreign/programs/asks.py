# stdin: 17\n0.05\nyes\n
"""Asks for its settings, and once more while it trains."""
import sys

import truth
import torch
from torch import nn

seed = int(input("seed? "))
rate = float(input("rate? "))
torch.manual_seed(seed)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for step in range(40):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 20:
        print("go on?", sys.stdin.readline().strip(), sys.stdin.read() == "", sys.stdin.isatty())
truth.finish(loss, model, steps=40, batch=8)
