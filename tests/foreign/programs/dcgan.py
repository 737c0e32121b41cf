"""Two networks with an optimizer each, stepped in turns."""
import truth
import torch
from torch import nn

torch.manual_seed(0)
BATCH = 16
maker = nn.Sequential(
    nn.ConvTranspose2d(32, 32, 4, 1, 0, bias=False), nn.BatchNorm2d(32), nn.ReLU(True),
    nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
    nn.ConvTranspose2d(16, 3, 4, 2, 1, bias=False), nn.Tanh())
judge = nn.Sequential(
    nn.Conv2d(3, 16, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True),
    nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, True),
    nn.Conv2d(32, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0))
criterion = nn.BCELoss()
of_judge = torch.optim.Adam(judge.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_maker = torch.optim.Adam(maker.parameters(), lr=2e-4, betas=(0.5, 0.999))
real_label, fake_label = torch.ones(BATCH), torch.zeros(BATCH)
for step in range(40):
    real = torch.rand(BATCH, 3, 16, 16) * 2 - 1
    judge.zero_grad()
    on_real = criterion(judge(real), real_label)
    on_real.backward()
    fake = maker(torch.randn(BATCH, 32, 1, 1))
    on_fake = criterion(judge(fake.detach()), fake_label)
    on_fake.backward()
    of_judge.step()
    maker.zero_grad()
    loss = criterion(judge(fake), real_label)
    loss.backward()
    of_maker.step()
truth.finish(loss, nn.ModuleList([maker, judge]), steps=40, batch=BATCH)
