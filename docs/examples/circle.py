"""Brownian motion on a circle: a space, a process, a kind, a decoder, an oracle and a network, all of one's own.

    x_t = x_0 + sqrt(v_t) eps  (mod 2 pi),        v_t = 16 t,        q(x_t | x_0) = the wrapped normal law

Angles are numbers that close on themselves, so the space is `Euclidean` with `project`: a generator acts on it as on
numbers, and a step wraps around.  The conditioned reverse needs no formula: it is the generator reversed under q(x_t | x_0).
By t = 1 the angle is all but uniform (e^{-8} of its first harmonic is left), and the prior is uniform.

The data is a mixture of wrapped normal laws, which stays one when it is noised.
"""

from math import log, pi

import torch

import unnoise as un
from unnoise.laws import Law
from unnoise.verify import Operators, Subject, subject_of

SPEED = 16.0  # v_t = SPEED t
IMAGES = 2 * pi * torch.arange(-8, 9, dtype=torch.float64)
NODES = 512


def wrap(x):
    return torch.remainder(x + pi, 2 * pi) - pi


def log_wrapped(x, mean, variance):
    """The log-density of a wrapped normal law: the sum over all the ways round."""
    gap = (x - mean).unsqueeze(-1) + IMAGES
    variance = variance.unsqueeze(-1)
    return (-0.5 * gap.square() / variance - 0.5 * (2 * pi * variance).log()).logsumexp(-1)


class Circle(un.Euclidean):
    """Angles in [-pi, pi]."""

    reference = "arc length"

    def check(self, x, name="x"):
        x = super().check(x, name)
        if bool((x.abs() > pi + 1e-6).any()):
            raise ValueError(f"{name} has the angle {float(x.abs().max()):g} outside [-pi, pi]: wrap it first")
        return x

    def project(self, x):
        return wrap(x)


class WrappedNormal(Law):
    def __init__(self, mean, variance):
        self.mean, self.variance = mean, variance.reshape(-1, 1).expand(mean.shape)

    def log_prob(self, x):
        return log_wrapped(x.double(), self.mean.double(), self.variance).sum(1)

    def draw(self, noise):
        z = noise.normal(tuple(self.mean.shape[1:]), self.mean.dtype)
        return wrap(self.mean + self.variance.sqrt().to(self.mean.dtype) * z)

    def kl(self, other):
        raise TypeError("the divergence of two wrapped normal laws is not asked for")


class UniformAngle(Law):
    def __init__(self, rows, dtype, device):
        self.like = torch.zeros(rows, 1, dtype=dtype, device=device)

    def log_prob(self, x):
        return torch.full((len(x),), -log(2 * pi), dtype=torch.float64)

    def draw(self, noise):
        return (pi * (2 * noise.uniform((1,)) - 1)).to(self.like)

    def kl(self, other):
        raise TypeError("the divergence of a uniform angle is not asked for")


def around():
    return -pi + 2 * pi / NODES * torch.arange(NODES, dtype=torch.float64)


class Brownian(un.Process):
    def __init__(self):
        super().__init__()
        self.space = self.state_space = Circle((1,))
        self.cutoff = 1e-2  # where v = 0.16: without noise the bound of numbers diverges

    def variance(self, t, x):
        return SPEED * torch.as_tensor(t, dtype=torch.float64).expand(len(x))

    def prior(self, rows, dtype=None, device=None):
        return UniformAngle(rows, dtype, device)

    def marginal(self, x0, t):
        return WrappedNormal(x0, self.variance(t, x0))

    def prior_kl(self, x0, t=1.0):
        """KL to the uniform law, the same from every angle: by the trapezoidal rule around the circle."""
        x = around().unsqueeze(1)
        log_q = self.marginal(0 * x, t).log_prob(x)
        return (2 * pi / NODES * log_q.exp() * (log_q + log(2 * pi))).sum().expand(len(x0))

    def transition(self, x_s, s, t):
        return WrappedNormal(x_s, self.variance(t, x_s) - self.variance(s, x_s))

    def local(self, x, t):
        return un.Local(diffusion=torch.full_like(x, SPEED))

    def support(self, x0, t):
        nodes = around().to(x0.dtype).reshape(-1, 1, 1).expand(-1, len(x0), 1)
        law = self.marginal(x0, t)
        return nodes, torch.stack([law.log_prob(x) for x in nodes]) + log(2 * pi / NODES)


class Slope(un.Prediction):
    """The slope of log q_t: one number per angle.  The forward process has no drift, so the reverse one has g^2 slope."""

    def __init__(self, value, process, x_t, t):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t

    @classmethod
    def misfit(cls, process):
        return None if isinstance(process, Brownian) else f"speaks of angles, and {type(process).__name__} has none"

    def local(self):
        return un.Local(drift=SPEED * self.value, diffusion=torch.full_like(self.x_t, SPEED))

    def step(self, s):
        raise TypeError("the slope has no kernel over a step: use FromGenerator()")

    def to(self, kind, **options):
        if kind is not Slope:
            raise un.InexactConversion(f"a slope of angles is no {kind.__name__}")
        return self


class Backwards(un.decoders.Decoder):
    """p(x_0 | x_eps): the wrapped normal law around x_eps."""

    needs_network = False

    def nll(self, process, prediction, x0, x_eps, eps):
        return -process.marginal(x0, eps).log_prob(x_eps)


class Mixture(un.oracles.Oracle):
    """Data from a mixture of wrapped normal laws: everything about it is known."""

    def __init__(self, process, weights=(0.3, 0.5, 0.2), means=(-2.5, 0.0, 1.2), std=0.35):
        super().__init__(process)
        self.weights, self.means = (torch.tensor(v, dtype=torch.float64) for v in (weights, means))
        self.std = std

    def log_marginal(self, x_t, t):
        variance = self.std**2 + self.process.base.variance(t, x_t).unsqueeze(1)
        return (log_wrapped(x_t.double(), self.means, variance.expand(-1, 3)) + self.weights.log()).logsumexp(1)

    def log_prob(self, x0):
        return self.log_marginal(x0, 0.0)

    def native(self, x_t, t):
        with torch.enable_grad():
            x = x_t.detach().clone().requires_grad_()
            slope = torch.autograd.grad(self.log_marginal(x, t).sum(), x)[0]
        return Slope(slope, self.process.base, x_t, t)

    def draw(self, noise):
        which = torch.searchsorted(self.weights.cumsum(0), noise.at("which").uniform()).clamp_max(2)
        return wrap(self.means[which].unsqueeze(1) + self.std * noise.at("angle").normal((1,)))


class Network(torch.nn.Module):
    """A slope from harmonics of the angle; at little noise it is as large as 1/sqrt(v)."""

    def __init__(self, width=64):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(7, width),
            torch.nn.SiLU(),
            torch.nn.Linear(width, width),
            torch.nn.SiLU(),
            torch.nn.Linear(width, 1),
        )

    def forward(self, x, t):
        v = 0.1 + SPEED * t.unsqueeze(1)
        waves = [f(n * x) for n in (1, 2, 3) for f in (torch.sin, torch.cos)]
        return self.layers(torch.cat([*waves, v.log()], 1)) / v.sqrt()


# what the library asks of a process, answered from outside


@un.predictions.default_kind.register(Brownian)
def _(process):
    return Slope


@un.predictions.admitted_kinds.register(Brownian)
def _(process):
    return (Slope,)


@un.objectives.default_decoder.register(Brownian)
def _(process):
    return Backwards()


@un.samplers.default_sampler.register(Brownian)
def _(process, steps=None):
    return un.samplers.Plan(un.samplers.FromGenerator(), steps or 256)


@subject_of.register(Brownian)
def _(process, name):
    oracle = Mixture(process)
    return Subject(name, process, oracle, (Slope,), None, oracle.draw(un.NoiseSource(1, 5)), (1e-2, 0.1), nodes=48)


def process():
    return Brownian()


def operators():
    """The generator with angles all around, for `unnoise verify --generator circle:operators`."""
    x = around().unsqueeze(1)
    return Operators(Brownian().generator(0.5), x, weights=torch.full((NODES,), 2 * pi / NODES, dtype=torch.float64))
