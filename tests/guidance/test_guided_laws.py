"""Laws of whole guided runs, computed: at weight 1 they tend to Bayes' rule, and what Taylor's first order leaves of it."""

from math import log2

import pytest
import torch

import unnoise as un
from unnoise.samplers.proposals import log_density

SIZE, LENGTH = 3, 2
F64 = torch.float64


def law_of_run(model, states, times):
    """Log-probabilities of all states at the last time, by the model's own steps from the prior."""
    process, count = model.process, len(states)
    law = process.prior(count, F64).log_prob(states).double()
    many, each = states.repeat_interleave(count, 0), states.repeat(count, *[1] * (states.ndim - 1))
    for t, s in zip(times[:-1], times[1:], strict=True):
        step = model(many, torch.full((len(many),), float(t), dtype=F64)).step(s.clone())
        moves = log_density(process, step, each, float(s)).reshape(count, count)
        law = (law.unsqueeze(1) + moves).logsumexp(0)
    return law


def density_of_run(model, line, times):
    """Likewise of numbers, on a line of places."""
    density = model.process.prior(len(line), F64).log_prob(line).exp()
    for t, s in zip(times[:-1], times[1:], strict=True):
        step = model(line, torch.full((len(line),), float(t), dtype=F64)).step(s.clone())
        density = (line[1] - line[0]) * density @ torch.distributions.Normal(step.mean, step.std).log_prob(line.T).exp()
    return density


def even(model, steps, end=0.0):
    return torch.linspace(model.latest, end, steps + 1, dtype=F64)


def two_classes(process, strength=1.0):
    """An enumerable p(x, y): y leans on both coordinates and on whether they agree."""
    numbers = torch.Generator().manual_seed(0)
    p = torch.rand(SIZE**LENGTH, generator=numbers).double().square() + 0.05
    each = torch.randn(LENGTH, SIZE, generator=numbers).double()
    x = process.space.states()
    agree = (x[:, 0] == x[:, 1]).double() - 0.4
    odds = strength * (each[0, x[:, 0]] + each[1, x[:, 1]] + 0.5 * agree)
    told = torch.sigmoid(torch.stack([odds, -odds]))
    joint = told * p / p.sum()
    share = joint.sum(1)
    models = [un.oracles.table(process, law / law.sum()) for law in joint]
    return models[0], un.oracles.table(process, joint.sum(0)), share[0]


def exact_classifier(first, whole, share):
    def classifier(x, t):
        return share.log() + first.log_marginal(x, t) - whole.log_marginal(x, t)

    return classifier


def apart(log_law, wanted):
    return float((log_law.exp() - wanted).abs().sum() / 2)


@pytest.mark.parametrize("noise", [un.Masking, un.Uniform])
def test_categories_tend_to_bayes(noise):
    """Total variation at most 0.01 at 128 steps, and of the order 1; unguided it stays."""
    process = noise(SIZE, (LENGTH,))
    first, whole, share = two_classes(process)
    guided = un.guidance.ClassifierGuided(whole, exact_classifier(first, whole, share))
    states = process.state_space.states()
    clean = process.space.states()
    wanted = torch.zeros(len(states), dtype=F64)
    place = (states.unsqueeze(1) == clean).all(-1).double()
    wanted = place @ first.log_prob(clean).exp()
    gaps = [apart(law_of_run(guided, states, even(guided, n)), wanted) for n in (32, 64, 128)]
    assert gaps[-1] < 0.01 and log2(gaps[1] / gaps[2]) == pytest.approx(1, abs=0.25)
    assert apart(law_of_run(whole, states, even(whole, 64)), wanted) > 0.1


def test_mixtures_with_classes_tend_to_bayes():
    process = un.Gaussian((1,))
    means, spread = torch.tensor([[-1.0], [0.3], [1.5]], dtype=F64), 0.1 * torch.ones(3, 1, 1, dtype=F64)
    whole = un.oracles.mixture(process, torch.tensor([0.3, 0.4, 0.3], dtype=F64), means, spread)
    first = un.oracles.mixture(process, torch.tensor([0.5, 0.5], dtype=F64), means[[0, 2]], spread[:2])
    guided = un.guidance.ClassifierGuided(whole, exact_classifier(first, whole, torch.tensor(0.6, dtype=F64)))
    line, end = torch.linspace(-6, 6, 801, dtype=F64).unsqueeze(1), 0.1
    wanted = first.log_marginal(line, torch.full((801,), end, dtype=F64)).exp()

    def gap(model, n):
        return float((density_of_run(model, line, even(model, n, end)) - wanted).abs().sum() * (line[1] - line[0]) / 2)

    gaps = [gap(guided, n) for n in (32, 64, 128)]
    assert gaps[-1] < 0.01 and log2(gaps[1] / gaps[2]) == pytest.approx(1, abs=0.25)
    assert gap(whole, 64) > 0.1


def trained_classifier(process, first, whole, share, **options):
    """On 20,000 draws of p(x, y)."""
    clean = process.space.states()
    both = torch.stack([share * first.log_prob(clean).exp(), whole.log_prob(clean).exp()], 1)
    both[:, 1] -= both[:, 0]
    which = torch.multinomial(both.flatten(), 20_000, True, generator=torch.Generator().manual_seed(1))
    classifier = un.guidance.NoisyClassifier(process, 2, width=64, layers=2)
    return un.guidance.fit_classifier(
        process, clean[which // 2], which % 2, steps=800, batch=256, seed=0, classifier=classifier, **options
    ).of(0)


@pytest.mark.conformance
@pytest.mark.parametrize("noise", [un.Masking, un.Uniform])
def test_taylor_is_near_what_is_exact(noise):
    """By one gradient of a classifier that was trained to be straight, against all single changes of it: total variation at
    most 0.02 where guidance moves the law by 0.13 and more; of a classifier that was not, more.
    """
    process = noise(SIZE, (LENGTH,))
    first, whole, share = two_classes(process)
    states, times = process.state_space.states(), torch.linspace(0.999, 0, 33, dtype=F64)

    def law(how, classifier):
        guided = un.guidance.ClassifierGuided(whole, lambda x, t: classifier(x, t).double(), 1.0, how)
        return law_of_run(guided, states, times).nan_to_num(-torch.inf)

    classifier = trained_classifier(process, first, whole, share)
    exact, taylor = law("exact", classifier), law("taylor", classifier)
    bent = trained_classifier(process, first, whole, share, straight=0.0)
    plain = law_of_run(whole, states, times).nan_to_num(-torch.inf)
    assert apart(taylor, exact.exp()) < 0.02 < apart(law("taylor", bent), law("exact", bent).exp())
    assert apart(plain, exact.exp()) > 0.1


def test_taylor_asks_for_a_thousandth_of_the_rows():
    """At 27 letters and length 64; either way the model is called once in each step."""
    process, counts = un.Masking(27, (64,)), {"model": 0, "classifier": 0}

    class Network(torch.nn.Module):
        def forward(self, x, t):
            counts["model"] += 1
            return torch.zeros(*x.shape, 27)

    def classifier(x, t):
        counts["classifier"] += len(x)
        return (x.float() if x.is_floating_point() else torch.nn.functional.one_hot(x, 28).float()).flatten(1).sum(1)

    rows = {}
    for how in ("exact", "taylor"):
        guided = un.guidance.ClassifierGuided(un.Denoiser(Network(), process), classifier, 1.0, how)
        counts |= {"model": 0, "classifier": 0}
        un.sample(guided, n=2, steps=2, seed=0, sampler=un.samplers.Ancestral())
        assert counts["model"] == 2
        rows[how] = counts["classifier"]
    assert rows == {"exact": 2 * 2 * 64 * 28, "taylor": 2 * 2}
