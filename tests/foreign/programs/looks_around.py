# case: closes-files {python} {file} closes
# case: looks-around {python} {file} looks
# case: traced {python} {file} traced
"""Looks at its process (threads, files, hooks, warnings), or closes all files that are open, as daemons do."""
import gc
import os
import sys
import threading
import warnings

import truth
import torch
from torch import nn

how = sys.argv[1]
warnings.simplefilter("always")
torch.manual_seed(0)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
calls, mine = 0, None
for step in range(1500):
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if how == "closes" and step == 3:
        os.closerange(3, 256)
        # Numbers of files that were closed are given again, to these.
        mine = [os.open("file%d" % number, os.O_RDWR | os.O_CREAT) for number in range(12)]
    if how == "traced" and step == 5:
        sys.settrace(lambda *_: None)
        sys.setprofile(lambda *_: None)
if how == "closes":
    print([os.fstat(file).st_size for file in mine])
if how == "looks":
    print(sorted(thread.name for thread in threading.enumerate()))
    print(gc.get_threshold(), gc.isenabled())
    print(torch.nn.modules.module._global_forward_pre_hooks, sys.getrecursionlimit(), sys.excepthook is sys.__excepthook__)
    print(os.listdir("."), os.getpgrp() == os.getpid(), os.umask(0o22), os.nice(0))
    print(sorted(name for name in os.environ if name.startswith("PYTHON")), sys.path[1:2])
if how == "traced":
    print(sys.gettrace() is not None, sys.getprofile() is not None)
truth.finish(loss, model, steps=1500, batch=8)
