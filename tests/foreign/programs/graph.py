# needs: torch_geometric
"""A graph network on one whole graph, evaluated after every step."""
import truth
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv


class GCN(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = GCNConv(64, 16, cached=True), GCNConv(16, 7)

    def forward(self, x, edges):
        x = F.dropout(F.relu(self.one(F.dropout(x, training=self.training), edges)), training=self.training)
        return self.two(x, edges)


torch.manual_seed(0)
x, edges, y = torch.randn(800, 64), torch.randint(800, (2, 3000)), torch.randint(7, (800,))
known = torch.rand(800) < 0.5
model = GCN()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
for epoch in range(60):
    model.train()
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x, edges)[known], y[known])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(x, edges).argmax(1) == y)[~known].float().mean()
print("right %.6f" % right)
truth.finish(loss, model, steps=60)
