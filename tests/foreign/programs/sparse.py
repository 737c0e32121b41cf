"""An embedding with sparse gradients and an optimizer for it, beside a dense one."""
import truth
import torch
from torch import nn

torch.manual_seed(0)
bag, top = nn.EmbeddingBag(2000, 16, sparse=True, mode="sum"), nn.Linear(16, 2)
model = nn.ModuleList([bag, top])
of_bag, of_top = torch.optim.SparseAdam(bag.parameters()), torch.optim.Adagrad(top.parameters())
for step in range(40):
    words, starts = torch.randint(2000, (90,)), torch.arange(0, 90, 3)
    loss = nn.functional.cross_entropy(top(bag(words, starts)), torch.randint(2, (30,)))
    of_bag.zero_grad()
    of_top.zero_grad()
    loss.backward()
    of_bag.step()
    of_top.step()
truth.finish(loss, model, steps=40, batch=30)
