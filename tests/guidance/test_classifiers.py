"""Classifiers that are trained on noisy states, or see data through a posterior, against Bayes' rule."""

import pytest
import torch

import unnoise as un
from unnoise.guidance import NoisyClassifier, ThroughPosterior, fit_classifier

F64 = torch.float64


def test_a_trained_classifier_is_that_of_bayes():
    """Two normal laws: p(y | x_t) in closed form, to 0.06 nats in the mean over states."""
    process = un.Gaussian((1,), un.schedules.Cosine())
    numbers = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (4000,), generator=numbers)
    x0 = (2 * labels - 1).unsqueeze(1) + 0.5 * torch.randn(4000, 1, generator=numbers)
    classifier = fit_classifier(
        process, x0, labels, steps=300, batch=256, seed=0, classifier=NoisyClassifier(process, 2, 48, 2)
    )
    t = torch.linspace(0.05, 0.95, 40)
    x_t = process.marginal(x0[:40], t).draw(un.NoiseSource(1, 40))
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    odds = 2 * alpha * x_t[:, 0] / (0.25 * alpha**2 + sigma**2)
    wanted = torch.nn.functional.logsigmoid(odds)
    gap = (classifier.of(1)(x_t, t) - wanted) * torch.sigmoid(odds)
    assert float(gap.abs().mean()) < 0.06
    assert float((torch.tensor(0.5).log() - wanted).abs().mean()) > 0.2  # one that knows nothing
    assert 0 < classifier.held_out < torch.tensor(2.0).log()


def test_labels_that_are_shuffled_teach_nothing():
    process = un.Masking(3, (2,))
    x0, labels = torch.randint(3, (500, 2), generator=torch.Generator().manual_seed(0)), torch.arange(500) % 2
    classifier = fit_classifier(
        process, x0, labels, steps=20, batch=64, seed=0, classifier=NoisyClassifier(process, 2, 16, 1)
    )
    assert classifier.held_out == pytest.approx(float(torch.tensor(2.0).log()), abs=0.05)


def test_every_kind_of_leaf_is_seen():
    process = un.Product(x=un.Gaussian((2,)), c=un.Masking(3, ()), k=un.Thinning((1,)), w=un.WrappedNormal((1,)))
    n, numbers = 64, torch.Generator().manual_seed(0)
    x0 = {
        "x": torch.randn(n, 2, generator=numbers),
        "c": torch.randint(3, (n,), generator=numbers),
        "k": torch.randint(5, (n, 1), generator=numbers),
        "w": torch.rand(n, 1, generator=numbers),
    }
    classifier = fit_classifier(process, x0, x0["c"], steps=5, batch=16, seed=0)
    t = torch.rand(n, generator=numbers)
    own = dict.fromkeys(process.leaves, t)
    assert torch.equal(classifier(x0, t), classifier(x0, own)) and classifier(x0, t).shape == (n, 3)
    model = un.oracles.conditional_gaussian(
        un.Product(x=un.Gaussian((2,)), c=un.Masking(3, ())),
        torch.ones(3, dtype=F64) / 3, torch.randn(3, 2, generator=numbers).double(), torch.eye(2).double().expand(3, 2, 2),
    )  # fmt: skip
    two = fit_classifier(model.process, {name: x0[name] for name in ("x", "c")}, x0["c"], steps=5, batch=16, seed=0)
    guided = un.guidance.ClassifierGuided(model, two.of(1), 2.0, "taylor")
    x, _ = un.sample(guided, n=4, steps=4, seed=0, dtype=F64)
    assert bool(x["x"].isfinite().all())


def test_a_classifier_of_data_seen_through_the_posterior():
    """Exact for a log-linear one on a normal law; for categories that are independent within 4 standard errors."""
    process = un.Gaussian((2,), un.schedules.Cosine())
    spread = torch.tensor([[1.0, 0.6], [0.6, 2.0]], dtype=F64)
    model, slope = un.oracles.normal(process, torch.tensor([0.5, -1.0], dtype=F64), spread), torch.tensor([1, -0.5]).double()
    tilted = un.oracles.normal(process, torch.tensor([0.5, -1.0], dtype=F64) + spread @ slope, spread)
    guided = un.guidance.ClassifierGuided(model, ThroughPosterior(model, lambda x0: x0 @ slope, 1))
    x, t = torch.randn(5, 2, generator=torch.Generator().manual_seed(0)).double(), torch.linspace(0.2, 0.8, 5).double()
    ours, theirs = (d(x, t).to(un.Score).value for d in (guided, tilted))
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)

    masking, share = un.Masking(3, (2,)), torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    words = un.oracles.table(masking, (share.unsqueeze(1) * share).flatten())
    draws = 1000
    seen = ThroughPosterior(words, lambda x0: torch.where((x0 == 0).all(1), -0.1, -2.0).double(), draws)
    told = seen(torch.tensor([[3, 3], [0, 3], [1, 3]]), torch.full((3,), 0.5).double()).exp()
    low, high = torch.tensor([-2.0, -0.1]).double().exp()
    for value, p in zip(told, (0.25, 0.5, 0.0), strict=True):
        assert abs(float(value - (low + p * (high - low)))) <= 4 * float(high - low) * (p * (1 - p) / draws) ** 0.5 + 1e-12


def test_misuse_is_named():
    process = un.Masking(3, (2,))
    x0 = torch.zeros(10, 2, dtype=torch.int64)
    with pytest.raises(ValueError, match="an integer for each row"):
        fit_classifier(process, x0, torch.zeros(9, dtype=torch.int64))
    with pytest.raises(ValueError, match="at least two rows"):
        fit_classifier(process, x0[:1], torch.zeros(1, dtype=torch.int64))
    with pytest.raises(ValueError, match="knows 0, ..., 1"):
        NoisyClassifier(process, 2, 8, 1).of(2)
    with pytest.raises(ValueError, match="draws = 0"):
        ThroughPosterior(un.oracles.table(process, torch.ones(9).double() / 9), lambda x0: x0, 0)
    nested = un.Product(a=un.Product(b=process))
    with pytest.raises(ValueError, match="products within products"):
        NoisyClassifier(nested, 2)
