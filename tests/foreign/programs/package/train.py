import sys

import truth
import torch
from torch import nn


def main():
    torch.manual_seed(0)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(__name__, sys.argv[1:], sys.path[0] == "" or sys.path[0].endswith("programs"))
    truth.finish(loss, model, steps=40, batch=8)
