# needs: timm
"""A small vision transformer of timm with its mixup, loss, optimizer and schedule."""
import truth
import numpy
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3

torch.manual_seed(0)
numpy.random.seed(0)
model = timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=8, pretrained=False)
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
schedule = CosineLRScheduler(optimizer, t_initial=40, warmup_t=5)
mixup, criterion, average = Mixup(mixup_alpha=0.2, num_classes=8), SoftTargetCrossEntropy(), ModelEmaV3(model)
model.train()
for step in range(40):
    images, target = mixup(torch.randn(8, 3, 32, 32), torch.randint(8, (8,)))
    loss = criterion(model(images), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update(model)
    schedule.step(step)
truth.finish(loss, model, steps=40, batch=8)
