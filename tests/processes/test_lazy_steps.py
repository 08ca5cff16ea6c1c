"""Reverse steps that are drawn without their probabilities: the same categories as by them, from fewer logits."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.laws import draw_categories
from unnoise.noise import NoiseSource
from unnoise.processes import lazy_steps, noise_laws, rate_matrices
from unnoise.processes.lazy_steps import PushedStep, RaisedStep
from unnoise.verify.branching import branches

ROWS = 200
BY_COORDINATE = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Cosine(), un.schedules.Polynomial(3.0)])
RAISED = {
    "uniform": un.Uniform(7, (12,)),
    "uniform, cosine": un.Uniform(30, (3, 2), un.schedules.Cosine()),
    "a size for each": un.Uniform([3, 5, 2, 7]),
    "a schedule for each": un.Uniform(5, (3,), BY_COORDINATE),
    "a law": un.Interpolation(5, (3,), torch.tensor([0.1, 0.2, 0.3, 0.4, 0.0])),
    "a law for each": un.Interpolation(4, (3,), torch.rand(3, 4, generator=torch.Generator().manual_seed(0)).softmax(-1)),
    "uniform with mask": un.Interpolation(5, (3,), noise_laws.uniform_with_mask(5)),
    "a mixture": un.Mixture.uniform_and_mask(6, (4,), uniform=0.3),
    "scalar": un.Uniform(9),
}
PUSHED = {
    "neighbours": un.RateMatrix(rate_matrices.nearest_neighbour(9), (24,)),
    "neighbours by eigenvectors": un.RateMatrix(
        rate_matrices.nearest_neighbour(9), (3, 8), un.schedules.Cosine(), method="eigen"
    ),
    "with mask": un.RateMatrix(rate_matrices.with_mask(rate_matrices.nearest_neighbour(6)), (24,), size=6),
    "few coordinates": un.RateMatrix(rate_matrices.banded(11, 3), (2,)),
    "sparse": un.RateMatrix(rate_matrices.nearest_neighbour(5).to_sparse(), (24,), un.schedules.LinearBeta()),
    "a chain": un.MatrixChain(un.d3pm.gaussian(7, torch.linspace(0.02, 0.3, 20)), (12,)).base,
}
PAIRS = [(1.0, 0.9), (0.6, 0.55), (0.3, 0.0), (0.1, 0.05)]


def states(process, t, seed: int = 0) -> torch.Tensor:
    """Possible ones: noised data."""
    x0 = torch.randint(process.space.size, (ROWS, *process.space.shape), generator=torch.Generator().manual_seed(seed))
    x0 = x0 if process.space.sizes is None else x0 % process.space.sizes
    return process.marginal(x0, t).draw(NoiseSource(seed, ROWS).at("x"))


def logits_for(process, dtype: torch.dtype) -> torch.Tensor:
    source = torch.Generator().manual_seed(5)
    return (2 * torch.randn(ROWS, *process.space.shape, process.space.size, generator=source)).to(dtype)


def compared(process, dtype, s, t) -> tuple[torch.Tensor, torch.Tensor, un.laws.Categorical]:
    prediction = un.Posterior(logits_for(process, dtype), process, states(process, t), t)
    law, noise = prediction.step(s), NoiseSource(3, ROWS).at("step")
    return law.draw(noise), draw_categories(law.log_probs, noise), law


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*RAISED, *PUSHED])
def test_drawn_as_by_the_probabilities(name, dtype):
    process = {**RAISED, **PUSHED}[name]
    for t, s in PAIRS:
        drawn, plain, law = compared(process, dtype, s, t)
        assert type(law) is (RaisedStep if name in RAISED else PushedStep)
        assert torch.equal(drawn, plain)


@pytest.mark.parametrize("name", [name for name in {**RAISED, **PUSHED} if name not in ("few coordinates", "a chain")])
def test_every_row_at_its_own_time(name):
    process = {**RAISED, **PUSHED}[name]
    t = torch.linspace(0.2, 0.9, ROWS, dtype=torch.float64)
    drawn, plain, law = compared(process, torch.float32, t * torch.linspace(0, 0.9, ROWS, dtype=torch.float64), t)
    assert isinstance(law, lazy_steps.LazyStep) and torch.equal(drawn, plain)


@pytest.mark.parametrize("name", ["uniform", "a size for each", "neighbours", "with mask"])
def test_chunks_of_any_size_draw_the_same(name, monkeypatch):
    process = {**RAISED, **PUSHED}[name]
    for s, t in ((0.4, 0.5), (torch.full((ROWS,), 0.1).double(), torch.linspace(0.2, 0.9, ROWS).double())):
        whole, _, _ = compared(process, torch.float32, s, t)
        for together in (37, 100):
            monkeypatch.setattr(lazy_steps.LazyStep, "together", lambda law, n=together: n)
            assert torch.equal(compared(process, torch.float32, s, t)[0], whole)
        monkeypatch.undo()


@pytest.mark.parametrize("name", ["uniform", "a law", "neighbours"])
def test_the_law_by_counting(name):
    """The numbers (i + 1/2)/n for one state: shares are the probabilities, to 1/n."""
    process, n = {**RAISED, **PUSHED}[name], 20_000
    shape = process.space.shape
    x = states(process, 0.5)[:1].expand(n, *shape)
    logits = logits_for(process, torch.float32)[:1].expand(n, *shape, -1)

    class Even(NoiseSource):
        def uniform(self, shape=()):
            return ((torch.arange(n, dtype=torch.float64) + 0.5) / n).reshape(n, *[1] * len(shape)).expand(n, *shape)

    law = un.Posterior(logits, process, x, 0.5).step(0.3)
    exact = process.reverse_step(x[:1], logits[:1].double().log_softmax(-1), 0.3, 0.5).probs[0]
    shares = torch.nn.functional.one_hot(law.draw(Even(0, n)), process.state_space.size).double().mean(0)
    assert float((shares - exact).abs().max()) < 1.5 / n


@pytest.mark.parametrize("name", ["scalar", "neighbours"])
def test_numbers_that_stay_open_branch_by_the_probabilities(name):
    """As `unnoise verify` draws: every outcome of a step, with its probability."""
    process = un.RateMatrix(rate_matrices.nearest_neighbour(3)) if name == "neighbours" else un.Uniform(3)
    x, logits = torch.tensor([0, 1, 2, 2]), torch.randn(4, 3, dtype=torch.float64)

    def run(noise, x):
        copies = len(x) // 4
        law = un.Posterior(logits.repeat_interleave(copies, 0), process, x, 0.5).step(0.3)
        assert isinstance(law, lazy_steps.LazyStep)
        return law.draw(noise)

    outcomes, weights = branches(run, x, {})
    exact = process.reverse_step(x, logits.log_softmax(-1), 0.3, 0.5).probs
    found = torch.zeros(4, 3, dtype=torch.float64).scatter_add(1, outcomes, weights)
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


def test_no_rows():
    prediction = un.Posterior(torch.zeros(0, 12, 7), RAISED["uniform"], torch.zeros(0, 12).long(), 0.5)
    assert prediction.step(0.4).draw(NoiseSource(0, 0)).shape == (0, 12)


def test_sample_i_is_the_same_in_any_batch():
    for process in (RAISED["uniform"], PUSHED["neighbours"]):
        x, logits = states(process, 0.5), logits_for(process, torch.float32)
        noise = NoiseSource(3, ROWS).at("step")
        whole = un.Posterior(logits, process, x, 0.5).step(0.4).draw(noise)
        part = torch.arange(50, 90)
        again = un.Posterior(logits[part], process, x[part], 0.5).step(0.4).draw(noise.of(part))
        assert torch.equal(whole[part], again)


class Counted:
    """A head that counts its rows, and the most it was given at once."""

    def __init__(self, size: int):
        self.line, self.rows, self.most = torch.nn.Linear(4, size), 0, 0

    def __call__(self, h):
        self.rows, self.most = self.rows + h[..., 0].numel(), max(self.most, h[..., 0].numel())
        return self.line(h)


@pytest.mark.parametrize("size", [50, 3])
def test_the_head_sees_few_rows_in_a_run_under_uniform_noise(size):
    """Some 4 log n visits of a coordinate in n steps: what (1 - f_s) f_{t|s}/f_t twice, or once, adds up to."""
    process, steps = un.Uniform(size, (10,)), 256
    head, features = Counted(size), torch.randn(ROWS, 10, 4, generator=torch.Generator().manual_seed(0))
    times = torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    x, expected = process.prior(ROWS).draw(NoiseSource(0, ROWS)), 0.0
    for i in range(steps):
        prediction = un.Posterior.of_features(features, head, process, x, times[i])
        x = prediction.step(times[i + 1]).draw(NoiseSource(1, ROWS).at(i))
        t, s = float(times[i]), float(times[i + 1])
        expected += min(1.0, 2 * (1 - s / size) * (t - s) / ((1 - s) * t))
    visits = head.rows / x.numel()
    assert abs(visits - expected) < 0.03 * expected and expected < 4.5 * log(steps)
    assert visits < steps / 10


def test_logits_are_made_by_chunks():
    process = un.RateMatrix(rate_matrices.nearest_neighbour(256), (40,), method="eigen")
    head = Counted(256)
    prediction = un.Posterior.of_features(torch.randn(100, 40, 4), head, process, states(process, 0.5)[:100], 0.5)
    prediction.step(0.4).draw(NoiseSource(0, 100))
    assert head.rows == 4000 and head.most == 2**18 // 256


class OtherStep(un.Uniform):
    """A reverse step of its own: a coordinate stays."""

    def reverse_step(self, x_t, log_theta, s, t):
        return un.laws.Categorical(self.log_one_hot(x_t, torch.float64))


class OtherPush(un.RateMatrix):
    """A kernel of its own: everything goes to category 0."""

    def log_push(self, log_v, s, t):
        zero = torch.zeros_like(log_v[..., 0], dtype=torch.int64)
        return self.log_one_hot(zero, log_v.dtype)


def test_a_process_with_kernels_of_its_own_is_drawn_by_them():
    own = OtherStep(7, (12,))
    x, logits = states(RAISED["uniform"], 0.5), logits_for(RAISED["uniform"], torch.float32)
    assert torch.equal(un.Posterior(logits, own, x, 1.0).step(0.0).draw(NoiseSource(0, ROWS)), x)
    own = OtherPush(rate_matrices.nearest_neighbour(9), (24,))
    x, logits = states(PUSHED["neighbours"], 0.5), logits_for(PUSHED["neighbours"], torch.float32)
    assert not bool(un.Posterior(logits, own, x, 0.9).step(0.5).draw(NoiseSource(0, ROWS)).any())


def test_masking_keeps_its_draws():
    """Its reveals are another matter: the law is drawn by its probabilities."""
    process = un.Masking(7, (12,))
    law = un.Posterior(logits_for(RAISED["uniform"], torch.float32), process, torch.full((ROWS, 12), 7), 0.5).step(0.4)
    assert type(law) is un.laws.Categorical


def test_probabilities_are_worked_out_once_and_have_gradients():
    process = RAISED["uniform"]
    logits = logits_for(process, torch.float64).requires_grad_()
    law = un.Posterior(logits, process, states(process, 0.5), 0.5).step(0.4)
    assert law.log_probs is law.log_probs
    law.log_prob(states(process, 0.4)).sum().backward()
    assert bool(logits.grad.abs().sum() > 0)
    torch.testing.assert_close(law.probs.sum(-1), torch.ones(ROWS, 12, dtype=torch.float64))


@pytest.mark.parametrize("name", ["uniform", "neighbours"])
def test_a_step_upwards_is_refused_at_once(name):
    process = {**RAISED, **PUSHED}[name]
    prediction = un.Posterior(logits_for(process, torch.float32), process, states(process, 0.5), 0.5)
    with pytest.raises(ValueError, match=r"s = 0\.6 is not before t = 0\.5"):
        prediction.step(0.6)


@pytest.mark.parametrize("name", ["uniform", "neighbours"])
def test_values_that_must_not_be_read_are_not(name):
    """As on an accelerator: no list of coordinates is made on the host, and the same categories are drawn."""
    process = {**RAISED, **PUSHED}[name]
    seen = compared(process, torch.float32, 0.4, 0.5)[0]
    with un.checks.values(False):
        assert torch.equal(compared(process, torch.float32, 0.4, 0.5)[0], seen)
