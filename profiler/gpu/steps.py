"""Trains a network on random data, for recording:

    habitat-tui run --batches 16,32,64 -- python steps.py --network resnet50 --precision bf16 --batch-size {batch}

Needs torch; resnet50 and vit_b_16 need torchvision; bert_large, gpt2_medium and llama_1b need transformers. Any
other name is a network of timm. Downloads nothing: weights are random. `--tiny` makes everything small enough
for a CPU, to check this file.
"""

import argparse
import contextlib

import torch
from torch import nn
from torch.nn import functional


def images(batch, side, classes, device):
    return torch.randn(batch, 3, side, side, device=device), torch.randint(classes, (batch,), device=device)


# Each network is a list of optimizers with the function that computes the loss of each.


def classifier(options, model, side, optimizer):
    """Convolutional networks may run in channels-last order."""
    order = torch.channels_last if options.channels_last else torch.contiguous_format
    model = model.to(options.device, memory_format=order).train()
    optimizer = optimizer(options, model)
    inputs, labels = images(options.batch_size, side, 1000, options.device)
    inputs, run = inputs.contiguous(memory_format=order), compiled(options, model)
    return [(optimizer, lambda: functional.cross_entropy(run(inputs).float(), labels))]


def compiled(options, model):
    return torch.compile(model) if options.compile else model


def sgd(options, model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=options.fused)


def adamw(options, model):
    return torch.optim.AdamW(model.parameters(), lr=1e-4, fused=options.fused)


def resnet50(options):
    from torchvision.models import resnet18, resnet50

    model = resnet18() if options.tiny else resnet50()
    return classifier(options, model, 64 if options.tiny else 224, sgd)


def vit_b_16(options):
    from torchvision.models import VisionTransformer

    shape = (
        dict(image_size=32, patch_size=16, num_layers=2, num_heads=2, hidden_dim=32, mlp_dim=64)
        if options.tiny
        else dict(image_size=224, patch_size=16, num_layers=12, num_heads=12, hidden_dim=768, mlp_dim=3072)
    )
    return classifier(options, VisionTransformer(**shape), shape["image_size"], adamw)


def timm_network(options):
    """A network of timm at its own image size: trained by SGD with momentum, or AdamW if it has attention."""
    import timm

    model = timm.create_model(options.network)
    if options.checkpoint:
        model.set_grad_checkpointing()
    attends = any("attn" in name or "attention" in name for name, _ in model.named_modules())
    side = 64 if options.tiny else model.pretrained_cfg["input_size"][-1]
    return classifier(options, model, side, adamw if attends else sgd)


def tokens(options, vocabulary, length):
    return torch.randint(vocabulary, (options.batch_size, length), device=options.device)


def causal(options, model, vocabulary, length):
    """A language model of transformers, which computes its own loss."""
    if options.checkpoint:
        model.gradient_checkpointing_enable()
    model = model.to(options.device).train()
    inputs, run = tokens(options, vocabulary, 16 if options.tiny else length), compiled(options, model)
    return [(adamw(options, model), lambda: run(input_ids=inputs, labels=inputs).loss)]


def bert_large(options):
    from transformers import BertConfig, BertForMaskedLM

    shape = (
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64)
        if options.tiny
        else dict(hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)
    )
    config = BertConfig(**shape, attention_probs_dropout_prob=0.0)
    return causal(options, BertForMaskedLM(config), config.vocab_size, 512)


def gpt2_medium(options):
    from transformers import GPT2Config, GPT2LMHeadModel

    shape = dict(n_embd=32, n_layer=2, n_head=2) if options.tiny else dict(n_embd=1024, n_layer=24, n_head=16)
    config = GPT2Config(**shape, attn_pdrop=0.0)
    return causal(options, GPT2LMHeadModel(config), config.vocab_size, 1024)


def llama_1b(options):
    """Llama 3.2 1B by its model card, with weights in the chosen precision."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = (
        dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=64, vocab_size=100)
        if options.tiny
        else dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8, intermediate_size=8192,
                  vocab_size=128_256)
    )  # fmt: skip
    config = LlamaConfig(**shape, tie_word_embeddings=True, use_cache=False)
    return causal(options, LlamaForCausalLM(config), config.vocab_size, 1024)


class Generator(nn.Sequential):
    """DCGAN's, for images of 64 × 64 (Radford et al., 2016, figure 1)."""

    def __init__(self, width):
        extents = [100, width * 8, width * 4, width * 2, width]
        layers = []
        for index, (before, after) in enumerate(zip(extents, extents[1:])):
            stride, padding = (1, 0) if index == 0 else (2, 1)
            layers += [nn.ConvTranspose2d(before, after, 4, stride, padding, bias=False), nn.BatchNorm2d(after), nn.ReLU(True)]
        super().__init__(*layers, nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False), nn.Tanh())


class Discriminator(nn.Sequential):
    def __init__(self, width):
        extents = [3, width, width * 2, width * 4, width * 8]
        layers = []
        for index, (before, after) in enumerate(zip(extents, extents[1:])):
            layers.append(nn.Conv2d(before, after, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(after)] if index else []
            layers.append(nn.LeakyReLU(0.2, inplace=True))
        super().__init__(*layers, nn.Conv2d(width * 8, 1, 4, 1, 0, bias=False), nn.Flatten(0))


def dcgan(options):
    width = 8 if options.tiny else 64
    generator = Generator(width).to(options.device).train()
    discriminator = Discriminator(width).to(options.device).train()
    real, _ = images(options.batch_size, 64, 2, options.device)
    made = []

    def judged(samples, label):
        score = discriminator(samples).float()
        return functional.binary_cross_entropy_with_logits(score, torch.full_like(score, label))

    def discriminated():
        made[:] = [generator(torch.randn(options.batch_size, 100, 1, 1, device=options.device))]
        return judged(real, 1.0) + judged(made[0].detach(), 0.0)

    def adam(net):
        return torch.optim.Adam(net.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=options.fused)

    return [(adam(discriminator), discriminated), (adam(generator), lambda: judged(made[0], 1.0))]


class LanguageModel(nn.Module):
    """Two layers of LSTM between an embedding and a projection."""

    def __init__(self, vocabulary, width):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.projection = nn.Linear(width, vocabulary)

    def forward(self, inputs):
        return self.projection(self.lstm(self.embedding(inputs))[0])


def language(options, model, vocabulary, length):
    model = model.to(options.device).train()
    inputs, run = tokens(options, vocabulary, length), compiled(options, model)
    labels = inputs.flatten()
    return [(adamw(options, model), lambda: functional.cross_entropy(run(inputs).float().flatten(0, 1), labels))]


def lstm(options):
    vocabulary, width = (100, 16) if options.tiny else (10_000, 1024)
    return language(options, LanguageModel(vocabulary, width), vocabulary, 8 if options.tiny else 64)


class Experts(nn.Module):
    """A mixture of experts: each token goes to the two of eight with the highest score."""

    def __init__(self, width, experts=8, chosen=2):
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)
        )
        self.chosen = chosen

    def forward(self, inputs):
        flat = inputs.flatten(0, 1)
        weights, which = self.router(flat).softmax(-1).topk(self.chosen, -1)
        output = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, place = torch.where(which == number)
            output = output.index_add(0, token, (expert(flat[token]) * weights[token, place, None]).to(output.dtype))
        return output.view_as(inputs)


class MixtureOfExperts(nn.Module):
    """Transformer blocks with experts instead of the feed-forward layer."""

    def __init__(self, vocabulary, width, heads, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList()
        for _ in range(layers):
            parts = [nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width), Experts(width)]
            self.layers.append(nn.ModuleList(parts))
        self.projection = nn.Linear(width, vocabulary)
        self.heads = heads

    def forward(self, inputs):
        hidden = self.embedding(inputs)
        batch, length, width = hidden.shape
        for before, mixed, out, between, experts in self.layers:
            parts = mixed(before(hidden)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
            attention = functional.scaled_dot_product_attention(*parts, is_causal=True)
            hidden = hidden + out(attention.transpose(1, 2).reshape(batch, length, width))
            hidden = hidden + experts(between(hidden))
        return self.projection(hidden)


def moe(options):
    vocabulary, width, heads, layers = (100, 16, 2, 2) if options.tiny else (32_000, 768, 12, 8)
    model = MixtureOfExperts(vocabulary, width, heads, layers)
    return language(options, model, vocabulary, 16 if options.tiny else 512)


NETWORKS = {
    function.__name__: function
    for function in (resnet50, vit_b_16, bert_large, gpt2_medium, llama_1b, dcgan, lstm, moe)
}
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def options(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", required=True, help=", ".join(NETWORKS) + ", or a network of timm")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="fp32", help="bf16, fp16: autocast")
    parser.add_argument("--batch-size", type=int, required=True)
    parser.add_argument("--channels-last", action="store_true", help="of networks for images")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--fused", action="store_const", const=True, help="optimizers in one kernel a list of tensors")
    parser.add_argument("--checkpoint", action="store_true", help="activations computed again, of networks of timm and transformers")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    return parser.parse_args(arguments)


def build(options):
    """The networks with their optimizers, and a function that runs one training step and returns the loss."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision == "tf32"
    parts = NETWORKS.get(options.network, timm_network)(options)
    half = HALVES.get(options.precision)
    scaler = torch.amp.GradScaler(options.device, enabled=half is torch.float16)

    def step():
        for optimizer, compute in parts:
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(options.device, half) if half else contextlib.nullcontext():
                loss = compute()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
        scaler.update()
        return loss

    return parts, step


def main():
    chosen = options()
    _, step = build(chosen)
    for _ in range(chosen.steps):
        loss = step()
    print("loss", float(loss.detach()))


if __name__ == "__main__":
    main()
