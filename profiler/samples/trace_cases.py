#!/usr/bin/env python3
"""Op lists of the two networks of Habitat's case studies (USENIX ATC '21, section 5.3), without a GPU.

usage: python trace_cases.py OUT_DIR            needs torch
Writes OUT_DIR/<case>.json in the op-list form that `habitat-tui import` reads.

The networks are built by torch modules and traced by a TorchDispatchMode under FakeTensorMode: shapes
only, nothing is computed. One thing is put in by hand: on a CPU an LSTM layer is traced as thousands of
small products, on a GPU it is one call of cuDNN. `Lstm` below therefore records `_cudnn_rnn` and
`_cudnn_rnn_backward` itself, with the arguments that `torch.nn.LSTM` gives them on a GPU.
"""
import json, os, sys
import torch, torch.nn as nn, torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten


def short(x):
    if isinstance(x, torch.Tensor):
        return dict(shape=list(x.shape), dtype=str(x.dtype).replace("torch.", ""))
    if isinstance(x, (list, tuple)):
        return [short(v) for v in x]
    if isinstance(x, dict):
        return {k: short(v) for k, v in x.items()}
    if x is None or isinstance(x, (bool, int, float, str)):
        return x
    return str(x)


class Recorder(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.phase, self.rows, self.quiet = "forward", {}, False

    def add(self, op, inputs, kwargs, outputs, view=False):
        row = dict(phase=self.phase, op=op, inputs=short(inputs), kwargs=short(kwargs) or None,
                   outputs=[short(t) for t in outputs], count=0, view=view)
        self.rows.setdefault(json.dumps(row, default=str), row)["count"] += 1

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = str(func)
        if not self.quiet and not name.startswith(("prim.", "profiler.", "aten.detach")):
            view = bool(func.is_view) or name.startswith(("aten.t.", "aten._unsafe_view"))
            self.add(name, args, kwargs or {}, [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor)], view)
        return out


REC = Recorder()


class CudnnLstm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bidirectional, *weights):
        ctx.save_for_backward(x, *weights)
        ctx.bidirectional = bidirectional
        directions, hidden = 1 + bidirectional, weights[1].shape[1]
        ctx.hidden = hidden
        REC.quiet = True
        y = x.new_empty(*x.shape[:2], directions * hidden)
        state = x.new_empty(directions, x.shape[1], hidden)
        buffer = x.new_empty(sum(w.numel() for w in weights))
        REC.quiet = False
        # (input, weight, stride, buffer, hx, cx, mode, hidden, projection, layers, batch first, dropout, training, bidirectional)
        REC.add("aten._cudnn_rnn.default",
                [x, list(weights), 4, buffer, state, state, 2, hidden, 0, 1, False, 0.0, True, bidirectional, [], None], {}, [y, state, state, buffer])
        ctx.state, ctx.buffer = state, buffer
        return y

    @staticmethod
    def backward(ctx, gradient):
        x, *weights = ctx.saved_tensors
        REC.quiet = True
        dx, dw = torch.empty_like(x), [torch.empty_like(w) for w in weights]
        REC.quiet = False
        REC.add("aten._cudnn_rnn_backward.default",
                [x, list(weights), 4, ctx.buffer, ctx.state, ctx.state, gradient, gradient, None, None, 2, ctx.hidden, 0, 1, False, 0.0, True,
                 ctx.bidirectional, [], None, ctx.buffer, [True, True, True, True]], {}, [dx, ctx.state, ctx.state, *dw])
        return (dx, None, *dw)


class Lstm(nn.Module):
    """One layer over a sequence (length, batch, features)."""

    def __init__(self, features, hidden, bidirectional=False):
        super().__init__()
        self.inner, self.bidirectional = nn.LSTM(features, hidden, bidirectional=bidirectional), bidirectional

    def forward(self, x):
        return CudnnLstm.apply(x, self.bidirectional, *self.inner.parameters())


class Gnmt(nn.Module):
    """GNMT v2 as MLPerf trains it: 4 + 4 LSTM layers of 1024, the first of the encoder in both directions,
    residual connections from the third on, additive normalised attention after the first decoder layer whose
    context goes into every decoder layer, vocabulary 32,317, dropout 0.2."""

    def __init__(self, vocabulary=32317, hidden=1024, dropout=0.2):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embed = nn.Embedding(vocabulary, hidden)
        self.encoder = nn.ModuleList([Lstm(hidden, hidden, True), Lstm(2 * hidden, hidden), Lstm(hidden, hidden), Lstm(hidden, hidden)])
        self.decoder = nn.ModuleList([Lstm(hidden, hidden)] + [Lstm(2 * hidden, hidden) for _ in range(3)])
        self.query, self.key = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.score = nn.Parameter(torch.empty(hidden))
        self.bias = nn.Parameter(torch.empty(hidden))
        self.classifier = nn.Linear(hidden, vocabulary)

    def attend(self, query, keys):
        query, keys = query.transpose(0, 1), keys.transpose(0, 1)
        both = self.query(query).unsqueeze(2) + self.key(keys).unsqueeze(1) + self.bias
        scores = torch.tanh(both).matmul(self.score / self.score.norm())
        return torch.bmm(F.softmax(scores, dim=-1), keys).transpose(0, 1)

    def forward(self, source, target):
        x = self.encoder[0](self.dropout(self.embed(source)))
        x = self.encoder[1](self.dropout(x))
        for layer in self.encoder[2:]:
            x = layer(self.dropout(x)) + x
        y = self.decoder[0](self.dropout(self.embed(target)))
        context = self.attend(y, x)
        y = self.decoder[1](torch.cat((self.dropout(y), context), dim=2))
        for layer in self.decoder[2:]:
            y = layer(torch.cat((self.dropout(y), context), dim=2)) + y
        return self.classifier(y)


def smoothed_loss(logits, labels, smoothing=0.1):
    p = F.log_softmax(logits.view(-1, logits.shape[-1]), dim=-1)
    picked = -p.gather(dim=-1, index=labels.view(-1, 1)).squeeze(1)
    return ((1 - smoothing) * picked + smoothing * -p.mean(dim=-1)).sum()


def gnmt(batch, length=50):
    model = Gnmt()
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)

    def step(phase):
        source, target, labels = (torch.zeros(length, batch, dtype=torch.long) for _ in range(3))
        phase("forward")
        loss = smoothed_loss(model(source, target), labels)
        phase("backward")
        loss.backward()
        phase("optimizer")
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        optimizer.zero_grad()
    return model, step, dict(batch=batch, seq=length)


def dcgan(batch, z=100, size=64):
    """PyTorch's DCGAN example, which is LSUN at 64 x 64: both networks updated once per step."""
    up = lambda i, o, s, p: [nn.ConvTranspose2d(i, o, 4, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU(True)]
    down = lambda i, o: [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, inplace=True)]
    g = nn.Sequential(*up(z, 512, 1, 0), *up(512, 256, 2, 1), *up(256, 128, 2, 1), *up(128, 64, 2, 1), nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())
    d = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True), *down(64, 128), *down(128, 256), *down(256, 512),
                      nn.Conv2d(512, 1, 4, 1, 0, bias=False), nn.Sigmoid())
    both = nn.ModuleList([g, d])
    adam = lambda m: torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999), foreach=True)
    optimizer_g, optimizer_d = adam(g), adam(d)

    def step(phase):
        real, noise = torch.empty(batch, 3, size, size), torch.empty(batch, z, 1, 1)
        judge = lambda images, label: F.binary_cross_entropy(d(images).view(-1), torch.full((batch,), label))
        phase("forward")
        d.zero_grad()
        loss = judge(real, 1.0)
        phase("backward")
        loss.backward()
        phase("forward")
        fake = g(noise)
        loss = judge(fake.detach(), 0.0)
        phase("backward")
        loss.backward()
        phase("optimizer")
        optimizer_d.step()
        g.zero_grad()
        phase("forward")
        loss = judge(fake, 1.0)
        phase("backward")
        loss.backward()
        phase("optimizer")
        optimizer_g.step()
    return both, step, dict(batch=batch)


CASES = {f"gnmt-b{b}": (gnmt, b) for b in (16, 32, 48)} | {f"dcgan-b{b}": (dcgan, b) for b in (64, 96, 128)}

if __name__ == "__main__":
    for case, (build, batch) in CASES.items():
        with FakeTensorMode(allow_non_fake_inputs=True):
            model, step, info = build(batch)
            step(lambda phase: None)  # creates the optimizer state
            REC.rows, REC.quiet = {}, False
            with REC:
                step(lambda phase: setattr(REC, "phase", phase))
        info = dict(case=case, torch=torch.__version__, params=sum(p.numel() for p in model.parameters()), **info)
        with open(os.path.join(sys.argv[1], case + ".json"), "w") as out:
            json.dump(dict(info=info, ops=list(REC.rows.values())), out)
        print(case, info["params"], "parameters,", len(REC.rows), "distinct calls")
