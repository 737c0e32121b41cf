# case: nanogpt {python} {file} eager
# case: nanogpt-compile {python} {file} compile
"""A small GPT: gradients of several micro batches added up, clipped, weight decay in groups, compiled or not."""
import math
import sys

import truth
import torch
import torch.nn.functional as F
from torch import nn

WORDS, LENGTH, BATCH, MICRO, WIDTH, HEADS = 128, 32, 6, 4, 64, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        count, length, _ = x.shape
        q, k, v = (part.view(count, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.ln1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks, self.norm = nn.ModuleList([Block() for _ in range(2)]), nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, words, targets):
        x = self.words(words) + self.places(torch.arange(words.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.view(-1, WORDS), targets.reshape(-1))


torch.manual_seed(1337)
model = GPT()
groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
          {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), fused=True)
run = torch.compile(model) if sys.argv[1] == "compile" else model
for step in range(36):
    for group in optimizer.param_groups:
        group["lr"] = 1e-3 * (0.5 + 0.5 * math.cos(math.pi * step / 36))
    for _ in range(MICRO):
        text = torch.randint(WORDS, (BATCH, LENGTH + 1))
        _, loss = run(text[:, :-1], text[:, 1:])
        (loss / MICRO).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
if sys.argv[1] == "compile":
    from torch._dynamo.utils import counters
    print("frames", dict(counters["frames"]), "graphs", counters["stats"]["unique_graphs"])
truth.finish(loss, model, steps=36, batch=BATCH * MICRO)
