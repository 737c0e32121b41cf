"""One network called twice a step, on the two pictures of a pair."""
import truth
import torch
from torch import nn


class Siamese(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(16 * 36, 32))
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())

    def forward(self, first, second):
        return self.head(torch.cat([self.body(first), self.body(second)], 1)).squeeze(1)


torch.manual_seed(0)
model = Siamese()
optimizer = torch.optim.Adadelta(model.parameters())
for step in range(50):
    first, second, same = torch.rand(24, 1, 28, 28), torch.rand(24, 1, 28, 28), torch.randint(2, (24,)).float()
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy(model(first, second), same)
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=50, batch=24)
