"""An optimizer for each tensor, stepped as soon as its gradient is there."""
import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}


def step_now(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step_now)
for step in range(40):
    loss = model(torch.randn(8, 16)).square().mean()
    loss.backward()
truth.finish(loss, model, steps=40, batch=8)
