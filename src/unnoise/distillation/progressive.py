"""Progressive distillation (Salimans and Ho 2022): one step of the student does what two of the teacher's did.

On a grid of 2N steps the teacher takes two steps of DDIM, t -> t' -> s, to x_s.  The student's one step, with clean
prediction D and r = sigma_s/sigma_t, is

    x_s = r x_t + (alpha_s - r alpha_t) D,      so      D* = (x_s - r x_t)/(alpha_s - r alpha_t)

is what it has to predict at the N times of its own grid.  D* is a function of x_t, so where the student can represent it
the loss is 0 and N steps of the student are 2N steps of the teacher, point by point.  Then the student is the teacher, and
N is halved.  Squared errors of D are weighted by one of

    truncated_snr   max(1, SNR)       the larger of the errors of x_0 and of eps
    snr_plus_one    1 + SNR           the error of the velocity, where alpha^2 + sigma^2 = 1

(SNR alone says nothing at t = 1).  The network keeps its kind of prediction.  At the times of its grid what it says is no
longer E[x_0 | x_t], and its N steps are a function of the first state: they have no density by the bound.
"""

from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.distillation.base import Distillation, handed_on, part, whole_of
from unnoise.noise import NoiseSource
from unnoise.objectives import Stratified
from unnoise.processes import Gaussian
from unnoise.samplers.linear import DDIM
from unnoise.samplers.run_grid import grid_of
from unnoise.shapes import Float

WEIGHTS = {"truncated_snr": lambda snr: snr.clamp_min(1.0), "snr_plus_one": lambda snr: 1 + snr}


class Progressive(Distillation):
    """`steps` are the student's in the end; the first teacher takes steps 2^rounds."""

    def __init__(
        self,
        student: AnyDenoiser,
        teacher: AnyDenoiser,
        steps: int = 4,
        rounds: int = 4,
        weighting: str = "truncated_snr",
    ):
        super().__init__(student, teacher, rounds)
        for name, leaf in self.parts.items():
            if not isinstance(leaf, Gaussian):
                where = f"leaf {name!r} is" if name else "this data is"
                raise ValueError(
                    f"{where} noised by {type(leaf).__name__}: two steps become one where steps are a flow of numbers; "
                    f"use the method consistency"
                )
        if weighting not in WEIGHTS:
            raise ValueError(f"weighting = {weighting!r}: choose from {', '.join(WEIGHTS)}")
        self.steps, self.weighting = steps, weighting
        self.grid = self._grid()

    @property
    def own_steps(self) -> int:
        """Of the student in the present round."""
        return self.steps * 2 ** (self.rounds - 1 - self.round)

    def _grid(self) -> Float[Tensor, "times"]:
        """The falling times of the teacher's steps, as a sampler takes them."""
        return grid_of(self.denoiser, 2 * self.own_steps, None, None, None, DDIM())

    def _begin(self) -> None:
        handed_on(self.teacher, self.denoiser)
        self.grid = self._grid()

    def restore(self, kept):
        super().restore(kept)
        self.grid = self._grid()

    def losses(self, x0, noise: NoiseSource, told: dict[str, Any]) -> Float[Tensor, "batch"]:
        u = Stratified().draw(noise.at("step"), 0.0)
        k = 2 * (u * self.own_steps).long().clamp_max(self.own_steps - 1)
        t, between, s = (self.grid.to(u.device)[k + j] for j in range(3))
        x_t = whole_of({n: p.marginal(part(x0, n), t).draw(noise.at("state", n)) for n, p in self._leaves()})
        with torch.no_grad():
            middle = self._step(x_t, t, between, told)
            target = self._step(middle, between, s, told)
        found, total = self.denoiser(x_t, t, **told), torch.zeros(len(u), dtype=torch.float64, device=u.device)
        for name, leaf in self._leaves():
            wanted = clean_of_step(leaf, part(x_t, name), part(target, name), t, s)
            weight = WEIGHTS[self.weighting](leaf.schedule.log_snr(t).exp())
            error = leaf.coefficient(weight.sqrt(), wanted) * (wanted - part(found, name).clean())
            total = total + error.double().square().reshape(len(error), -1).sum(1)
        return total

    def _leaves(self) -> list[tuple[str, Gaussian]]:
        return [(name, cast(Gaussian, leaf)) for name, leaf in self.parts.items()]

    def _step(self, x: Any, t: Tensor, s: Tensor, told: dict[str, Any]) -> Any:
        prediction = self.teacher(x, t, **told)
        return whole_of({name: part(prediction, name).flow_step(s) for name in self.parts})


def clean_of_step(process: Gaussian, x_t: Tensor, x_s: Tensor, t: Tensor, s: Tensor) -> Tensor:
    """The clean prediction by which one step of DDIM leads from x_t to x_s."""
    schedule = process.schedule
    ratio = schedule.sigma(s) / schedule.sigma(t)
    gained = schedule.alpha(s) - ratio * schedule.alpha(t)
    return (x_s - process.coefficient(ratio, x_t) * x_t) / process.coefficient(gained, x_t)
