"""A step of tens of thousands of operators: a cell stepped in Python, thousands of times."""
import truth
import torch
from torch import nn

torch.manual_seed(0)
cell, out = nn.LSTMCell(8, 16), nn.Linear(16, 8)
model = nn.ModuleList([cell, out])
optimizer = torch.optim.Adam(model.parameters())
for step in range(22):
    h = c = torch.zeros(4, 16)
    loss = torch.zeros(())
    for time in range(1000):
        h, c = cell(torch.randn(4, 8), (h, c))
        loss = loss + out(h).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=22, batch=4)
