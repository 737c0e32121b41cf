"""Networks of published steps that no package contains, in plain PyTorch."""

import torch
import torch.nn.functional as F
from torch import nn


class NeuMF(nn.Module):
    """Neural matrix factorization on MovieLens 20M (He et al. 2017; sizes of NVIDIA's
    DeepLearningExamples, PyTorch/Recommendation/NCF)."""

    USERS, ITEMS = 138493, 26744
    FACTORS = 64
    WIDTHS = 256, 256, 128, 64

    def __init__(self, dropout=0.5):
        super().__init__()
        half = self.WIDTHS[0] // 2
        self.user_factors, self.user_features = nn.Embedding(self.USERS, self.FACTORS), nn.Embedding(self.USERS, half)
        self.item_factors, self.item_features = nn.Embedding(self.ITEMS, self.FACTORS), nn.Embedding(self.ITEMS, half)
        self.layers = nn.ModuleList(nn.Linear(wide, narrow) for wide, narrow in zip(self.WIDTHS, self.WIDTHS[1:]))
        self.score = nn.Linear(self.FACTORS + self.WIDTHS[-1], 1)
        self.dropout = dropout

    def forward(self, users, items):
        product = self.user_factors(users) * self.item_factors(items)
        features = torch.cat((self.user_features(users), self.item_features(items)), dim=1)
        for layer in self.layers:
            features = F.dropout(F.relu(layer(features)), self.dropout, self.training)
        return self.score(torch.cat((product, features), dim=1))


class RelativeAttention(nn.Module):
    """Attention with relative positions over the memory and the text (Dai et al. 2019, section 3.3), in
    separate products. Tensors are (time, batch, width)."""

    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.position = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, positions, content_bias, position_bias, mask, memory):
        target, batch, _ = x.shape
        heads = lambda value: value.view(value.shape[0], -1, self.heads, self.size)
        q, k, v = map(heads, self.qkv(torch.cat((memory, x))).chunk(3, dim=-1))
        q = q[-target:]
        r = self.position(positions).view(-1, self.heads, self.size)
        by_content = torch.einsum("ibnd,jbnd->bnij", q + content_bias, k)
        by_position = self.shifted(torch.einsum("ibnd,jnd->bnij", q + position_bias, r))
        scores = (by_content + by_position).mul_(self.size**-0.5)
        weights = F.softmax(scores.masked_fill(mask, float("-inf")), dim=3)
        mixed = torch.einsum("bnij,jbnd->ibnd", weights, v).reshape(target, batch, -1)
        return self.norm(x + self.dropout(self.out(mixed)))

    @staticmethod
    def shifted(scores):
        """Shifts row i by i, so that a column is a key instead of a distance (appendix B)."""
        batch, heads, rows, columns = scores.shape
        padded = torch.cat((scores.new_zeros(batch, heads, rows, 1), scores), dim=3)
        return padded.view(batch, heads, columns + 1, rows)[:, :, 1:].view_as(scores)


class AdaptiveSoftmax(nn.Module):
    """The loss over a large vocabulary in clusters by frequency (Grave et al. 2017), with the weights of the
    embedding. Only words of a cluster are scored in it; their number differs from step to step, so this uses a
    typical share."""

    CUTOFFS = 19997, 39997, 199997, 267735
    # Share of the words in each cluster: frequencies of the package wordfreq 3.1.1 (its large English list, the
    # first 267,735 words). Those of WikiText-103 itself were not available.
    SHARES = 0.9593, 0.0211, 0.0183, 0.0013

    def __init__(self, width, embedding):
        super().__init__()
        clusters = len(self.CUTOFFS) - 1
        self.embedding = embedding
        self.bias = nn.Parameter(torch.zeros(self.CUTOFFS[-1]))
        self.cluster_weight = nn.Parameter(torch.zeros(clusters, width))
        self.cluster_bias = nn.Parameter(torch.zeros(clusters))

    def forward(self, hidden, targets):
        weight, words = self.embedding.weight, targets.numel()
        first = self.CUTOFFS[0]
        head = F.linear(
            hidden, torch.cat((weight[:first], self.cluster_weight)), torch.cat((self.bias[:first], self.cluster_bias))
        )
        head = F.log_softmax(head, dim=1)
        losses = torch.zeros_like(targets, dtype=head.dtype)
        counts = [max(1, round(words * share)) for share in self.SHARES]
        counts[0] = words - sum(counts[1:])
        low, start = 0, 0
        for cluster, (high, count) in enumerate(zip(self.CUTOFFS, counts)):
            # Same shape as `nonzero` of the words between `low` and `high`.
            places = ((targets >= low) & (targets < high)).new_zeros(count, dtype=torch.long)
            wanted = targets.index_select(0, places).sub(low)[:, None]
            chosen = head.index_select(0, places)
            if cluster == 0:
                found = chosen.gather(1, wanted)[:, 0]
            else:
                tail = F.linear(hidden.index_select(0, places), weight[low:high], self.bias[low:high])
                found = chosen[:, -cluster] + F.log_softmax(tail, dim=1).gather(1, wanted)[:, 0]
            losses[start : start + count].copy_(-found)
            low, start = high, start + count
        return losses


class FullSoftmax(nn.Module):
    """The loss over the same vocabulary with scores of every word."""

    def __init__(self, width, embedding):
        super().__init__()
        self.embedding = embedding
        self.bias = nn.Parameter(torch.zeros(embedding.num_embeddings))

    def forward(self, hidden, targets):
        scores = F.log_softmax(F.linear(hidden, self.embedding.weight, self.bias), dim=1)
        return -scores.gather(1, targets[:, None])[:, 0]


class TransformerXL(nn.Module):
    """Transformer-XL on WikiText-103 (Dai et al. 2019; base sizes of NVIDIA's DeepLearningExamples,
    PyTorch/LanguageModeling/Transformer-XL): norms after each block, no dropout of attention weights, one
    embedding for input and output."""

    def __init__(self, layers=16, width=512, heads=8, inner=2048, dropout=0.1, clusters=True):
        super().__init__()
        self.width, self.layers = width, layers
        self.embedding = nn.Embedding(AdaptiveSoftmax.CUTOFFS[-1], width)
        self.attention = nn.ModuleList(RelativeAttention(width, heads, dropout) for _ in range(layers))
        self.inner = nn.ModuleList(
            nn.Sequential(
                nn.Linear(width, inner),
                nn.ReLU(inplace=True),
                nn.Dropout(dropout),
                nn.Linear(inner, width),
                nn.Dropout(dropout),
            )
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.content_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.position_bias = nn.Parameter(torch.zeros(heads, width // heads))
        self.dropout = nn.Dropout(dropout)
        self.softmax = (AdaptiveSoftmax if clusters else FullSoftmax)(width, self.embedding)

    def forward(self, words, targets, memory):
        target, keys = len(words), len(words) + memory[0].shape[0]
        x = self.embedding(words) * self.width**0.5
        mask = torch.triu(words.new_ones(target, keys), diagonal=1 + keys - target).bool()
        angles = torch.outer(
            torch.arange(keys - 1, -1, -1.0), 1 / 10000 ** (torch.arange(0.0, self.width, 2.0) / self.width)
        )
        positions = self.dropout(torch.cat((angles.sin(), angles.cos()), dim=-1).to(x.dtype))
        x = self.dropout(x)
        seen = [x]
        for layer in range(self.layers):
            past = memory[layer].to(x.dtype)
            x = self.attention[layer](x, positions, self.content_bias, self.position_bias, mask, past)
            x = self.norms[layer](x + self.inner[layer](x))
            seen.append(x)
        with torch.no_grad():
            # The memory of the next step: the newest words, in the same number.
            for old, new in zip(memory, seen):
                torch.cat((old, new.to(old.dtype)))[-len(old) :].detach()
        x = self.dropout(x)
        return self.softmax(x.view(-1, self.width), targets.view(-1)).float().mean()


def twice(inward, outward, stride):
    """Two convolutions of nnU-Net, each with its norm."""

    def one(inward, stride):
        return (
            nn.Conv2d(inward, outward, 3, stride, padding=1, bias=False),
            nn.InstanceNorm2d(outward, affine=True),
            nn.LeakyReLU(0.01, inplace=True),
        )

    return nn.Sequential(*one(inward, stride), *one(outward, 1))


class NnUnet(nn.Module):
    """nnU-Net in two dimensions for brain tumours (Isensee et al. 2021; task 01 with four
    channels in and four classes, NVIDIA's DeepLearningExamples, PyTorch/Segmentation/nnUNet):
    a level for each halving of 192 x 160 down to 6 x 5, filters doubled up to 512."""

    FILTERS = 32, 64, 128, 256, 512, 512

    def __init__(self):
        super().__init__()
        pairs = list(zip(self.FILTERS, self.FILTERS[1:]))
        self.down = nn.ModuleList([twice(4, self.FILTERS[0], 1)] + [twice(a, b, 2) for a, b in pairs])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2, bias=False) for a, b in reversed(pairs))
        self.joined = nn.ModuleList(twice(2 * a, a, 1) for a, _ in reversed(pairs))
        self.out = nn.Conv2d(self.FILTERS[0], 4, 1)

    def forward(self, x):
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.joined):
            x = block(torch.cat((up(x), kept.pop()), dim=1))
        return self.out(x)


def dice_and_cross_entropy(scores, labels):
    """The loss of nnU-Net: cross entropy and the overlap of each class with its label."""
    entropy = F.cross_entropy(scores, labels)
    parts = scores.softmax(dim=1)
    wanted = F.one_hot(labels, scores.shape[1]).movedim(-1, 1).to(parts.dtype)
    both, sum_of_each = (parts * wanted).sum((2, 3)), parts.sum((2, 3)) + wanted.sum((2, 3))
    return entropy + 1 - ((2 * both + 1e-5) / (sum_of_each + 1e-5)).mean()


class Unet(nn.Module):
    """U-Net (Ronneberger et al. 2015): five levels of 64 to 1,024 filters, convolutions without padding (572
    in, 388 out), two classes."""

    FILTERS = 64, 128, 256, 512, 1024
    OUT = 388

    def __init__(self):
        super().__init__()
        layer = lambda a, b: (nn.Conv2d(a, b, 3), nn.ReLU(inplace=True))
        block = lambda a, b: nn.Sequential(*layer(a, b), *layer(b, b))
        pairs = list(zip(self.FILTERS, self.FILTERS[1:]))
        self.down = nn.ModuleList([block(1, self.FILTERS[0])] + [block(a, b) for a, b in pairs])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.joined = nn.ModuleList(block(b, a) for a, b in reversed(pairs))
        self.out = nn.Conv2d(self.FILTERS[0], 2, 1)

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if level else x)
            # Drops half of the units of the two lowest levels.
            x = F.dropout(x, 0.5, self.training) if level > 2 else x
            kept.append(x)
        kept.pop()
        for up, block in zip(self.up, self.joined):
            x, beside = up(x), kept.pop()
            edge = (beside.shape[2] - x.shape[2]) // 2
            x = block(torch.cat((beside[:, :, edge:-edge, edge:-edge], x), dim=1))
        return self.out(x)
