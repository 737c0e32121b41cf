"""A variational autoencoder."""
import truth
import torch
import torch.nn.functional as F
from torch import nn


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(784, 200), nn.Linear(200, 20), nn.Linear(200, 20)
        self.fc3, self.fc4 = nn.Linear(20, 200), nn.Linear(200, 784)

    def forward(self, x):
        hidden = F.relu(self.fc1(x.view(-1, 784)))
        mean, spread = self.fc21(hidden), self.fc22(hidden)
        code = mean + torch.randn_like(mean) * torch.exp(0.5 * spread)
        return torch.sigmoid(self.fc4(F.relu(self.fc3(code)))), mean, spread


torch.manual_seed(0)
model = VAE().train()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(60):
    picture = torch.rand(128, 1, 28, 28)
    optimizer.zero_grad()
    made, mean, spread = model(picture)
    loss = F.binary_cross_entropy(made, picture.view(-1, 784), reduction="sum")
    loss = loss - 0.5 * torch.sum(1 + spread - mean.pow(2) - spread.exp())
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=60, batch=128)
