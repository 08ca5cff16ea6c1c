"""The update of a module's parameters: AdamW, fused where the device has it, and Muon for the inner matrices if told.

Weight decay concerns parameters of two axes or more: to pull vectors of biases and scales to 0 has no use.  An update can be
masked by a number on the device, so that nobody has to wait to know whether it may be made.
"""

from math import inf
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.training.config import TrainConfig
from unnoise.training.muon import Muon, inner_matrices
from unnoise.training.run import fitting

FILE = "optimizer.safetensors"
FUSED = ("cpu", "cuda")
SLOTS = ("step", "exp_avg", "exp_avg_sq")


class Optimiser:
    def __init__(self, module: nn.Module, config: TrainConfig):
        self.named = {name: p for name, p in module.named_parameters() if p.requires_grad}
        self.parameters = list(self.named.values())
        if not self.parameters:
            raise ValueError("the network has no parameters to train")
        inner = inner_matrices(module) if config.optimiser == "muon" else set()
        own = {name: p for name, p in self.named.items() if name in inner}
        self.muon = Muon(own, config.weight_decay) if own else None
        self.by_adam = {name: p for name, p in self.named.items() if name not in inner}
        self.fused = all(p.device.type in FUSED for p in self.parameters)
        matrices, rest = ([p for p in self.by_adam.values() if (p.ndim >= 2) == big] for big in (True, False))
        groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": rest, "weight_decay": 0.0}]
        kept: list[dict[str, Any]] = [group for group in groups if group["params"]]
        recorded = config.capture and all(p.device.type == "cuda" for p in self.parameters)
        self.adam = torch.optim.AdamW(kept, lr=config.lr, betas=config.betas, fused=self.fused, capturable=recorded)
        self.adam._warned_capturable_if_run_uncaptured = True  # type: ignore[attr-defined]  # the first updates are plain

    def clip(self, norm: float | None) -> Tensor:
        """Scale the gradients down to a norm at most, and return the norm that they had."""
        return nn.utils.clip_grad_norm_(self.parameters, inf if norm is None else norm)

    def update(self, lr: float | Tensor, unless: Tensor) -> None:
        """One update, unless the number is 1; the gradients are used up.  A rate on the device may change there."""
        for group in self.adam.param_groups:
            group["lr"] = lr
        if self.muon is not None:
            self.muon.update(lr, unless)
        if self.fused:
            self.adam.found_inf = unless  # type: ignore[attr-defined]  # the fused update is void where this is 1
            self.adam.step()
        elif not bool(unless):
            self.adam.step()
        for p in self.parameters:
            p.grad = None

    def state_dict(self) -> dict[str, Tensor]:
        """All moments, by slot and parameter."""
        state = self.adam.state
        found = {f"{slot}:{name}": state[p][slot] for name, p in self.by_adam.items() if p in state for slot in SLOTS}
        return found | ({f"momentum:{name}": m for name, m in self.muon.momenta.items()} if self.muon else {})

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Moments as `state_dict` gave them; they are laid out in memory as the parameters are."""
        for name, p in self.by_adam.items():
            if f"step:{name}" in state:  # else it never had a gradient
                step = fitting(state, f"step:{name}", torch.Size(), FILE).to(p.device, torch.float32)
                moments = {slot: fitting(state, f"{slot}:{name}", p.shape, FILE) for slot in SLOTS if slot != "step"}
                laid_out = {slot: torch.empty_like(p).copy_(moment) for slot, moment in moments.items()}
                self.adam.state[p] = {"step": step, **laid_out}
        for name, momentum in self.muon.momenta.items() if self.muon else ():
            momentum.copy_(fitting(state, f"momentum:{name}", momentum.shape, FILE))
