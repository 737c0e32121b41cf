# case: ends-raises {python} {file} raises
# case: ends-exit3 {python} {file} exit3
# case: ends-message {python} {file} message
# case: ends-os-exit {python} {file} os_exit
# case: ends-sigkill {python} {file} kill
# case: ends-sigsegv {python} {file} segv
# case: ends-sigterm {python} {file} term
# case: ends-interrupt {python} {file} interrupt
# case: ends-abort {python} {file} abort
# case: ends-in-window {python} {file} raises 12
# case: ends-os-exit-in-window {python} {file} os_exit 12
# case: ends-sigkill-in-window {python} {file} kill 12
# case: ends-right-after-window {python} {file} os_exit 13
# case: ends-exec {python} {file} exec 25
"""Ways to end: in good order, by an error, by a signal, as another program; at any step."""
import ctypes
import os
import signal
import sys

import truth
import torch
from torch import nn

how, last = sys.argv[1], int((sys.argv + ["40"])[2])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(last):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
truth.finish(loss, model, steps=last, batch=8)
if how == "raises":
    raise ValueError("the loss is %.6f" % loss.item())
if how == "exit3":
    sys.exit(3)
if how == "message":
    sys.exit("gave up at loss %.6f" % loss.item())
if how == "os_exit":
    os._exit(4)
if how == "segv":
    ctypes.string_at(0)
if how == "abort":
    os.abort()
if how == "exec":
    os.execv(sys.executable, [sys.executable, __file__, "exit3", "30"])
os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM, "interrupt": signal.SIGINT}[how])
