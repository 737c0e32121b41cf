"""A Normalize that is a module works on single pictures in the loader, before the model sees a batch."""
import truth
import torch
from torch import nn


class Normalize(nn.Module):
    def forward(self, picture):
        return (picture - 0.5) / 0.25


class Pictures(torch.utils.data.Dataset):
    transform = nn.Sequential(Normalize(), nn.Identity())

    def __len__(self):
        return 32 * 40

    def __getitem__(self, index):
        return self.transform(torch.rand(3, 16, 16)), index % 10


torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for images, target in torch.utils.data.DataLoader(Pictures(), batch_size=32, shuffle=True):
    loss = nn.functional.cross_entropy(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=40, batch=32)
