# case: word-lm {python} {file} adam
# case: word-lm-manual {python} {file} manual
"""A language model of words: an LSTM fed time first, gradients clipped; stepped by hand as older code does."""
import sys

import truth
import torch
from torch import nn

WORDS, LENGTH, BATCH = 500, 35, 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 64)
        self.rnn = nn.LSTM(64, 64, 2, dropout=0.2)
        self.out = nn.Linear(64, WORDS)

    def forward(self, words, hidden):
        states, hidden = self.rnn(self.embed(words), hidden)
        return self.out(states).view(-1, WORDS), hidden


torch.manual_seed(0)
text = torch.randint(WORDS, (LENGTH * 40 + 1, BATCH))
model, criterion = Model(), nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters()) if sys.argv[1] == "adam" else None
hidden = (torch.zeros(2, BATCH, 64), torch.zeros(2, BATCH, 64))
model.train()
for step in range(40):
    words, target = text[step * LENGTH:][:LENGTH], text[step * LENGTH + 1:][:LENGTH].reshape(-1)
    hidden = tuple(state.detach() for state in hidden)
    model.zero_grad()
    output, hidden = model(words, hidden)
    loss = criterion(output, target)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    if optimizer is not None:
        optimizer.step()
    else:
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-1.0)
truth.finish(loss, model, steps=40 if optimizer else 0, batch=BATCH)
