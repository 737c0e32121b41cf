# case: forks-exit {python} {file} exit
# case: forks-return {python} {file} return
# case: forks-trains {python} {file} trains
# case: forks-in-window {python} {file} window
"""os.fork() after training; the child ends as children do."""
import os
import sys

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


how = sys.argv[1]
loss = train(12 if how == "window" else 30)
sys.stdout.flush()
child = os.fork()
if child == 0:
    if how == "trains":
        print("child %.6f" % train(30).item())
    if how == "exit":
        print("child")
        sys.exit(5)
    if how == "window":
        sys.exit(6)
else:
    loss = train(10)
    print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    truth.finish(loss, model, steps=22 if how == "window" else 40, batch=8)
