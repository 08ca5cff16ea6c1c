"""Muon: momentum whose matrices are made orthogonal, for the weights inside a network.

A matrix of weights moves by  0.2 sqrt(max(rows, columns)) U V^T, where U S V^T is its momentum: all directions by the same
amount, and entries by about 0.2, as under AdamW, so that both share a learning rate.  U V^T is approached by the iteration
X <- a X + b (X X^T) X + c (X X^T)^2 X from X = M/|M|, whose coefficients pull singular values into about [0.7, 1.2] within
five rounds (Jordan et al. 2024; the scale 0.2 is that of Liu et al. 2025).  Matrices of one shape are treated together, in
bfloat16 on an accelerator.

It is meant for matrices that map features to features, a convolution's among them (a row per output).  Embeddings, heads,
biases and scales are AdamW's.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ROUNDS = 5
SCALE = 0.2
MOMENTUM = 0.95


def orthogonalised(m: Tensor, rounds: int = ROUNDS) -> Tensor:
    """About U V^T of every matrix [..., rows, columns] = U S V^T."""
    a, b, c = COEFFICIENTS
    tall = m.shape[-2] > m.shape[-1]
    x = m.mT if tall else m
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp_min(1e-30)
    x = x.bfloat16() if x.device.type == "cuda" else x
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).to(m.dtype)


def inner_matrices(module: nn.Module) -> set[str]:
    """The weights of layers that stand before another layer: all but the last with parameters, by order of names."""
    layers = nn.Linear | nn.Conv1d | nn.Conv2d
    linear = {f"{name}.weight" for name, part in module.named_modules() if isinstance(part, layers)}
    named = [name for name, p in module.named_parameters() if p.requires_grad]
    last = next((name for name in reversed(named) if name in linear), None)
    return linear - {last}


class Muon:
    """The momenta of some parameters, and their update."""

    def __init__(self, parameters: dict[str, nn.Parameter], weight_decay: float):
        self.named, self.weight_decay = parameters, weight_decay
        self.momenta = {name: torch.zeros_like(p) for name, p in parameters.items()}
        shapes: dict[tuple[int, ...], list[str]] = defaultdict(list)
        for name, p in parameters.items():
            shapes[(len(p), p[0].numel())].append(name)
        self.groups = list(shapes.values())

    @torch.no_grad()
    def update(self, lr: float | Tensor, unless: Tensor) -> None:
        """One update, unless the number is 1."""
        for names in self.groups:
            parameters: list[Tensor] = [self.named[name] for name in names]
            momenta = [self.momenta[name] for name in names]
            gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]
            gradient, momentum, old = (torch.stack([m.flatten(1) for m in t]) for t in (gradients, momenta, parameters))
            ahead = torch.lerp(momentum, gradient, 1 - MOMENTUM)
            way = orthogonalised(torch.lerp(ahead, gradient, 1 - MOMENTUM))  # one step ahead, after Nesterov
            size = SCALE * max(way.shape[-2:]) ** 0.5
            kept = unless > 0
            new = old * (1 - lr * self.weight_decay) - lr * size * way
            _write(momenta, torch.where(kept, momentum, ahead))
            _write(parameters, torch.where(kept, old, new))


def _write(tensors: list[Tensor], values: Tensor) -> None:
    """Matrices into tensors of as many entries."""
    parts = [value.reshape(tensor.shape) for tensor, value in zip(tensors, values.unbind(), strict=True)]
    torch._foreach_copy_([tensor.detach() for tensor in tensors], parts)
