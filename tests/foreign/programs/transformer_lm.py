"""A transformer from torch.nn on a causal task, with a warm-up of the learning rate."""
import math

import truth
import torch
from torch import nn

WORDS, LENGTH, BATCH, WIDTH = 300, 32, 12, 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 128, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        mask = nn.Transformer.generate_square_subsequent_mask(words.shape[1])
        return self.out(self.encoder(self.embed(words) * math.sqrt(WIDTH) + self.place, mask=mask, is_causal=True))


torch.manual_seed(0)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 10))
for step in range(40):
    words = torch.randint(WORDS, (BATCH, LENGTH + 1))
    loss = nn.functional.cross_entropy(model(words[:, :-1]).transpose(1, 2), words[:, 1:])
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
truth.finish(loss, model, steps=40, batch=BATCH)
