"""Combined and tilted predictions against laws that are known: products of Gaussians, tables by brute force, Poisson."""

import pytest
import torch

import unnoise as un
from unnoise.predictions import combine, tilt

F64 = torch.float64
KINDS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
EYE = torch.eye(2, dtype=F64)
MEANS = torch.tensor([[0.5, -1.0], [-0.7, 0.4]], dtype=F64)
SPREADS = torch.tensor([[[0.8, 0.2], [0.2, 0.5]], [[1.5, -0.3], [-0.3, 2.0]]], dtype=F64)
SCHEDULES = [un.schedules.Cosine(), un.schedules.VE(0.1, 5.0), un.schedules.Linear()]
SKEW = torch.tensor([[1.0, 0.6], [0.6, 1.3]], dtype=F64)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def two_normals(process, kind=un.Score):
    return [un.oracles.normal(process, m, s, kind) for m, s in zip(MEANS, SPREADS, strict=True)]


def product_score(process, weights, x, t):
    """The score of N_1^w N_2^v at time t, from precisions."""
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    noise = EYE if process.covariance is None else SKEW
    score = torch.zeros_like(x)
    for w, mean, spread in zip(weights, MEANS, SPREADS, strict=True):
        precision = torch.linalg.inv(alpha**2 * spread + sigma**2 * noise)
        score = score - w * (x - alpha * mean) @ precision
    return score


@pytest.mark.parametrize("weights", [(0.3, 0.7), (2.0, -1.0), (0.5, 0.9)])
@pytest.mark.parametrize("covariance", [None, SKEW], ids=["white", "correlated"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: type(s).__name__)
def test_scores_of_a_product_of_laws(schedule, covariance, weights):
    """In every kind, whatever the weights sum to."""
    process, x, t = un.Gaussian((2,), schedule, covariance), randn(5, 2), torch.linspace(0.1, 0.8, 5, dtype=F64)
    truth = torch.stack([product_score(process, weights, x[i : i + 1], t[i])[0] for i in range(5)])
    exact = un.Score(truth, process, x, t)
    for kind in KINDS:
        found = combine([oracle(x, t) for oracle in two_normals(process, kind)], weights)
        assert type(found) is kind
        close(found.value, exact.to(kind).value, 1e-9)
    mixed = combine([two_normals(process, un.Velocity)[0](x, t), two_normals(process, un.Noise)[1](x, t)], weights)
    close(mixed.value, exact.to(un.Velocity).value, 1e-9)
    rows = [torch.full((5,), w, dtype=F64) for w in weights]
    close(combine([oracle(x, t) for oracle in two_normals(process)], rows).value, truth)


def test_kinds_agree_where_weights_sum_to_one_and_plain_sums_do_not_elsewhere():
    process, x, t = un.Gaussian((2,)), randn(4, 2), torch.tensor([0.2, 0.5, 0.7, 0.9], dtype=F64)
    for weights in ((0.25, 0.75), (1.1, -0.1)):
        scores = combine([oracle(x, t) for oracle in two_normals(process)], weights)
        for kind in KINDS:
            values = [oracle(x, t).value for oracle in two_normals(process, kind)]
            found = combine([oracle(x, t) for oracle in two_normals(process, kind)], weights)
            close(found.value, weights[0] * values[0] + weights[1] * values[1])
            close(found.to(un.Clean).value, scores.to(un.Clean).value)
    values = [oracle(x, t).value for oracle in two_normals(process, un.Clean)]
    found = combine([oracle(x, t) for oracle in two_normals(process, un.Clean)], (1.0, 1.0))
    assert float((found.value - values[0] - values[1]).abs().min()) > 1e-2


def test_where_nothing_of_the_data_is_left_values_are_combined_as_they_are():
    process, x = un.Gaussian((2,)), randn(3, 2)  # alpha_1 = 0
    for kind in (un.Clean, un.Velocity, un.Flow, un.Noise):
        told = [oracle(x, 1.0) for oracle in two_normals(process, kind)]
        for weights in ((0.4, 0.6), (2.0, 1.0)):
            close(combine(told, weights).value, weights[0] * told[0].value + weights[1] * told[1].value)
    noise, velocity = (two_normals(process, kind)[0](x, 1.0) for kind in (un.Noise, un.Velocity))
    with pytest.raises(un.InexactConversion, match="alpha_t = 0"):
        combine([velocity, noise], (0.5, 0.5))


def test_means_of_a_grid_pair():
    process, x, weights = un.Gaussian((2,)), randn(3, 2), (0.4, 1.1)
    told = [oracle(x, 0.6).to(un.Mean, s=0.5) for oracle in two_normals(process)]
    scores = combine([oracle(x, 0.6) for oracle in two_normals(process)], weights)
    close(combine(told, weights).value, scores.to(un.Mean, s=0.5).value)


@pytest.mark.parametrize("covariance", [None, SKEW], ids=["white", "correlated"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_tilt_shifts_the_mean(kind, covariance):
    """q_0 exp(lambda x) of normal data has the mean m + S lambda; its noised law is q_t tilted by alpha V_t^-1 S lambda."""
    process, x, t = un.Gaussian((2,), covariance=covariance), randn(4, 2), 0.4
    push, noise = torch.tensor([0.7, -0.3], dtype=F64), EYE if covariance is None else SKEW
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    noised = alpha**2 * SPREADS[0] + sigma**2 * noise
    by = alpha * torch.linalg.solve(noised, SPREADS[0] @ push).expand(4, 2)
    shifted = un.oracles.normal(process, MEANS[0] + SPREADS[0] @ push, SPREADS[0], kind)
    close(tilt(two_normals(process, kind)[0](x, t), by).value, shifted(x, t).value)
    assert float((shifted(x, t).value - two_normals(process, kind)[0](x, t).value).abs().max()) > 0.05


def test_a_tilt_of_x0_does_not_exist_at_pure_noise():
    process, x = un.Gaussian((2,)), randn(3, 2)
    noise = un.Noise(x, process, x, 1.0)
    close(tilt(noise, torch.ones_like(x)).value, x - 1)
    with pytest.raises(un.InexactConversion, match="tilt a Noise"):
        tilt(un.Velocity(x, process, x, 1.0), torch.ones_like(x))


LAWS = [torch.tensor(p, dtype=F64) for p in ([0.5, 0.2, 0.05, 0.05, 0.1, 0.1, 0, 0, 0], [1, 2, 1, 1, 1, 1, 1, 1, 1.0])]
LAWS = [(law + 0.01) / (law + 0.01).sum() for law in LAWS]


def noised_ratios(process, laws, weights, x, t):
    """log of q(y)/q(x) for the product of noised tables, by brute force: [batch, coordinate, states]."""
    states = process.space.states()
    out = torch.full((*x.shape, process.state_space.size), float("nan"), dtype=F64)
    log_q = lambda y: sum(  # noqa: E731
        w * process.marginal(states, t).log_prob(y.expand_as(states)).add(law.log()).logsumexp(0)
        for w, law in zip(weights, laws, strict=True)
    )
    for i, row in enumerate(x):
        for k in range(x.shape[1]):
            for a in range(process.state_space.size):
                other = row.clone()
                other[k] = a
                out[i, k, a] = log_q(other) - log_q(row)
    return out


@pytest.mark.parametrize("weights", [(0.3, 0.7), (2.0, -1.0), (0.5, 0.9)])
@pytest.mark.parametrize("make", [un.Uniform, un.Masking], ids=["uniform", "masking"])
def test_ratios_and_rates_by_brute_force(make, weights):
    process, t = make(3, (2,)), 0.6
    x = process.space.states()[[0, 4, 7]] if make is un.Uniform else torch.tensor([[3, 1], [3, 3], [0, 3]])
    truth = noised_ratios(process, LAWS, weights, x, t)
    for kind in (un.Ratio, un.Rates):
        told = [un.oracles.table(process, law, kind)(x, t) for law in LAWS]
        found = combine(told, weights)
        moves = found._moves()
        assert type(found) is kind and bool(moves.any())
        close(found.log_ratio()[moves], truth[moves], 1e-9)
        rates = found.local().log_rates
        exact = un.Ratio(torch.where(moves, truth, -1e30).scatter(-1, x.unsqueeze(-1), 0.0), process, x, t).local().log_rates
        close(rates[moves], exact[moves], 1e-9)


@pytest.mark.parametrize("weights", [(0.3, 0.7), (2.0, -1.0), (0.5, 0.9)])
def test_posteriors_are_log_linear(weights):
    process, t = un.Uniform(3, (2,)), 0.5
    x = process.space.states()
    told = [un.oracles.table(process, law)(x, t) for law in LAWS]
    exact = sum(w * p.log_theta() for w, p in zip(weights, told, strict=True)).log_softmax(-1)
    close(combine(told, weights).log_theta(), exact)
    raw = combine([p.to(un.RawPosterior) for p in told], weights)
    close(raw.to(un.Posterior).log_theta(), exact, 1e-10)
    close(raw.log_theta(), exact, 1e-10)
    one = combine([told[0], told[1].to(un.RawPosterior)], weights)
    close(one.log_theta(), exact, 1e-10)


def test_a_lazy_posterior_is_combined_as_logits_and_the_impossible_stays_so():
    process = un.Masking(3, (2,))
    x = torch.tensor([[3, 3], [0, 3]])
    head, h = torch.nn.Linear(4, 3, dtype=F64), randn(2, 2, 4)
    lazy, ready = un.Posterior(h, process, x, 0.5, head=head), un.Posterior(randn(2, 2, 3, seed=1), process, x, 0.5)
    found = combine([lazy, ready], (1.5, -0.5))
    assert found.head is None and lazy.head is head
    close(found.log_theta(), combine([un.Posterior(head(h), process, x, 0.5), ready], (1.5, -0.5)).log_theta())
    never = un.Posterior(torch.tensor([0.0, 1.0, -1e30], dtype=F64).expand(2, 2, 3), process, x, 0.5)
    for weights in ((2.0, -1.0), (-1.0, 2.0), (0.1, 0.1)):
        assert float(combine([ready, never], weights).log_theta().exp()[0, :, 2].max()) == 0


def test_a_tilt_of_categories_by_brute_force():
    """h on the data of one coordinate: the law q h is a table, and under masking its posterior is the tilted one."""
    by = torch.tensor([0.4, -0.7, 0.2], dtype=F64)
    first = torch.tensor([[0, 1, 2]]).T.expand(3, 3).flatten()
    law = LAWS[0] * by[first].exp()
    masking, x = un.Masking(3, (2,)), torch.tensor([[3, 1], [3, 3]])
    tilted, exact = (un.oracles.table(masking, q / q.sum())(x, 0.5) for q in (LAWS[0], law))
    factor = torch.stack([by, torch.zeros(3, dtype=F64)]).expand(2, 2, 3)
    close(tilt(tilted, factor).log_theta()[:, 0], exact.log_theta()[:, 0])
    ratio = tilt(un.oracles.table(masking, LAWS[0], un.Ratio)(x, 0.5), factor)
    unknown = un.oracles.table(masking, LAWS[0], un.Ratio)(x, 0.5).log_ratio()
    close(ratio.log_ratio()[:, 0, :3], (unknown[:, 0, :3] + by))  # log h(MASK) = 0
    uniform, z = un.Uniform(3, (2,)), torch.tensor([[0, 1], [2, 2]])
    before, weights = un.oracles.table(uniform, LAWS[0], un.Rates)(z, 0.5), by.expand(2, 2, 3)
    moves = before._moves()
    close(tilt(before, weights).log_ratio()[moves], (before.log_ratio() + by - by[z].unsqueeze(-1))[moves])


def test_counts():
    """Poisson data stays Poisson under noise: geometric means of laws have geometric means of intensities."""
    x, t, means = torch.arange(6).reshape(6, 1), 0.4, (2.0, 5.0)
    for process in (un.Thinning((1,)), un.Thinning((1,), immigration=3.0)):
        kind = un.Remaining if process.pure_death else un.Intensity
        told = [un.Intensity(torch.full((6, 1, 2), m, dtype=F64).log(), process, x, t) for m in means]
        for weights in ((0.3, 0.7), (1.5, -0.5)):
            geometric = weights[0] * torch.tensor(2.0, dtype=F64).log() + weights[1] * torch.tensor(5.0, dtype=F64).log()
            close(combine([p.to(kind) for p in told], weights).value, geometric.expand_as(told[0].to(kind).value))
        ratios = [p.to(un.CountRatio) for p in told]
        close(combine(ratios, (2.0, -0.5)).value, 2 * ratios[0].value - 0.5 * ratios[1].value)
        if process.pure_death:
            found = combine([p.to(kind) for p in told], (0.5, 0.6)).to(un.CountRatio).value
            close(found, combine(ratios, (0.5, 0.6)).value, 1e-9)
            # e^(lambda x) of a Poisson law is another Poisson law: its intensity at t follows from alpha
        by = torch.tensor([-0.3, 0.3], dtype=F64).expand(6, 1, 2)
        up = tilt(told[0], by).to(un.CountRatio).value[..., 1]
        close(up, ratios[0].value[..., 1] + 0.3, 1e-9)
    with pytest.raises(TypeError, match="plain numbers"):
        combine(ratios, [torch.ones(6), torch.ones(6)])


def test_energies_add_as_functions():
    process, x, t = un.Gaussian((2,)), randn(4, 2), 0.5
    for weights in ((2.0, -1.0), (0.5, 0.9)):
        energies = [oracle(x, t) for oracle in two_normals(process, un.Energy)]
        scores = [oracle(x, t) for oracle in two_normals(process, un.Score)]
        found = combine(energies, weights)
        assert isinstance(found, un.Energy)
        close(found.to(un.Score).value, combine(scores, weights).value, 1e-10)
        both = combine([energies[0], scores[1]], weights)
        close(both.value, combine(scores, weights).value, 1e-10)
    push = torch.tensor([0.3, -0.2], dtype=F64)
    tilted = tilt(energies[0], lambda y, rows: y @ push)
    close(tilted.to(un.Score).value, scores[0].value + push, 1e-10)


def test_products_leaf_by_leaf():
    process = un.Product(y=un.Gaussian((2,)), c=un.Masking(3, (2,)))
    x, t = {"y": randn(2, 2), "c": torch.tensor([[3, 1], [3, 3]])}, torch.tensor([0.4, 0.7], dtype=F64)

    def told(i):
        y = un.oracles.normal(process.leaves["y"], MEANS[i], SPREADS[i], un.Clean)(x["y"], t)
        c = un.oracles.table(process.leaves["c"], LAWS[i])(x["c"], t)
        return un.predictions.ProductPrediction({"y": y, "c": c}, process, x, t)

    found = combine([told(0), told(1)], (2.0, -0.5))
    for name in ("y", "c"):
        close(found[name].value, combine([told(0)[name], told(1)[name]], (2.0, -0.5)).value)
    apart = combine([told(0), told(1)], {"y": (2.0, -0.5), "c": (0.5, 0.5)})
    close(apart["c"].value, combine([told(0)["c"], told(1)["c"]], (0.5, 0.5)).value)
    tilted = tilt(found, {"y": torch.ones(2, 2, dtype=F64)})
    close(tilted["y"].value, tilt(found["y"], torch.ones(2, 2, dtype=F64)).value)
    assert tilted["c"] is found["c"]
    moved = told(0).at({"y": torch.zeros(2, dtype=F64), "c": t})
    assert float(moved["y"].t.max()) == 0 and torch.equal(moved["c"].t, t) and torch.equal(told(0)["y"].t, t)
    assert torch.equal(told(0).with_value({"y": x["y"]})["y"].value, x["y"])


def test_refusals():
    process, x = un.Gaussian((2,)), randn(3, 2)
    one, other = (oracle(x, 0.5) for oracle in two_normals(process))
    cases = [
        (lambda: combine([], []), "at least one"),
        (lambda: combine([one, other], [1.0]), "1 weights for 2 predictions"),
        (lambda: combine([one, other.at(torch.full((3,), 0.6, dtype=F64))], (1, 1)), "different t"),
        (lambda: combine([one, two_normals(process)[1](x + 1, 0.5)], (1, 1)), "different x_t"),
        (lambda: combine([one, two_normals(un.Gaussian((2,)))[1](x, 0.5)], (1, 1)), "another process"),
        (lambda: combine([one, other], {"a": (1, 1)}), "by leaf"),
    ]
    for call, words in cases:
        with pytest.raises(ValueError, match=words):
            call()
