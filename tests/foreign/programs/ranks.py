# case: ddp {python} -m torch.distributed.run --nproc-per-node 2 {file} ddp
# case: fsdp {python} -m torch.distributed.run --nproc-per-node 2 {file} fsdp
"""Two ranks: the whole model on each, or a part of it. The batch is that of one rank."""
import sys
import warnings

warnings.filterwarnings("ignore")
import truth
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
parameters = sum(p.numel() for p in model.parameters())
if sys.argv[1] == "ddp":
    run = nn.parallel.DistributedDataParallel(model)
else:
    from torch.distributed.fsdp import fully_shard
    run = fully_shard(model, mesh=dist.init_device_mesh("cpu", (2,)))
optimizer = torch.optim.AdamW(run.parameters(), lr=1e-3)
torch.manual_seed(rank)
for step in range(40):
    loss = run(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if rank == 0:
    truth.finish(loss.detach(), steps=40, batch=8, parameters=parameters)
dist.barrier()
dist.destroy_process_group()
