"""The curriculum of uniform diffusion (Duo, Sahoo et al. 2025): soft tokens first, then hard ones.

For the first part of a training the network is shown softmax(w_t/tau), a mixture of tokens, where w_t is a noised corner
and z_t = argmax w_t is the state of uniform noise (`softened`).  The loss is that of the uniform bound at z_t:

    integral over t of the rate of uniform noise at (z_t, t), the network's posterior having seen softmax(w_t/tau).

The temperature tau falls to 0 as the training goes on; from then on the loss is the bound, at hard tokens and all times.

While tau > 0 the loss bounds nothing: w_t^k says more of x_0^k than its argmax does, and a network that hears it can be
better than any law of z_t allows.  So `is_bound` is False there.  Whatever is said of a trained model is said by the bound
itself, `un.bound` or `Objective`, to which the network is shown tokens.

Times.  Log-SNR -gamma of w is uniform on a range, t the time at which the process has alpha = T(mu), mu = e^(-gamma/2),
and the weight dt/dgamma = (mu T'(mu)/2)/(-alpha'(t)).  Any schedule of the process will do.  What lies above the range is
the term `prior`, KL(q(x_t | x_0) || uniform) at its noisy end, and what lies below is left out.  Published text models
have log-SNR from 3.5 to 1.75; at 50,257 tokens alpha is 0.928 and 0.038 there, and these two shares are the range of any
other vocabulary.

`begin(done)` sets the temperature, from the share of the training that lies behind: a resumed training goes on with its
own.  It writes a number to the device and reads none.
"""

from collections.abc import Callable
from math import isfinite
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import Condition
from unnoise.denoiser import AnyDenoiser
from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.hybrids.common_noise import plain_uniform
from unnoise.hybrids.softened import COLDEST, Softened, dense, sparse
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Terms
from unnoise.objectives.times import strata
from unnoise.processes import Uniform
from unnoise.shapes import AnyState

CLEAN, NOISY = 0.9283, 0.0383  # alpha at the ends of the range
FEW, TOP = 64, 15  # categories up to which all entries are drawn, and how many of the others else


class Cooling:
    """log tau is constant until `start`, falls along a line until `stop`, and then there is no tau: shares of the training.
    Unless told from 0.1 to 0.01 between a tenth and a fifth of it."""

    def __init__(self, hot: float = 0.1, cold: float = 0.01, start: float = 0.1, stop: float = 0.2):
        if not (isfinite(hot) and 0 < cold <= hot):
            raise ValueError(f"hot = {hot}, cold = {cold}: temperatures are positive, and fall")
        if not 0 <= start <= stop <= 1:
            raise ValueError(f"start = {start}, stop = {stop}: shares of the training, 0 <= start <= stop <= 1")
        self.hot, self.cold, self.start, self.stop = hot, cold, start, stop

    def __call__(self, done: float) -> float:
        if done >= self.stop:
            return 0.0
        way = 0.0 if done <= self.start else (done - self.start) / (self.stop - self.start)
        return self.hot * (self.cold / self.hot) ** way


class Curriculum(Objective):
    """An objective for a uniform process whose network takes `mixture=`.

    `cooling` is the temperature as a function of the share of training that lies behind, `log_snr` the range from clean to
    noisy, `top` how many entries besides the true one are drawn (None: all of a few categories, 15 of many).
    """

    temperature: Tensor

    def __init__(
        self,
        denoiser: AnyDenoiser,
        cooling: Callable[[float], float] | None = None,
        log_snr: tuple[float, float] | None = None,
        top: int | None = None,
        **options: Any,
    ):
        super().__init__(denoiser, **options)
        if self.exact or denoiser.process.grid is not None:
            raise ValueError("a curriculum draws its states in continuous time: leave exact and chains to Objective")
        size = plain_uniform(denoiser.process, "a curriculum").space.size
        self.law, self.cooling = ArgmaxLaw(size), cooling or Cooling()
        if log_snr is None:
            odds = torch.tensor([[CLEAN, NOISY], [1 - CLEAN, 1 - NOISY]], dtype=torch.float64).log()
            clean, noisy = (2 * self.law.mean_of_log_odds(odds[0] - odds[1]).log()).tolist()
        else:
            clean, noisy = log_snr
        if not clean > noisy:
            raise ValueError(f"log_snr = {(clean, noisy)}: the range goes from clean to noisy, and falls")
        self.log_snr = (clean, noisy)
        self.top = top if top is not None or size <= FEW else TOP
        if self.top is not None and not 1 <= self.top < size:
            raise ValueError(f"top = {self.top}: of {size} tokens 1 to {size - 1} others can be drawn")
        self.register_buffer("temperature", torch.zeros((), dtype=torch.float64), persistent=False)
        self.begin(0.0)

    def begin(self, done: float) -> None:
        """Before an update: the share of the training that lies behind."""
        tau = float(self.cooling(done))
        if not (isfinite(tau) and tau >= 0):
            raise ValueError(f"the cooling gave {tau} at {done:.3g} of the training: a temperature is a number from 0 on")
        self.soft = tau >= COLDEST
        self.temperature.fill_(tau)

    @property
    def process(self) -> Uniform:
        return cast(Uniform, self.denoiser.process)

    @property
    def phase(self) -> int:  # type: ignore[override]
        return int(self.soft)

    @property
    def is_bound(self) -> bool:  # type: ignore[override]
        return not self.soft and super().is_bound

    def soften(self, x0: Tensor, mu: Tensor, noise: NoiseSource) -> Softened:
        """z_t and what the network is shown in its place."""
        size = self.process.space.size
        if self.top is None:
            return dense(x0, mu, self.temperature, size, noise)
        return sparse(x0, mu, self.temperature, size, self.top, noise)

    def evaluate(self, x0: AnyState, noise: NoiseSource | None, condition: Condition | None) -> Terms:
        if not self.soft:
            return super().evaluate(x0, noise, condition)
        x0, noise, given, added = self._enter(x0, noise, condition)
        (clean, noisy), schedule = self.log_snr, self.process.schedule
        mu = ((clean + (noisy - clean) * strata(len(x0), noise.at("time"))) / 2).exp()
        t = schedule.time_of_beta(self.law.beta(mu))
        weight = (clean - noisy) * (mu * self.law.slope(mu) / 2) / -schedule.d_alpha(t)
        shown = self.soften(x0, mu, noise.at("state"))
        prediction = self.denoiser(shown.z, t, **given, mixture=shown.mixture)
        loss = weight * self.weighting.rate(prediction, self.process, x0, self.fast)
        zero = torch.zeros_like(loss)
        end = torch.full((1,), noisy / 2, dtype=torch.float64, device=loss.device).exp()
        prior = self.process.prior_kl(x0, schedule.time_of_beta(self.law.beta(end)).expand(len(x0)))
        terms = {"prior": prior, "diffusion": loss.detach(), "reconstruction": zero, **added}
        return Terms(terms, weighted=sum(added.values(), loss), is_bound=False)
