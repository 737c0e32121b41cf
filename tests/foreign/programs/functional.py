"""torch.func: gradients of single samples by vmap, made the gradient of an optimizer."""
import truth
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(parameters, sample, target):
    return (functional_call(model, parameters, (sample.unsqueeze(0),)).squeeze() - target).square()


for step in range(40):
    samples, targets = torch.randn(12, 16), torch.randn(12)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    each = vmap(grad(loss_of), in_dims=(None, 0, 0))(parameters, samples, targets)
    for name, parameter in model.named_parameters():
        norm = each[name].flatten(1).norm(dim=1).clamp(min=1).view(-1, *[1] * parameter.dim())
        parameter.grad = (each[name] / norm).mean(0) + 0.01 * torch.randn_like(parameter)
    optimizer.step()
loss = vmap(loss_of, in_dims=(None, 0, 0))(parameters, samples, targets).mean()
truth.finish(loss, model, steps=40, batch=12)
