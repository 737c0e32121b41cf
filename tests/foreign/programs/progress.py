# needs: tqdm
"""A progress bar on standard error, and logging to both."""
import logging
import sys

import truth
import torch
from torch import nn
from tqdm import tqdm

logging.basicConfig(level=logging.DEBUG, stream=sys.stderr, format="%(levelname)s %(name)s %(message)s")
torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with tqdm(range(40), bar_format="{n_fmt}/{total_fmt} {postfix}", mininterval=0, miniters=1) as bar:
    for step in bar:
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        bar.set_postfix(loss="%.6f" % loss.item())
        if step % 10 == 0:
            logging.info("step %d", step)
truth.finish(loss, model, steps=40, batch=8)
