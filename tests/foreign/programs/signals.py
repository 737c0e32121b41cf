# case: signals-alarm {python} {file} alarm
# case: signals-usr1 {python} {file} usr1
"""Handlers of signals that raise: an alarm that limits steps, a request to save sent by another process."""
import os
import signal
import subprocess
import sys

import truth
import torch
from torch import nn


class TooLong(Exception):
    pass


class SaveNow(Exception):
    pass


def raises(kind):
    def handler(number, frame):
        raise kind()
    return handler


signal.signal(signal.SIGALRM, raises(TooLong))
signal.signal(signal.SIGUSR1, raises(SaveNow))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters())
done, caught = 0, 0
sender = None
while done < 60:
    inputs = torch.randn(8, 16, generator=torch.Generator().manual_seed(done))
    try:
        if sys.argv[1] == "alarm":
            signal.setitimer(signal.ITIMER_REAL, 0.02 if done % 3 == 0 and caught <= done // 3 else 5)
            if done % 3 == 0 and caught <= done // 3:
                while True:
                    sum(range(1000))  # Until the alarm comes.
        elif caught <= done // 3 and done % 3 == 0:
            sender = subprocess.Popen(["kill", "-USR1", str(os.getpid())])
            while True:
                sum(range(1000))
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        done += 1
    except (TooLong, SaveNow):
        caught += 1
        if sender:
            sender.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
print("caught", caught, signal.getsignal(signal.SIGALRM).__qualname__)
truth.finish(loss, model, steps=60, batch=8)
