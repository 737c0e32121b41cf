"""Pictures made larger by a pixel shuffle; the network is built of layers with their own initialisation."""
import truth
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.layers = nn.ModuleList([nn.Conv2d(1, 32, 5, padding=2), nn.Conv2d(32, 32, 3, padding=1),
                                     nn.Conv2d(32, factor ** 2, 3, padding=1)])
        self.shuffle = nn.PixelShuffle(factor)
        for layer in self.layers:
            nn.init.orthogonal_(layer.weight)

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.shuffle(self.layers[-1](x))


torch.manual_seed(123)
model, criterion = Net(3), nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(4):
    total = 0.0
    for step in range(10):
        small, large = torch.rand(4, 1, 24, 24), torch.rand(4, 1, 72, 72)
        optimizer.zero_grad()
        loss = criterion(model(small), large)
        total += loss.item()
        loss.backward()
        optimizer.step()
    print("epoch %d: mean loss %.6f" % (epoch, total / 10))
truth.finish(loss, model, steps=40, batch=4)
