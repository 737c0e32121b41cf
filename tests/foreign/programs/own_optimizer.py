"""An optimizer of the program's own, saved and loaded between steps, with hooks of its own on it."""
import copy
import io
import pickle

import truth
import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                    p.add_(mean.lerp(p.grad, 1 - group["beta"]).sign(), alpha=-group["lr"])
                    mean.lerp_(p.grad, 0.01)


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = Lion(model.parameters())
called = []
optimizer.register_step_post_hook(lambda *_: called.append("after"))
optimizer.register_step_pre_hook(lambda *_: called.append("before"))
for step in range(45):
    loss = nn.functional.cross_entropy(model(torch.randn(14, 16)), torch.randint(4, (14,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 11:
        file = io.BytesIO()
        torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
        file.seek(0)
        optimizer.load_state_dict(torch.load(file, weights_only=False)["optimizer"])
        copy.deepcopy(model), pickle.dumps(model)
print(len(called), called[:2])
truth.finish(loss, model, steps=45, batch=14)
