"""Progressive distillation against the composed steps of a Gaussian's exact denoiser."""

import pytest
import torch
from normal_law import MEAN, PROCESS, VARIANCE, Exact
from torch import nn

import unnoise as un
from unnoise.distillation import Progressive, progressive
from unnoise.noise import NoiseSource


class ByTime(nn.Module):
    """A line in x for each of n + 1 even times."""

    def __init__(self, n: int):
        super().__init__()
        self.n, self.line = n, nn.Parameter(torch.zeros(n + 1, 2, dtype=torch.float64))

    def forward(self, x, t):
        a, b = self.line[(t * self.n).round().long()].unbind(-1)
        return a[:, None] * x + b[:, None]


def student(n: int) -> un.Denoiser:
    return un.Denoiser(ByTime(n), PROCESS, un.Velocity)


def fitted(run: Progressive, rows: int = 64) -> float:
    """The least loss, by Newton's rule: the loss is a quadratic of the lines."""
    x0 = MEAN + VARIANCE**0.5 * NoiseSource(0, rows).at("x").normal((1,))
    loss = lambda: run(x0, NoiseSource(1, rows)).loss.mean()  # noqa: E731
    line = run.denoiser.network.line
    for _ in range(2):
        gradient = torch.autograd.grad(loss(), line, create_graph=True)[0]
        hessian = torch.stack([torch.autograd.grad(g, line, retain_graph=True)[0].flatten() for g in gradient.flatten()])
        step = torch.linalg.lstsq(hessian, gradient.detach().reshape(-1, 1), driver="gelsd").solution
        with torch.no_grad():
            line -= step.reshape(line.shape)
    return float(loss().detach())


@pytest.mark.parametrize("weighting", sorted(progressive.WEIGHTS))
def test_a_line_at_each_time_is_two_steps_in_one(weighting):
    run = Progressive(student(4), Exact(), steps=4, rounds=1, weighting=weighting)
    assert fitted(run) < 1e-20
    x = NoiseSource(2, 20).normal((1,)) * 2
    ddim = un.samplers.DDIM()
    mine = un.sample(run.denoiser, x=x, steps=4, sampler=ddim)[0]
    theirs = un.sample(Exact(), x=x, steps=8, sampler=ddim)[0]
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-10)
    assert float((un.sample(Exact(), x=x, steps=4, sampler=ddim)[0] - theirs).abs().max()) > 0.01  # it is another law


def test_rounds_halve_the_steps_of_the_first_teacher():
    run = Progressive(student(4), student(4), steps=2, rounds=2)
    run.teacher = Exact()
    assert run.own_steps == 4 and len(run.grid) == 9
    assert fitted(run) < 1e-20
    run.teacher = un.distillation.base.frozen(run.denoiser)
    assert run.advance(0.5) and run.own_steps == 2 and len(run.grid) == 5 and not run.advance(0.9)
    assert fitted(run) < 1e-20
    x = NoiseSource(2, 20).normal((1,))
    mine, theirs = (un.sample(d, x=x, steps=k, sampler=un.samplers.DDIM())[0] for d, k in ((run.denoiser, 2), (Exact(), 8)))
    torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-9)


def test_the_weights_are_those_of_the_errors_they_stand_for():
    """max(1, SNR) |dx|^2 is the larger error of x_0 and eps, and (1 + SNR) |dx|^2 that of the velocity."""
    t = torch.linspace(0.05, 0.95, 7, dtype=torch.float64)
    alpha, sigma = PROCESS.schedule.alpha(t), PROCESS.schedule.sigma(t)
    snr, dx = PROCESS.schedule.log_snr(t).exp(), torch.tensor(0.3, dtype=torch.float64)
    deps, dv = -alpha * dx / sigma, -dx / sigma  # x_t is given: alpha dx + sigma deps = 0, v = alpha eps - sigma x
    torch.testing.assert_close(progressive.WEIGHTS["truncated_snr"](snr) * dx**2, torch.maximum(dx**2, deps**2))
    torch.testing.assert_close(progressive.WEIGHTS["snr_plus_one"](snr) * dx**2, dv**2)


@pytest.mark.parametrize("mutant", ["one step", "wrong time"])
def test_mutants(mutant, monkeypatch):
    """A teacher that takes one step, or its second at the time of the first, leads elsewhere."""
    right = Progressive._step

    def wrong(self, x, t, s, told):
        first = float(t.max()) == float(self.grid.max())
        if mutant == "one step":
            return right(self, x, t, s, told) if first else x
        prediction = self.teacher(x, s if first else t)  # what it says at s, as if it were said at t
        return un.Clean(prediction.clean(), self.denoiser.process, x, t).flow_step(s)

    monkeypatch.setattr(Progressive, "_step", wrong)
    run = Progressive(student(1), Exact(), steps=1, rounds=1)
    fitted(run)
    x = NoiseSource(2, 20).normal((1,))
    mine, theirs = (un.sample(d, x=x, steps=k, sampler=un.samplers.DDIM())[0] for d, k in ((run.denoiser, 1), (Exact(), 2)))
    assert float((mine - theirs).abs().max()) > 1e-3


def test_leaves_of_a_product_are_distilled_together():
    two = un.Product(a=un.Gaussian((1,), un.schedules.Cosine()), b=un.Gaussian((1,), un.schedules.Linear()))

    class Both(un.AnyDenoiser):
        def __init__(self):
            super().__init__()
            self.process, self.kinds = two, {"a": un.Velocity, "b": un.Velocity}
            self.a, self.b = Exact(two.leaves["a"]), Exact(two.leaves["b"])

        def forward(self, x_t, t, **condition):
            parts = {"a": self.a(x_t["a"], t), "b": self.b(x_t["b"], t)}
            return un.predictions.ProductPrediction(parts, two, x_t, t)

    run = Progressive(Both(), Both(), steps=4, rounds=1)
    x = {name: NoiseSource(0, 16).at(name).normal((1,)) for name in "ab"}
    alone = Progressive(Exact(two.leaves["b"]), Exact(two.leaves["b"]), steps=4, rounds=1)
    t, between, s = (torch.full((16,), v, dtype=torch.float64) for v in (0.75, 0.625, 0.5))
    joint = run._step(run._step(x, t, between, {}), between, s, {})["b"]
    torch.testing.assert_close(joint, alone._step(alone._step(x["b"], t, between, {}), between, s, {}))
    assert float(run(x, NoiseSource(1, 16)).loss.mean()) > 0


def test_what_it_refuses():
    with pytest.raises(ValueError, match="use the method consistency"):
        uniform = un.Denoiser(nn.Linear(1, 1), un.Uniform(size=3, shape=(2,)))
        Progressive(uniform, uniform)
    with pytest.raises(ValueError, match="weighting = 'snr'"):
        Progressive(student(2), student(2), weighting="snr")
