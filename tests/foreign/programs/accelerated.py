# needs: accelerate
"""Accelerate with accumulation and clipping: its optimizer skips the steps in between."""
import truth
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
model = nn.Sequential(nn.Linear(20, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 5))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = torch.utils.data.TensorDataset(torch.randn(8 * 160, 20), torch.randint(5, (8 * 160,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, loader, schedule)
for inputs, target in loader:
    with accelerator.accumulate(model):
        loss = nn.functional.cross_entropy(model(inputs), target)
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
truth.finish(loss, model, steps=40, batch=32)
