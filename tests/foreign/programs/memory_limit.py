"""Memory is limited to little more than it has; then it asks for more than there is."""
import resource

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
optimizer = torch.optim.Adam(model.parameters())


def train(steps):
    for _ in range(steps):
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss


loss = train(4)
has = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (has + (256 << 20), has + (256 << 20)))
loss = train(36)
truth.finish(loss, model, steps=40, batch=32)
kept = []
while True:
    kept.append(torch.zeros(4 << 20))
