"""A code: states z of a process stand for data x.

    encode    z_0 ~ e(z | x), or z_0 = e(x)           law    p(x | z), at the end of the way back

A denoiser with a code is a model of x, whose process noises z.  There are two ways to end:

    rounds = False   z_0 is whatever the process ends on, and p(x | z_0) reads it,
                         -log p(x) <= E_e [log e(z_0 | x) + bound(z_0) - log p(x | z_0)]
                     where bound(z_0) is that of the process with its own decoder; `encode` names the two terms besides,
                     {"entropy": log e(z_0 | x), "likelihood": -log p(x | z_0)}, the first only where e has a density; the
                     sum without it bounds nothing, and training on it would shrink e to a point
    rounds = True    z_0 = e(x) has no density, and nothing of it needs to be known but x: p(x | z_eps) at the cut-off stands
                     in the place of the process's decoder, and the way back ends there,
                         -log p(x) <= KL(q(z_1 | z_0) || p_1) + int_eps^1 rate dt + E[-log p(x | z_eps)]

Both are bounds for any networks, and `un.sample` draws from the model that they speak of: to t = 0 or to eps, then x.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import Unanswered
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import Space


class Code(nn.Module):
    """Base of all codes (eq:latent-elbo-bound); a subclass writes `encode` and `law`."""

    space: Space  # of the data
    rounds: bool = False  # whether data are read off the states at the cut-off
    needs_network: bool = False  # whether the law of data asks the denoiser
    cutoff: float | None = None  # the earliest time that the bound visits, where it is given
    predicts: Any = None  # the kind of prediction that a denoiser with this code has, where the code decides
    tells_clean: bool = False  # whether its predictions have an estimate of the states at t = 0 at every noise level
    categories: bool = False  # whether its predictions are laws of categories (`codes.evidence.Codewords`)
    trained: bool = True  # whether its parameters are trained beside the network; else they are settled before

    def encode(self, x: Tree, noise: NoiseSource, condition: dict[str, Any]) -> tuple[Tree, dict[str, Tensor]]:
        """States, and what the bound has besides, a number per row by name."""
        raise self.unanswered("encode(x, noise, condition)", "the states that stand for data, and the terms they add")

    def law(self, z: Tree, t: float, process: Process, prediction: Prediction | None) -> Law:
        """p(x | z) at the states where the way back ends; `prediction` is that of the denoiser there, if it is asked."""
        raise self.unanswered("law(z, t, process, prediction)", "the law of data given states")

    def seen(self, z_t: Tree) -> Tree:
        """What the network is shown of states."""
        return z_t

    def prediction(self, output: AnyState, process: Process, z_t: AnyState, t: Tree) -> Prediction | None:
        """What the network says of states, where the code reads it; None: the denoiser's kind of prediction does."""
        return None

    def kinds(self, process: Process) -> Any:
        """The kind of prediction under a process, where the code decides."""
        return self.predicts

    def earliest(self, process: Process) -> float | None:
        """The earliest time that the bound visits, where the code knows better than the process."""
        return self.cutoff

    def band(self, process: Process) -> tuple[Tensor, Tensor] | None:
        """Where the bound's rate is, by log-SNR of the process's schedule: falling levels, and how large the rate is about
        in each interval between two (`objectives.band_times`).  None: it is not known."""
        return None

    def known(self, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
        """States, and which of their coordinates are known, where some coordinates of the data are."""
        raise ValueError(
            f"{type(self).__name__} has no coordinates of its states for single coordinates of the data, so that known ones "
            f"cannot be held: draw samples and keep those that fit"
        )

    def prepare(self, rows: Callable[[int | None], Tree], seconds: float | None, device: torch.device, seed: int) -> bool:
        """What is settled before the first update, and whether anything is: `rows(n)` are n rows of the data in random
        order, or all (None), and `seconds` the time that the whole training has, where that is known."""
        return False

    def monitor(self, x: Tree, noise: NoiseSource) -> dict[str, float]:
        """What to watch in training, by name, on some rows of the data: asked where the bound is measured."""
        return {}

    def troubles(self, seen: dict[str, float]) -> dict[str, str]:
        """What such figures say is wrong, by its name, with the remedy."""
        return {}

    def unanswered(self, method: str, what: str) -> Unanswered:
        name = type(self).__name__
        return Unanswered(f"the code {name} does not say {what}: write the method {method} of the class {name}")
