# case: profiles-schedule {python} {file} schedule
# case: profiles-whole {python} {file} whole
# case: profiles-late {python} {file} late
# case: profiles-legacy {python} {file} legacy
"""The program uses PyTorch's profiler itself, at any time."""
import contextlib
import sys

import truth
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters())
kind, seen = sys.argv[1], []


def ready(profile):
    seen.append({event.key: event.count for event in profile.key_averages() if event.key.startswith("aten::")})


def profiler(step):
    if kind == "schedule" and step == 0:
        return torch.profiler.profile(schedule=torch.profiler.schedule(wait=5, warmup=3, active=4, repeat=2),
                                      on_trace_ready=ready)
    if kind == "whole" and step == 0 or kind == "late" and step in (11, 30):
        return torch.profiler.profile(on_trace_ready=ready, record_shapes=True)
    if kind == "legacy" and step == 12:
        return torch.autograd.profiler.profile()


with contextlib.ExitStack() as stack:
    mine = None
    for step in range(48):
        if (new := profiler(step)) is not None:
            stack.close()
            mine = stack.enter_context(new)
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if kind == "schedule":
            mine.step()
        elif kind == "late" and step in (15, 34):
            stack.close()
if kind == "legacy":
    ready(mine)
for counts in seen:
    print(sum(counts.values()), sorted(counts.items()))
truth.finish(loss, model, steps=48, batch=8)
