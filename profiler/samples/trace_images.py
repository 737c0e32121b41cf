#!/usr/bin/env python3
"""Op lists of a training step of ResNet-50 and of DenseNet-121, without a GPU.

usage: python trace_images.py OUT_DIR            needs torch
Writes OUT_DIR/<case>.json in the op-list form that `habitat-tui import` reads, as trace_cases.py does.

Batch 64 of 3 x 224 x 224, fp32, SGD with momentum. ResNet-50: He et al. 2016, the stride of a bottleneck in its
3 x 3 convolution. DenseNet-121: Huang et al. 2017, growth 32, blocks of 6, 12, 24 and 16 layers.
"""
import json, os, sys
import torch, torch.nn as nn, torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from trace_cases import REC


def normed(i, o, k, s=1):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o))


class Bottleneck(nn.Module):
    def __init__(self, i, w, s):
        super().__init__()
        self.a, self.b, self.c = normed(i, w, 1), normed(w, w, 3, s), normed(w, 4 * w, 1)
        self.short = normed(i, 4 * w, 1, s) if s != 1 or i != 4 * w else nn.Identity()

    def forward(self, x):
        y = F.relu(self.a(x), inplace=True)
        y = F.relu(self.b(y), inplace=True)
        return F.relu(self.c(y) + self.short(x), inplace=True)


def resnet50():
    blocks, i = [], 64
    for w, n, s in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for index in range(n):
            blocks.append(Bottleneck(i, w, s if index == 0 else 1))
            i = 4 * w
    stem = [normed(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


class Dense(nn.Module):
    def __init__(self, i, growth=32):
        super().__init__()
        self.a, self.b = nn.BatchNorm2d(i), nn.Conv2d(i, 4 * growth, 1, bias=False)
        self.c, self.d = nn.BatchNorm2d(4 * growth), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, parts):
        x = torch.cat(parts, 1)
        return self.d(F.relu(self.c(self.b(F.relu(self.a(x), inplace=True))), inplace=True))


class DenseBlock(nn.Module):
    def __init__(self, i, n):
        super().__init__()
        self.layers = nn.ModuleList([Dense(i + 32 * index) for index in range(n)])

    def forward(self, x):
        parts = [x]
        for layer in self.layers:
            parts.append(layer(parts))
        return torch.cat(parts, 1)


def densenet121():
    rest, i = [], 64
    for index, n in enumerate((6, 12, 24, 16)):
        rest.append(DenseBlock(i, n))
        i += 32 * n
        rest += [nn.BatchNorm2d(i), nn.ReLU(True)]
        if index < 3:
            rest += [nn.Conv2d(i, i // 2, 1, bias=False), nn.AvgPool2d(2)]
            i //= 2
    stem = [normed(3, 64, 7, 2), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *rest, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 1000))


if __name__ == "__main__":
    for case, build, batch in (("resnet50-b64", resnet50, 64), ("densenet121-b64", densenet121, 64)):
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = build()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)

            def step(phase):
                phase("forward")
                loss = F.cross_entropy(model(torch.empty(batch, 3, 224, 224)), torch.zeros(batch, dtype=torch.long))
                phase("backward")
                loss.backward()
                phase("optimizer")
                optimizer.step()
                optimizer.zero_grad()
            step(lambda phase: None)  # creates the optimizer state
            REC.rows, REC.quiet = {}, False
            with REC:
                step(lambda phase: setattr(REC, "phase", phase))
        info = dict(case=case, torch=torch.__version__, params=sum(p.numel() for p in model.parameters()), batch=batch)
        with open(os.path.join(sys.argv[1], case + ".json"), "w") as out:
            json.dump(dict(info=info, ops=list(REC.rows.values())), out)
        print(case, info["params"], "parameters,", len(REC.rows), "distinct calls")
