"""Classifier guidance at weight 1 is Bayes' rule: in closed form, state by state."""

import pytest
import torch

import unnoise as un

SIZE, LENGTH = 3, 2


def joint(process, seed=0):
    """Two classes of an enumerable law: (models given each class, model of all, share of the first)."""
    p = torch.rand(2, SIZE**LENGTH, generator=torch.Generator().manual_seed(seed)).double().square() + 0.01
    p = p / p.sum()
    share = p.sum(1)
    return [un.oracles.table(process, q / q.sum()) for q in p], un.oracles.table(process, p.sum(0)), share


def first_class(models, whole, share):
    """log p(first | x_t) of the exact marginals."""

    def classifier(x, t):
        return share[0].log() + models[0].log_marginal(x, t) - whole.log_marginal(x, t)

    return classifier


@pytest.mark.parametrize("process", [un.Masking(SIZE, (LENGTH,)), un.Uniform(SIZE, (LENGTH,))], ids=["masking", "uniform"])
def test_categories_given_a_class_have_its_rates(process):
    models, whole, share = joint(process)
    guided = un.guidance.ClassifierGuided(whole, first_class(models, whole, share))
    x = process.state_space.states()
    t = torch.full((len(x),), 0.4).double()
    ours, theirs = guided(x, t).to(un.Rates).value, models[0](x, t).to(un.Rates).value
    movable = (theirs > -1e20) & process.movable(x).unsqueeze(-1)
    other = torch.arange(theirs.shape[-1]) != x.unsqueeze(-1)
    assert (ours - theirs)[movable & other].abs().max() < 1e-9
    plain = whole(x, t).to(un.Rates).value
    assert (plain - theirs)[movable & other].abs().max() > 0.05


def test_samples_given_a_class_have_its_law():
    """20,000 samples of masked words, one reveal at a time: total variation under 0.02, where chance is below 0.012."""
    process = un.Masking(SIZE, (LENGTH,))
    models, whole, share = joint(process)
    guided = un.guidance.ClassifierGuided(whole, first_class(models, whole, share))
    x, _ = un.sample(guided, n=20_000, sampler=un.samplers.FirstHitting(), seed=0)
    found = torch.bincount((x * torch.tensor([SIZE, 1])).sum(1), minlength=SIZE**LENGTH) / 20_000
    wanted = models[0].log_prob(process.space.states()).exp()
    assert float((found - wanted).abs().sum() / 2) < 0.02
    assert float((whole.log_prob(process.space.states()).exp() - wanted).abs().sum() / 2) > 0.1


def test_taylor_is_the_first_order_of_exact():
    """A classifier that is linear in one-hot vectors has no second order."""
    process = un.Masking(SIZE, (LENGTH,))
    _, whole, _ = joint(process)
    slope = torch.randn(LENGTH, SIZE + 1, generator=torch.Generator().manual_seed(1)).double()

    def linear(x, t):
        one_hot = x if x.dtype.is_floating_point else torch.nn.functional.one_hot(x, SIZE + 1).double()
        return (one_hot * slope).flatten(1).sum(1)

    x = process.state_space.states()
    t = torch.full((len(x),), 0.4).double()
    laws = [
        un.guidance.ClassifierGuided(whole, linear, 1.5, how)(x, t).logits.log_softmax(-1) for how in ("exact", "taylor")
    ]
    masked = x == process.mask
    assert (laws[0] - laws[1])[masked].abs().max() < 1e-12
    wanted = (whole(x, t).logits.log_softmax(-1) + 1.5 * slope[:, :SIZE]).log_softmax(-1)
    assert (laws[0] - wanted)[masked].abs().max() < 1e-12


def test_numbers_given_a_class_have_its_score():
    process = un.Gaussian((2,))
    mean, spread = torch.tensor([[-1.0, 0.0], [1.0, 2.0]]).double(), torch.eye(2).double().expand(2, 2, 2) * 0.3
    whole = un.oracles.mixture(process, torch.tensor([0.3, 0.7]).double(), mean, spread)
    first = un.oracles.mixture(process, torch.ones(1).double(), mean[:1], spread[:1])

    def classifier(x, t):
        return first.log_marginal(x, t) - whole.log_marginal(x, t)

    x, t = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)).double(), torch.linspace(0.1, 0.9, 6).double()
    ours = un.guidance.ClassifierGuided(whole, classifier)(x, t).to(un.Score).value
    assert (ours - first(x, t).to(un.Score).value).abs().max() < 1e-8


def test_counts_given_a_class_have_its_rates():
    process = un.Thinning((1,))
    rates = torch.tensor([[2.0], [7.0]]).double()
    whole = un.oracles.poisson_mixture(process, torch.tensor([0.5, 0.5]).double(), rates)
    first = un.oracles.poisson_mixture(process, torch.ones(1).double(), rates[:1])

    def classifier(x, t):
        return first.log_marginal(x, t) - whole.log_marginal(x, t)

    x, t = torch.arange(6).unsqueeze(1), torch.full((6,), 0.5).double()
    ours, theirs = (d(x, t).value for d in (un.guidance.ClassifierGuided(whole, classifier), first))
    assert (ours - theirs).abs().max() < 1e-8 < (whole(x, t).value - theirs).abs().max()


def test_bad_classifiers_are_refused():
    process = un.Gaussian((2,))
    model = un.oracles.mixture(process, torch.ones(1).double(), torch.zeros(1, 2).double(), torch.eye(2).double()[None])
    with pytest.raises(ValueError, match="choose 'exact' or 'taylor'"):
        un.guidance.ClassifierGuided(model, lambda x, t: x[:, 0], how="quick")
    with pytest.raises(ValueError, match="weight = nan: it must be a number"):
        un.guidance.ClassifierGuided(model, lambda x, t: x[:, 0], weight=float("nan"))
    with pytest.raises(ValueError, match=r"expected \(3,\)"):
        un.guidance.ClassifierGuided(model, lambda x, t: x)(torch.zeros(3, 2).double(), torch.full((3,), 0.5).double())
