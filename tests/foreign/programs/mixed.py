# case: autocast-bf16 {python} {file} bfloat16
# case: scaler-fp16 {python} {file} float16
"""Autocast with a scaler that skips steps, a mean of the weights over time, a schedule."""
import copy
import sys

import truth
import torch
from torch import nn

torch.manual_seed(0)
kind = getattr(torch, sys.argv[1])
model = nn.Sequential(nn.Linear(32, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 10))
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=60)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 20, growth_interval=10, enabled=kind == torch.float16)
made = 0
for step in range(60):
    with torch.autocast("cpu", dtype=kind):
        loss = nn.functional.cross_entropy(model(torch.randn(24, 32)), torch.randint(10, (24,)))
    scale = scaler.get_scale()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    made += scaler.get_scale() >= scale
    optimizer.zero_grad()
    schedule.step()
    average.update_parameters(model)
print("scale", scaler.get_scale())
truth.finish(loss, model, steps=made, batch=24)
