"""The conditional bound: with the exact network it is the conditional likelihood."""

import pytest
import torch

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.objectives import Observed

PROBS = torch.tensor([0.3, 0.7], dtype=torch.float64)
MEANS, VARIANCES = torch.tensor([[-1.0], [1.0]]).double(), torch.tensor([[[0.3]], [[0.5]]]).double()


def mixed(schedule=None):
    process = un.Product(x=un.Gaussian((1,), un.schedules.Cosine()), c=un.Masking(2, (1,)))
    return un.oracles.conditional_gaussian(process, PROBS, MEANS, VARIANCES)


class Fixed(Observed):
    """The same with the sets given."""

    known: str | None = None

    def sets(self, rows, noise):
        return {name: torch.full((rows,), name == self.known) for name in ("x", "c")}


def conditional(known, x0, cutoff=0.02):
    """The integral over time by quadrature, the state drawn many times."""
    objective = Fixed(mixed(), times=un.Quadrature(24), cutoff=cutoff)
    objective.known = known
    return objective(x0, NoiseSource(3, len(x0["c"]))).loss


def test_given_the_category_the_number_has_its_own_bound():
    """The diffusion of x given c is that of the component alone, with the same draws."""
    n = 200
    x0 = {"x": NoiseSource(1, n).normal((1,)) * 0.5 + 1, "c": torch.ones(n, 1).long()}
    found = conditional("c", x0).mean()
    alone = un.oracles.normal(un.Gaussian((1,), un.schedules.Cosine()), MEANS[1], VARIANCES[1])
    exact = un.bound(alone, x0["x"], exact=True, cutoff=0.02).diffusion
    assert float(found) == pytest.approx(float(exact.mean()), rel=0.05)


def test_given_the_number_the_category_has_its_posterior():
    """-log q(c | x) exactly on average over masking: one coordinate."""
    n = 4000
    x0 = {"x": torch.full((n, 1), 0.2).double(), "c": (torch.arange(n) % 2).unsqueeze(1)}
    found = conditional("x", x0, cutoff=1e-4).reshape(-1, 2).mean(0)
    joint = mixed()
    log_p = joint.log_prob({"x": x0["x"][:2], "c": x0["c"][:2]})
    exact = log_p.logsumexp(0) - log_p
    torch.testing.assert_close(found, exact, rtol=0.05, atol=0.02)


def test_rows_without_observed_leaves_have_the_plain_bound():
    n = 64
    x0 = {"x": NoiseSource(1, n).normal((1,)), "c": (torch.arange(n) % 2).unsqueeze(1)}
    objective = Observed(mixed(), share=0.0, times=un.Quadrature(8))
    plain = un.Objective(mixed(), times=un.Quadrature(8))
    torch.testing.assert_close(objective(x0, NoiseSource(5, n)).loss, plain(x0, NoiseSource(5, n)).diffusion)


def test_sets_are_as_likely_as_said():
    sets = Observed(mixed(), share=0.6).sets(20_000, NoiseSource(2, 20_000))
    both = sets["x"] & sets["c"]
    assert not bool(both.any())
    for seen in sets.values():
        assert float(seen.double().mean()) == pytest.approx(0.6 * 0.25, abs=0.015)


def test_gradients_are_finite():
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 1), torch.nn.Linear(4, 2)

        def forward(self, x, t):
            h = torch.stack([x["x"][:, 0], x["c"][:, 0].float(), t["x"], t["c"]], 1)
            return {"x": self.a(h), "c": self.b(h).unsqueeze(1)}

    network = Network()
    denoiser = un.Denoiser(network, mixed().process, predicts={"x": un.Velocity})
    x0 = {"x": torch.randn(256, 1), "c": torch.randint(2, (256, 1))}
    Observed(denoiser)(x0, NoiseSource(0, 256)).loss.mean().backward()
    assert all(bool(p.grad.isfinite().all()) and float(p.grad.abs().sum()) > 0 for p in network.parameters())


def test_observed_rows_are_no_measure_for_the_others():
    """Balanced errors are relative to those of free rows: as if there were no others."""

    class Told(torch.nn.Module):
        def forward(self, x, t):
            return {name: 0.3 * x[name] + t[name].unsqueeze(1) for name in x}

    rows = 64
    process = un.Product(a=un.Gaussian((2,)), b=un.Gaussian((2,)))
    denoiser = un.Denoiser(Told(), process, {"a": un.Velocity, "b": un.Velocity})
    objective = Observed(denoiser, 1.0, weighting=un.weightings.Balanced())
    noise = NoiseSource(0, rows)
    x0, t = {name: noise.at(name).normal((2,)) for name in "ab"}, noise.at("time").uniform()
    observed = objective.sets(rows, noise)
    noised = process.marginal(x0, t).draw(noise)
    x_t = {name: torch.where(observed[name].unsqueeze(1), x0[name], noised[name]) for name in "ab"}
    expected = torch.zeros(rows, dtype=torch.float64)
    for name, leaf in process.leaves.items():
        free = ~observed[name]
        assert 10 < int(free.sum()) < 54
        value = Told()({name: x_t[name][free]}, {name: t[free]})[name]
        alone = un.Velocity(value, leaf, x_t[name][free], t[free])
        expected[free] += un.weightings.Balanced().rate(alone, leaf, x0[name][free])
    torch.testing.assert_close(objective.rate(x0, x_t, t, observed, {}), expected, rtol=1e-10, atol=0)


def test_refusals():
    with pytest.raises(TypeError, match="at least two"):
        Observed(un.oracles.normal(un.Gaussian((1,)), MEANS[0], VARIANCES[0]))
    with pytest.raises(ValueError, match="outside"):
        Observed(mixed(), share=1.5)


class Still(torch.nn.Module):
    """Velocity 0 and uniform logits, whatever it sees."""

    def forward(self, x, t):
        if isinstance(x, dict):
            return {name: self(leaf, t) for name, leaf in x.items()}
        return torch.zeros_like(x) if x.dtype.is_floating_point else torch.zeros(*x.shape, 2, dtype=torch.float64)


@pytest.mark.parametrize("times", [un.MixedTimes, un.Importance])
def test_products_within_products(times):
    """A leaf that is a product is observed as a whole; what is left has its bound alone (five standard errors)."""
    inner = un.Product(x=un.Gaussian((2,)), c=un.Masking(2, (3,)))
    process = un.Product(inner=inner, b=un.Gaussian((1,)))
    n = 4000
    x0 = {
        "inner": {"x": NoiseSource(1, n).normal((2,)), "c": (NoiseSource(2, n).uniform((3,)) * 2).long()},
        "b": NoiseSource(3, n).normal((1,)),
    }
    for known, left in (("inner", process.leaves["b"]), ("b", inner)):
        kinds = {"inner": {"x": un.Velocity}, "b": un.Velocity}
        objective = Fixed(un.Denoiser(Still(), process, kinds), times=times(), cutoff=0.02)
        objective.sets = lambda rows, noise, known=known: {
            name: torch.full((rows,), name == known) for name in process.names
        }
        found = objective(x0, NoiseSource(4, n)).loss
        free = "inner" if known == "b" else "b"
        alone = un.Denoiser(Still(), left, kinds[free])
        own = un.Objective(alone, cutoff=0.02)(x0[free], NoiseSource(5, n)).diffusion
        error = ((found.var() + own.var()) / n).sqrt()
        assert found.isfinite().all() and abs(found.mean() - own.mean()) < 5 * error < 0.2 * own.mean()
