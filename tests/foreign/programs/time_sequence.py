# case: time-sequence {python} {file} 30 24 35 2
# case: time-sequence-long {python} {file} 15 8 400 3
"""Waves continued by cells stepped in Python, in float64, with a closure that LBFGS calls several times."""
import sys

import truth
import torch
from torch import nn

steps, batch, length, most = map(int, sys.argv[1:])


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.LSTMCell(1, 31), nn.LSTMCell(31, 31), nn.Linear(31, 1)

    def forward(self, waves):
        h1 = c1 = h2 = c2 = torch.zeros(waves.shape[0], 31, dtype=torch.double)
        made = []
        for value in waves.split(1, dim=1):
            h1, c1 = self.one(value, (h1, c1))
            h2, c2 = self.two(h1, (h2, c2))
            made.append(self.out(h2))
        return torch.cat(made, dim=1)


torch.manual_seed(0)
waves = torch.sin(torch.arange(length + 1) / 20.0 + torch.rand(batch, 1) * 80).double()
model, criterion = Sequence().double(), nn.MSELoss()
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=most)
calls = 0
for step in range(steps):
    def closure():
        global calls
        calls += 1
        optimizer.zero_grad()
        loss = criterion(model(waves[:, :-1]), waves[:, 1:])
        loss.backward()
        return loss

    loss = optimizer.step(closure)
print("the closure was called %d times" % calls)
truth.finish(loss, model, steps=steps, batch=batch)
