# needs: torchmetrics
"""Metrics that are modules themselves are called before and after the model."""
import truth
import torch
import torchmetrics
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 3))
metrics = torchmetrics.MetricCollection([torchmetrics.Accuracy(task="multiclass", num_classes=3),
                                         torchmetrics.F1Score(task="multiclass", num_classes=3)])
mean = torchmetrics.MeanMetric()
optimizer = torch.optim.NAdam(model.parameters())
for step in range(50):
    inputs, target = torch.randn(40, 16), torch.randint(3, (40,))
    mean(inputs.mean())
    output = model(inputs)
    loss = nn.functional.cross_entropy(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metrics(output.detach(), target)
print({name: round(float(value), 6) for name, value in metrics.compute().items()}, "%.6f" % mean.compute())
truth.finish(loss, model, steps=50, batch=40)
