"""Training in float64, reproducible by order, with anomalies looked for."""
import truth
import torch
from torch import nn

torch.use_deterministic_algorithms(True)
torch.autograd.set_detect_anomaly(True)
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Softplus(), nn.Linear(32, 1))
optimizer = torch.optim.Rprop(model.parameters())
for step in range(40):
    loss = (model(torch.randn(20, 16)) - 1).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=40, batch=20)
