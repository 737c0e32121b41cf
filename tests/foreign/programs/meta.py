"""Learning to learn: copies of the model with optimizers of their own, gone after a few steps each."""
import copy

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
outer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(40):
    outer.zero_grad()
    for task in range(3):
        phase = torch.rand(1) * 3
        inner = copy.deepcopy(model)
        optimizer = torch.optim.SGD(inner.parameters(), lr=0.01)
        for _ in range(4):
            x = torch.rand(10, 1) * 6
            loss = (inner(x) - torch.sin(x + phase)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        x = torch.rand(10, 1) * 6
        loss = (inner(x) - torch.sin(x + phase)).square().mean()
        for mine, theirs in zip(model.parameters(), torch.autograd.grad(loss, inner.parameters())):
            mine.grad = theirs if mine.grad is None else mine.grad + theirs
    outer.step()
truth.finish(loss, model, steps=40)
