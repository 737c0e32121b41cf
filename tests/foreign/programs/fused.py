# case: fused {python} {file} fused
# case: foreach {python} {file} foreach
"""Optimizers that update all tensors in one call; a model of many tensors."""
import sys

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.ReLU()) for _ in range(30)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **{sys.argv[1]: True})
for step in range(40):
    loss = model(torch.randn(16, 24)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=40, batch=16)
