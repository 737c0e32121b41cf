# case: validates {python} {file} 12 60
# case: validates-often {python} {file} 4 20
"""A validation of many batches every few steps: one falls into any window."""
import sys

import truth
import torch
from torch import nn

every, batches = map(int, sys.argv[1:])
torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 49):
    model.train()
    loss = nn.functional.cross_entropy(model(torch.randn(8, 3, 16, 16)), torch.randint(5, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % every == 0:
        model.eval()
        with torch.no_grad():
            total = sum(nn.functional.cross_entropy(model(torch.randn(64, 3, 16, 16)), torch.randint(5, (64,))).item()
                        for _ in range(batches))
        print("step %d: %.6f" % (step, total / batches))
truth.finish(loss, model, steps=48, batch=8)
