"""Averaged copies of the parameters, several rates at once.

After update k a copy moves by (1 - r_k) towards the parameters, r_k = min(rate, (1 + k)/(10 + k)): early on it forgets its
start quickly, so that short runs have a useful copy too.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from unnoise.training.run import ema_name, fitting


class EMA:
    def __init__(self, model: nn.Module, rates: Iterable[float]):
        self.names = [name for name, p in model.named_parameters() if p.dtype.is_floating_point]
        found = dict(model.named_parameters())
        self.parameters: list[Tensor] = [found[name] for name in self.names]
        self.copies = {rate: [p.detach().clone() for p in self.parameters] for rate in rates}

    def weights(self, step: int) -> dict[float, float]:
        """How far each copy moves after update `step` (the first is 1)."""
        return {rate: 1 - min(rate, (1 + step) / (10 + step)) for rate in self.copies}

    @torch.no_grad()
    def update(self, weights: Mapping[float, float | Tensor], unless: Tensor | None = None) -> None:
        """Move every copy by its weight; where the number `unless` is 1, nothing moves."""
        for rate, copy in self.copies.items():
            weight = weights[rate]
            if unless is None:
                torch._foreach_lerp_(copy, self.parameters, weight)  # type: ignore[arg-type]
                continue
            way = torch._foreach_sub(self.parameters, copy)
            torch._foreach_mul_(way, weight * (1 - unless))
            torch._foreach_add_(copy, way)

    def state_dict(self, rate: float) -> dict[str, Tensor]:
        return dict(zip(self.names, self.copies[rate], strict=True))

    def load_state_dict(self, rate: float, state: dict[str, Tensor]) -> None:
        copy, file = self.copies[rate], f"{ema_name(rate)}.safetensors"
        found = [fitting(state, name, p.shape, file).to(p.device) for name, p in zip(self.names, copy, strict=True)]
        torch._foreach_copy_(copy, found)

    @contextmanager
    def applied(self, model: nn.Module, rate: float) -> Iterator[nn.Module]:
        """The model with a copy in place of its parameters, for the length of a `with`."""
        if rate not in self.copies:
            raise ValueError(f"there is no averaged copy of rate {rate}: choose from {list(self.copies)}")
        found = dict(model.named_parameters())
        own = [found[name].detach() for name in self.names]
        kept = [p.clone() for p in own]
        with torch.no_grad():
            torch._foreach_copy_(own, self.copies[rate])
        try:
            yield model
        finally:
            with torch.no_grad():
                torch._foreach_copy_(own, kept)
