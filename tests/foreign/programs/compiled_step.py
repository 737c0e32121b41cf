"""The whole step is compiled, optimizer.step() within."""
import truth
import torch
from torch import nn
from torch._dynamo.utils import counters

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=torch.tensor(1e-3), capturable=False)


@torch.compile(backend="eager")
def train(inputs, target):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(inputs), target)
    loss.backward()
    optimizer.step()
    return loss


for step in range(40):
    loss = train(torch.randn(16, 32), torch.randint(8, (16,)))
print("frames", dict(counters["frames"]), "graphs", counters["stats"]["unique_graphs"])
print("recompiled", sum(counters["recompiles"].values()), "broken", sum(counters["graph_break"].values()))
truth.finish(loss, model, steps=40, batch=16)
