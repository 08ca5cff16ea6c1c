"""Laws against torch.distributions, drawn frequencies by chi^2, and what LOG_ZERO stands for."""

from math import inf, log, sqrt

import pytest
import torch
from torch import distributions

from unnoise.laws import (
    LOG_ZERO,
    Categorical,
    Joint,
    Normal,
    TabulatedCategorical,
    draw_categories,
    finite_or_inf,
    kl_terms,
    log_coefficient,
    log_of,
)
from unnoise.noise import NoiseSource
from unnoise.processes import Masking, Uniform

FALSE_ALARM = 1e-6
Z = 4.892  # P(|normal| > Z) = 1e-6
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def normals(shape, seed):
    noise = NoiseSource(seed, shape[0])
    return noise.at("mean").normal(shape[1:]), noise.at("std").uniform(shape[1:]) + 0.2


def log_probs(shape, seed):
    return NoiseSource(seed, shape[0]).normal(shape[1:]).log_softmax(-1)


def total(x):
    return x.flatten(1).sum(1) if x.ndim > 1 else x


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3)])
def test_normal_is_torch_s(shape):
    (m, s), (m2, s2) = normals(shape, 0), normals(shape, 1)
    law, other = Normal(m, s), Normal(m2, s2)
    reference, other_reference = distributions.Normal(m, s), distributions.Normal(m2, s2)
    x = m + 0.7
    torch.testing.assert_close(law.log_prob(x), total(reference.log_prob(x)), **CLOSE)
    torch.testing.assert_close(law.kl(other), total(distributions.kl_divergence(reference, other_reference)), **CLOSE)
    assert law.kl(law).tolist() == [0.0] * 4


def test_normal_with_one_standard_deviation_per_row():
    m, m2 = normals((4, 3), 0)[0], normals((4, 3), 1)[0]
    s, s2 = torch.full((4, 1), 0.5, dtype=torch.float64), torch.full((4, 1), 2.0, dtype=torch.float64)
    reference, other = distributions.Normal(m, s.expand(4, 3)), distributions.Normal(m2, s2.expand(4, 3))
    torch.testing.assert_close(Normal(m, s).log_prob(m2), total(reference.log_prob(m2)), **CLOSE)
    kl = total(distributions.kl_divergence(reference, other))
    torch.testing.assert_close(Normal(m, s).kl(Normal(m2, s2)), kl, **CLOSE)


def test_normal_kl_keeps_its_digits_for_nearly_equal_laws():
    """KL(N(0, (1+e)^2) || N(0, 1)) = e^2 - e^3/3 + ...; the difference of the two logarithms would leave nothing of it."""
    one = torch.ones(1, 1, dtype=torch.float64)
    kl = Normal(0 * one, one * (1 + 1e-6)).kl(Normal(0 * one, one)).item()
    assert kl == pytest.approx(1e-12, rel=1e-5)


def test_normal_draws_have_its_law():
    rows = 40_000
    mean, std = torch.tensor([1.0, -2.0]).double().expand(rows, 2), torch.tensor([0.5, 3.0]).double().expand(rows, 2)
    z = (Normal(mean, std).draw(NoiseSource(3, rows)) - mean) / std
    for column in z.T:
        u = torch.special.ndtr(column).sort().values
        steps = torch.arange(rows + 1, dtype=torch.float64) / rows
        distance = max((steps[1:] - u).max().item(), (u - steps[:-1]).max().item())
        assert sqrt(rows) * distance < sqrt(log(2 / FALSE_ALARM) / 2)
    assert abs((z[:, 0] * z[:, 1]).mean().item()) < Z / sqrt(rows)


def test_a_normal_without_spread_is_drawn_at_its_mean():
    mean = torch.randn(5, 2)
    assert torch.equal(Normal(mean, torch.zeros(5, 1)).draw(NoiseSource(0, 5)), mean)


@pytest.mark.parametrize("shape", [(4, 3), (4, 2, 3), (4, 2, 2, 3)])
def test_categorical_is_torch_s(shape):
    p, q = log_probs(shape, 0), log_probs(shape, 1)
    law, other = Categorical(p), Categorical(q)
    reference, other_reference = distributions.Categorical(logits=p), distributions.Categorical(logits=q)
    x = torch.arange(p[..., 0].numel()).reshape(shape[:-1]) % 3
    torch.testing.assert_close(law.log_prob(x), total(reference.log_prob(x)), **CLOSE)
    torch.testing.assert_close(law.kl(other), total(distributions.kl_divergence(reference, other_reference)), **CLOSE)
    torch.testing.assert_close(law.probs, reference.probs, **CLOSE)
    torch.testing.assert_close(Categorical.normalised(p + 5).log_probs, p, **CLOSE)


def chi2_tail(statistic, freedom):
    """P(chi^2 > statistic)."""
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return torch.special.gammaincc(half[0], half[1]).item()


def check_frequencies(drawn, probs):
    """Counts against their law by chi^2, over the possible categories."""
    counts = torch.bincount(drawn.flatten(), minlength=len(probs)).double()
    assert len(counts) == len(probs)
    possible = probs > 0
    assert counts[~possible].sum().item() == 0
    expected = probs[possible] * drawn.numel()
    statistic = ((counts[possible] - expected).square() / expected).sum().item()
    assert chi2_tail(statistic, int(possible.sum()) - 1) > FALSE_ALARM


PROBS = torch.tensor([0.0, 0.1, 0.35, 0.0, 0.05, 0.5, 0.0], dtype=torch.float64)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_drawn_categories_have_their_law(dtype):
    rows = 20_000
    law = Categorical(log_of(PROBS.to(dtype)).expand(rows, 2, 7))
    x = law.draw(NoiseSource(1, rows))
    for column in x.T:
        check_frequencies(column, PROBS)
    joint = torch.outer(PROBS, PROBS).flatten()  # coordinates are independent
    check_frequencies(x[:, 0] * 7 + x[:, 1], joint)


@pytest.mark.parametrize(
    "mutant",
    [
        lambda x: torch.where(x == 1, 2, x),
        lambda x: torch.where(torch.arange(len(x)) % 40 == 0, 1, x),
        lambda x: torch.where(torch.arange(len(x)) == 0, 0, x),
    ],
    ids=["a category lost", "one share in 40 moved", "one impossible draw"],
)
def test_the_frequency_check_fails_on_a_changed_law(mutant):
    x = Categorical(log_of(PROBS).expand(20_000, 7)).draw(NoiseSource(1, 20_000))
    with pytest.raises(AssertionError):
        check_frequencies(mutant(x), PROBS)


def tail_error(draw):
    """Standard errors by which draws from Zipf's law over 50,257 categories miss the mass of its last 45,257."""
    size, rows = 50_257, 64
    probs = 1 / torch.arange(1, size + 1, dtype=torch.float64)
    probs = probs / probs.sum()
    x = torch.cat([draw(probs.log().float().expand(rows, -1), NoiseSource(seed, rows)) for seed in range(32)])
    tail = probs[5000:].sum().item()
    assert x.min().item() >= 0 and x.max().item() < size
    return ((x >= 5000).double().mean().item() - tail) / sqrt(tail * (1 - tail) / len(x))


def test_drawn_categories_reach_the_tail_of_a_large_vocabulary():
    assert abs(tail_error(draw_categories)) < 4


def test_the_tail_check_fails_on_a_draw_that_cuts_the_tail():
    """The last tenth of the mass is never drawn."""

    def cut(log_p, noise):
        kept = log_p.double().exp().cumsum(-1) < 0.9
        return draw_categories(torch.where(kept, log_p, LOG_ZERO), noise)

    assert abs(tail_error(cut)) > 4


class Fixed(NoiseSource):
    """The same uniform number everywhere."""

    def __init__(self, u, rows=1):
        super().__init__(0, rows)
        self.u = u

    def uniform(self, shape=()):
        return torch.full((len(self.rows), *shape), self.u, dtype=torch.float64)


def test_single_tail_categories_are_drawn_at_their_own_rate():
    """A category of probability 1e-7 behind 50,000 others is drawn exactly for the uniforms that belong to it."""
    log_p = torch.full((1, 50_001), log((1 - 1e-7) / 50_000), dtype=torch.float64)
    log_p[0, -1] = log(1e-7)
    for u, expected in ((1 - 0.5e-7, 50_000), (1 - 2**-53, 50_000), (1 - 1.5e-7, 49_999), (2**-53, 0)):
        assert draw_categories(log_p, Fixed(u)).item() == expected


@pytest.mark.parametrize("tables", [1, 50])
def test_categories_looked_up_are_drawn_like_others(tables):
    """Draw by draw, from a table for all rows or one each, and with the same probabilities."""
    table, noise = log_probs((tables, 9, 7), 1).exp(), NoiseSource(2, 50)
    table[:, :, 3] = 0  # not normalised, and one impossible
    table[:, 4] = PROBS
    x = (9 * noise.at("x").uniform((4, 5))).long()
    law = TabulatedCategorical(table, x, torch.float64)
    plain = Categorical(torch.stack([log_of(table[i % tables])[x[i]] for i in range(50)]))
    torch.testing.assert_close(law.log_probs, plain.log_probs, rtol=0, atol=0)
    assert torch.equal(law.draw(noise), plain.draw(noise))
    assert not torch.equal(TabulatedCategorical(table, (x + 1) % 9, torch.float64).draw(noise), plain.draw(noise))


@pytest.mark.parametrize("states", [1, 7, 256, 1000])
def test_categories_looked_up_are_possible_ones(states):
    """For the least and the largest numbers that are drawn, in the first and the last row, though the ends have no mass."""
    table = PROBS.expand(1, states, 7)
    for u, expected in ((0.0, 1), (2**-53, 1), (1 - 2**-53, 5), (1 - 2**-30, 5), (0.1 - 1e-9, 1), (0.1 + 1e-9, 2)):
        for state in (0, states - 1):
            law = TabulatedCategorical(table, torch.full((1, 2), state), torch.float64)
            assert law.draw(Fixed(u)).tolist() == [[expected, expected]]


def test_joint_adds_its_leaves():
    (m, s), (m2, s2) = normals((4, 3), 0), normals((4, 3), 1)
    p, q = log_probs((4, 2, 3), 0), log_probs((4, 2, 3), 1)
    law, other = Joint({"a": Normal(m, s), "b": Categorical(p)}), Joint({"a": Normal(m2, s2), "b": Categorical(q)})
    x = {"a": m + 1, "b": torch.tensor([[0, 1]] * 4)}
    torch.testing.assert_close(law.log_prob(x), Normal(m, s).log_prob(x["a"]) + Categorical(p).log_prob(x["b"]), **CLOSE)
    kl = Normal(m, s).kl(Normal(m2, s2)) + Categorical(p).kl(Categorical(q))
    torch.testing.assert_close(law.kl(other), kl, **CLOSE)


def test_leaves_of_a_joint_are_drawn_independently():
    rows = 20_000
    p = log_of(torch.tensor([0.3, 0.7]).double()).expand(rows, 2)
    x = Joint({"a": Categorical(p), "b": Categorical(p), "c": Joint({"a": Categorical(p)})}).draw(NoiseSource(2, rows))
    joint = torch.outer(torch.tensor([0.3, 0.7]), torch.tensor([0.3, 0.7])).flatten().double()
    check_frequencies(x["a"] * 2 + x["b"], joint)
    check_frequencies(x["a"] * 2 + x["c"]["a"], joint)


def test_zero_times_log_zero_is_zero():
    p, q, possible = (
        torch.tensor([row], dtype=torch.float64) for row in ([0.0, 0.25, 0.75], [0.0, 0.5, 0.5], [0.2, 0.4, 0.4])
    )
    expected = 0.25 * log(0.5) + 0.75 * log(1.5)
    assert Categorical(log_of(p)).kl(Categorical(log_of(q))).item() == pytest.approx(expected, rel=1e-14)
    expected = 0.25 * log(0.25 / 0.4) + 0.75 * log(0.75 / 0.4)
    assert Categorical(log_of(p)).kl(Categorical(log_of(possible))).item() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_impossible_has_infinite_surprise(dtype):
    p, q = torch.tensor([[[0.0, 1.0], [0.5, 0.5]]], dtype=dtype), torch.tensor([[[1.0, 0.0], [0.5, 0.5]]], dtype=dtype)
    law, other = Categorical(log_of(p)), Categorical(log_of(q))
    assert law.log_prob(torch.tensor([[0, 1]])).item() == -inf
    assert law.log_prob(torch.tensor([[1, 1]])).item() == pytest.approx(log(0.5))
    assert law.kl(other).item() == inf
    assert law.kl(law).item() == 0.0
    rare = torch.tensor([[[1e-6, 1 - 1e-6], [0.5, 0.5]]], dtype=dtype)
    assert Categorical(log_of(rare)).kl(law).item() == inf


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_are_finite_with_impossible_categories(dtype):
    possible = torch.tensor([True, True, False, True])
    logits = torch.tensor([[0.3, -0.2, 5.0, 0.1]], dtype=dtype, requires_grad=True)
    model = Categorical.normalised(torch.where(possible, logits, LOG_ZERO))
    truth = torch.tensor([[0.5, 0.0, 0.0, 0.5]], dtype=dtype)
    model_probs = torch.tensor([0.3, -0.2, 0.1], dtype=dtype).softmax(0)
    expected = torch.tensor([[model_probs[0] - 0.5, model_probs[1], 0.0, model_probs[2] - 0.5]], dtype=dtype)
    gradient = torch.autograd.grad(Categorical(log_of(truth)).kl(model).sum(), logits, retain_graph=True)[0]
    torch.testing.assert_close(gradient, expected)
    gradient = torch.autograd.grad(-model.log_prob(torch.tensor([3])).sum(), logits)[0]
    one_hot = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=dtype)
    full = torch.tensor([[model_probs[0], model_probs[1], 0.0, model_probs[2]]], dtype=dtype)
    torch.testing.assert_close(gradient, full - one_hot)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_times_give_single_precision_laws(dtype):
    x, t = torch.tensor([[0, 1]]), torch.tensor([0.25])
    for process in (Masking(3, 2), Uniform(3, 2)):
        law, reference = process.marginal(x, t.to(dtype)), process.marginal(x, t)
        assert torch.equal(law.log_probs, reference.log_probs)


def test_log_of_has_the_gradient_of_log_where_there_is_one():
    x = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64, requires_grad=True)
    value = log_of(x)
    assert value.tolist() == [LOG_ZERO, log(0.25), 0.0]
    assert torch.autograd.grad(value.sum(), x)[0].tolist() == [0.0, 4.0, 1.0]


def test_helpers_of_logarithms():
    assert finite_or_inf(torch.tensor([1e25, 3.0, -1e25, LOG_ZERO])).tolist() == [inf, 3.0, -inf, -inf]
    coefficient = log_coefficient(torch.tensor([0.0, 0.5], dtype=torch.float64))
    assert coefficient.exp().tolist() == [0.0, 0.5]
    assert bool(coefficient.isfinite().all())
    log_p, log_q = log_of(torch.tensor([0.0, 1.0])), log_of(torch.tensor([0.5, 0.5]))
    assert kl_terms(log_p, log_q).item() == pytest.approx(log(2))
