# case: spawns {python} {file} spawn
# case: spawns-fork {python} {file} fork
# case: spawns-forkserver {python} {file} forkserver
# case: pool {python} {file} pool
"""Trains in processes of multiprocessing; in a pool, several after one another."""
import multiprocessing
import sys

import truth
import torch
from torch import nn


def train(seed, finish=False):
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(40):
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if finish:
        truth.finish(loss, model, steps=40, batch=8)
    return round(loss.item(), 7)


if __name__ == "__main__":
    if sys.argv[1] == "pool":
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(train, range(4)))
        train(5, True)
    else:
        child = multiprocessing.get_context(sys.argv[1]).Process(target=train, args=(7, True))
        child.start()
        child.join()
        print("child ended with", child.exitcode)
