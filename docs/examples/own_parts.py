"""Parts of one's own, each small enough to read at a glance, as `unnoise verify` takes them: package.module:name."""

import torch

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.verify import Operators


def sampler():
    """A method with a stated order: of the library here, with an option of one's own."""
    return un.samplers.DPMSolverPP(2, sde=True)


def times():
    """Times that come closer to 0 than the usual ones."""
    return un.Importance(power=6.0)


class Truncated(un.weightings.GaussianWeighting):
    """SNR |x_0 - x_model|^2, but never more than a hundredfold."""

    def on_clean(self, schedule, t):
        return schedule.log_snr(t).exp().clamp_max(100.0)


class Difference(un.predictions.ContinuousPrediction):
    """eps - x_0: what straight paths move along, under any schedule."""

    @staticmethod
    def target_coefficients(schedule, t):
        one = torch.ones_like(schedule.alpha(t))
        return -one, one


class Mixed(AnyDenoiser):
    """Two denoisers in one: the log-probabilities of both, weighed."""

    def __init__(self, first, second, share=0.7):
        super().__init__()
        self.first, self.second, self.share, self.process = first, second, share, first.process

    def forward(self, x_t, t, **condition):
        one, two = (d(x_t, t, **condition).to(un.Posterior) for d in (self.first, self.second))
        return un.Posterior(self.share * one.value + (1 - self.share) * two.value, one.process, x_t, t)


def denoiser():
    process = un.Masking(3, (2,))
    laws = [torch.arange(1.0, 10.0, dtype=torch.float64), torch.arange(9.0, 0.0, -1.0, dtype=torch.float64)]
    return Mixed(*(un.oracles.table(process, law / law.sum()) for law in laws))


def generator():
    """Numbers that turn about each other, pulled to the middle, with noise that depends on where they are."""

    def local(x):
        return un.generators.Local(drift=torch.stack([x[:, 1], -x[:, 0]], 1) - x, diffusion=1 + 0.5 * torch.sin(x))

    points = torch.tensor([[0.0, 0.0], [1.0, -0.5], [-2.0, 0.3], [0.4, 1.7]], dtype=torch.float64)
    return Operators(un.Generator(un.Euclidean((2,)), local), points)
