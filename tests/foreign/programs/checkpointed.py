"""Blocks whose forward pass runs again in the backward pass."""
import truth
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.Dropout(0.1), nn.ReLU(), nn.Linear(64, 32))
                                    for _ in range(6))

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.last(x)


torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(40):
    loss = nn.functional.mse_loss(model(torch.randn(10, 16)), torch.randn(10, 4))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=40, batch=10)
