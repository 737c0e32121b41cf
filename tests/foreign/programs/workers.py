"""Workers of a loader that live from epoch to epoch, with a seed of their own."""
import random

import truth
import numpy
import torch
from torch import nn


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 160

    def __getitem__(self, index):
        return torch.randn(16) + numpy.random.rand() + random.random(), index % 4


def seeded(worker):
    numpy.random.seed(worker)
    random.seed(worker)


if __name__ == "__main__":
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Data(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True,
                                         worker_init_fn=seeded)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for inputs, target in loader:
            loss = nn.functional.cross_entropy(model(inputs.float()), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    truth.finish(loss, model, steps=40, batch=8)
