"""What a network starts from: the exact denoiser of the linear law, against linear algebra row by row and the oracles."""

from dataclasses import replace
from itertools import product

import pytest
import torch

import unnoise as un
from unnoise.networks.label_law import LabelLaw
from unnoise.networks.linear_law import LinearLaw, can_fit, fit_linear_law
from unnoise.networks.start import LinearStart

F64 = torch.float64


def covariance(d, seed=0):
    g = torch.Generator().manual_seed(seed)
    root = torch.randn(d, d, dtype=F64, generator=g)
    return root @ root.mT + 0.1 * torch.eye(d, dtype=F64)


def law_of(sizes=(2, 3), d=3, seed=1):
    """A law whose effects have mean 0 over the labels of each coordinate."""
    g = torch.Generator().manual_seed(seed)
    shares = [torch.rand(size, dtype=F64, generator=g) + 0.2 for size in sizes]
    shares = [share / share.sum() for share in shares]
    effects = [torch.randn(size, d, dtype=F64, generator=g) for size in sizes]
    effects = [own - share @ own for own, share in zip(effects, shares, strict=True)]
    mean = torch.randn(d, dtype=F64, generator=g)
    joined = (
        (torch.cat(effects), torch.cat(shares).log()) if sizes else (torch.zeros(0, d, dtype=F64), torch.zeros(0, dtype=F64))
    )
    return LinearLaw(mean, covariance(d), *joined, tuple(sizes), torch.ones(len(sizes), dtype=F64))


@pytest.mark.parametrize("schedule", [un.schedules.Cosine(), un.schedules.Linear(), un.schedules.LinearBeta()])
def test_gaussian_velocity(schedule):
    """Without labels it is the Gaussian oracle, at all times, also where alpha^2 + sigma^2 is not 1."""
    law, process = law_of(()), un.Gaussian((3,), schedule)
    x = 2 * un.NoiseSource(0, 300).normal((3,))
    t = torch.linspace(1e-3, 1 - 1e-3, 300, dtype=F64)
    exact = un.oracles.normal(process, law.mean, law.covariance)(x, t).value
    assert torch.allclose(LinearStart(process, law)(torch.zeros(300, 3, dtype=F64), x, t), exact, atol=1e-9)


def test_times_of_their_own():
    """Every leaf at its own time, one of them at 0, all labels revealed: row by row from the joint covariance."""
    law, n = law_of(), 60
    process = un.Product(a=un.Gaussian((1,)), b=un.Gaussian((2,)), c=un.Masking([2, 3]))
    source = un.NoiseSource(0, n)
    labels = torch.stack([source.at("one").uniform().mul(2).long(), source.at("two").uniform().mul(3).long()], 1)
    x = {"a": source.at("a").normal((1,)), "b": source.at("b").normal((2,)), "c": labels}
    t = {"a": source.at("ta").uniform(), "b": source.at("tb").uniform(), "c": torch.zeros(n, dtype=F64)}
    t["a"][: n // 3] = 0
    nothing = {"a": torch.zeros(n, 1, dtype=F64), "b": torch.zeros(n, 2, dtype=F64), "c": torch.zeros(n, 2, 3, dtype=F64)}
    found = LinearStart(process, law)(nothing, x, t)
    schedule = process.leaves["a"].schedule
    for i in range(n):
        time = torch.stack([t["a"][i], t["b"][i], t["b"][i]])
        alpha, sigma = schedule.alpha(time), schedule.sigma(time)
        mean = law.mean + law.effects[labels[i, 0]] + law.effects[2 + labels[i, 1]]
        noised = alpha[:, None] * law.covariance * alpha + torch.diag(sigma.square())
        solved = torch.linalg.solve(noised, torch.cat([x["a"][i], x["b"][i]]) - alpha * mean)
        velocity = alpha * sigma * solved - sigma * (mean + law.covariance @ (alpha * solved))
        assert torch.allclose(torch.cat([found["a"][i], found["b"][i]]), velocity, atol=1e-10)


def classes_of(sizes, count=3, seed=4):
    g = torch.Generator().manual_seed(seed)
    given = [torch.rand(count, size, dtype=F64, generator=g).pow(3).log().log_softmax(1) for size in sizes]
    return LabelLaw(torch.rand(count, dtype=F64, generator=g).log_softmax(0), torch.cat(given, 1))


def test_labels_given_labels():
    """Any masked ones given any revealed ones, by summing over all tables of labels."""
    sizes = (2, 3, 2)
    law = replace(law_of(sizes, 0), covariance=torch.zeros(0, 0, dtype=F64), labels=classes_of(sizes))
    process = un.Masking(list(sizes))
    states = torch.tensor(list(product(*(range(size) for size in sizes))))
    marks = torch.cat(
        [torch.nn.functional.one_hot(own, size) for own, size in zip(states.T, sizes, strict=True)], 1
    ).double()
    joint = law.labels.log_prob(marks).exp()
    assert torch.allclose(joint.sum(), torch.ones((), dtype=F64))
    for hidden in ([0], [1], [0, 2], [0, 1, 2]):
        x = states.clone()
        x[:, hidden] = max(sizes)
        found = LinearStart(process, law)(torch.zeros(len(x), 3, 3, dtype=F64), x, torch.full((len(x),), 0.5, dtype=F64))
        shown = [j for j in range(3) if j not in hidden]
        same = (states[:, None, shown] == states[None, :, shown]).all(-1)
        for j in hidden:
            exact = torch.stack([(same * joint * (states[:, j] == a)).sum(1) for a in range(sizes[j])], 1)
            assert torch.allclose(found[:, j, : sizes[j]].softmax(-1), exact / exact.sum(1, keepdim=True), atol=1e-12)
            if hidden == [j]:
                others = law.labels.log_given_others(marks, sizes).split(list(sizes), 1)[j]
                assert torch.allclose(others.exp(), exact / exact.sum(1, keepdim=True), atol=1e-12)


@pytest.mark.parametrize("sure", [1.0, 0.3])
@pytest.mark.parametrize("classes", [False, True])
def test_label_given_numbers(sure, classes):
    """The logits of a masked label of two, another one revealed, are Bayes' rule, with a power of the evidence."""
    sizes = (4, 2)
    law, n = replace(law_of(sizes), sure=torch.tensor([1.0, sure], dtype=F64)), 80
    law = replace(law, labels=classes_of(sizes) if classes else None)
    process, source = un.Product(z=un.Gaussian((3,)), c=un.Masking(list(sizes))), un.NoiseSource(3, n)
    known = source.at("known").uniform().mul(sizes[0]).long()
    x = {"z": source.at("z").normal((3,)), "c": torch.stack([known, torch.full((n,), max(sizes))], 1)}
    t = 0.02 + 0.96 * source.at("t").uniform()
    nothing = {"z": torch.zeros(n, 3, dtype=F64), "c": torch.zeros(n, 2, max(sizes), dtype=F64)}
    found = LinearStart(process, law)(nothing, x, t)["c"][:, 1, : sizes[1]].log_softmax(-1)
    schedule = process.leaves["z"].schedule
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    noised = alpha[:, None, None] ** 2 * law.covariance + sigma[:, None, None] ** 2 * torch.eye(3, dtype=F64)
    each = []
    for a in range(sizes[1]):
        mean = alpha[:, None] * (law.mean + law.effects[known] + law.effects[sizes[0] + a])
        normal = torch.distributions.MultivariateNormal(mean, noised)
        marks = torch.nn.functional.one_hot(torch.stack([known, torch.full((n,), sizes[0] + a)], 1), sum(sizes)).sum(1)
        each.append(law.label_law().log_prob(marks.double()) + sure * normal.log_prob(x["z"]))
    assert torch.allclose(found, torch.stack(each, 1).log_softmax(-1), atol=1e-8)


def test_answer_has_variance_one():
    """v - v_0 = L^-T f: an answer of white noise has the covariance of v given x_t."""
    law, process = law_of(()), un.Gaussian((3,))
    start, x, t = LinearStart(process, law), torch.randn(1, 3, dtype=F64), torch.full((1,), 0.4, dtype=F64)
    none = start(torch.zeros(1, 3, dtype=F64), x, t)
    root = torch.cat([start(row[None], x, t) - none for row in torch.eye(3, dtype=F64)]).T
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    noised = alpha**2 * law.covariance + sigma**2 * torch.eye(3, dtype=F64)
    clean = law.covariance - alpha**2 * law.covariance @ torch.linalg.solve(noised, law.covariance)
    assert torch.allclose(root @ root.T, clean / sigma**2, atol=1e-10)


def test_fit_finds_the_law():
    """Effects and covariance of drawn rows, within five standard errors."""
    truth, n = law_of(), 20_000
    process, source = un.Product(z=un.Gaussian((3,)), c=un.Masking([2, 3])), un.NoiseSource(0, n)
    labels = torch.stack(
        [torch.searchsorted(share.exp().cumsum(0), source.at(j).uniform()) for j, share in enumerate(truth.share_parts())], 1
    ).clamp_max(torch.tensor([1, 2]))
    noise = source.at("e").normal((3,)) @ torch.linalg.cholesky(truth.covariance).mT
    z = truth.mean + truth.effects[labels[:, 0]] + truth.effects[2 + labels[:, 1]] + noise
    law = fit_linear_law(process, {"z": z, "c": labels})
    error = 5 * float(truth.covariance.diagonal().max().sqrt()) / (0.1 * n) ** 0.5
    assert (law.effects - truth.effects).abs().max() < error and (law.mean - truth.mean).abs().max() < error
    assert (law.covariance - truth.covariance).abs().max() < 5 * float(truth.covariance.max()) * (2 / n) ** 0.5 + 0.01
    again = LinearLaw.from_json(law.to_json())
    assert torch.allclose(again.covariance, law.covariance, rtol=1e-6) and again.sizes == law.sizes


def test_few_rows_keep_the_spread():
    """Labels with as many values as rows: what they explain by chance is left out, and the total covariance stays."""
    source = un.NoiseSource(0, 40)
    process = un.Product(z=un.Gaussian((2,)), c=un.Masking([20]))
    z, labels = source.at("z").normal((2,)), source.at("c").uniform((1,)).mul(20).long()
    law = fit_linear_law(process, {"z": z, "c": labels})
    total = law.covariance + law.spreads().sum(0)
    assert torch.allclose(total.diagonal(), z.var(0, correction=0), rtol=0.1)
    assert law.spreads().sum(0).trace() < 0.2 * total.trace()


def test_sure_only_where_rows_left_out_agree():
    """A label that follows the law is told by the numbers; one that follows them otherwise is not."""
    n, source = 2000, un.NoiseSource(0, 2000)
    z, coin = source.at("z").normal((2,)), source.at("coin").uniform()
    by_law = (coin < torch.sigmoid(2 * z[:, 0])).long()
    unlike = (z[:, 1].abs() < 0.7).long()  # both of its means are 0
    process = un.Product(z=un.Gaussian((2,)), c=un.Masking([2, 2]))
    sure = fit_linear_law(process, {"z": z, "c": torch.stack([by_law, unlike], 1)}).sure
    assert sure[0] >= 0.7 and len(z) == n
    far = z * 0.3 + 3.0 * by_law[:, None] * (source.at("far").uniform()[:, None] < 0.9)
    law = fit_linear_law(process, {"z": far, "c": torch.stack([by_law, unlike], 1)})
    assert law.sure[0] < 0.7  # a tenth of the rows are far where the other label is


def test_what_cannot_start():
    assert can_fit(un.Product(a=un.Gaussian((2,)), c=un.Masking([2, 3])))
    assert not can_fit(un.Uniform(5, (3,))) and not can_fit(un.Gaussian((500,)))
    with pytest.raises(ValueError, match="fit it to this data"):
        LinearStart(un.Gaussian((4,)), law_of(()))
    with pytest.raises(ValueError, match="train the run again"):
        LinearLaw.from_json({"mean": [0.0]})
