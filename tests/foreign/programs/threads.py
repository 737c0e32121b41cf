# case: thread {python} {file} one
# case: two-threads {python} {file} two
# case: asyncio {python} {file} asyncio
"""Training beside the main thread, twice at the same time, and within an event loop."""
import asyncio
import sys
import threading

import truth
import torch
from torch import nn

results = {}


def made(seed):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


models = [made(0), made(1)]


def steps(seed, count=40):
    random, model = torch.Generator().manual_seed(seed), models[seed]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(count):
        loss = model(torch.randn(8, 16, generator=random)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield
    results[seed] = loss.item(), model


def train(seed):
    torch.set_num_threads(1)
    for _ in steps(seed):
        pass


async def ticks():
    for _ in range(20):
        await asyncio.sleep(0.001)


async def loop():
    other = asyncio.create_task(ticks())
    for _ in steps(0):
        await asyncio.sleep(0)
    await other


if sys.argv[1] == "asyncio":
    asyncio.run(loop())
else:
    threads = [threading.Thread(target=train, args=(seed,)) for seed in range(2 if sys.argv[1] == "two" else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("threads", threading.active_count(), [round(results[seed][0], 7) for seed in sorted(results)])
truth.finish(*results[0], steps=40, batch=8)
