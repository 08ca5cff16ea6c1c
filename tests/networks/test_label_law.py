"""Classes of labels: as many as rows left out ask for, and a law that is near that of the rows."""

import pytest
import torch

import unnoise as un
from unnoise.networks import label_law
from unnoise.networks.label_law import fit_label_law, log_shares
from unnoise.networks.linear_law import LinearLaw, fit_linear_law

F64 = torch.float64
SIZES = (3, 3, 2)


def rows(n, seed=0, apart=True):
    """Kinds of their own places: the second label is the first in nine rows of ten; the third is a coin."""
    source = un.NoiseSource(seed, n)
    first, other = source.at("first").uniform().mul(3).long(), source.at("other").uniform().mul(3).long()
    same = source.at("same").uniform() < (0.85 if apart else 0.0)
    return torch.stack([first, torch.where(same, first, other), source.at("coin").uniform().mul(2).long()], 1)


def marks_of(labels):
    return torch.cat([torch.nn.functional.one_hot(own, size) for own, size in zip(labels.T, SIZES, strict=True)], 1).double()


def test_labels_that_hang_together_have_classes():
    """In nats a row of fresh rows, the law's own entropy is reached within 0.02."""
    law, fresh = fit_label_law(marks_of(rows(2000)), SIZES), marks_of(rows(20_000, 1))
    same = torch.tensor([0.85 + 0.05, 0.05, 0.05], dtype=F64)
    entropy = torch.tensor([3.0, 2.0], dtype=F64).log().sum() - (same * same.log()).sum()
    assert len(law.log_weights) >= 3
    assert float(-law.log_prob(fresh).mean()) == pytest.approx(float(entropy), abs=0.02)
    independent = float(-(fresh * log_shares(fresh, SIZES)).sum(1).mean())
    assert independent - float(entropy) > 0.6


def test_independent_labels_have_one_class():
    marks = marks_of(rows(2000, apart=False))
    law = fit_label_law(marks, SIZES)
    assert len(law.log_weights) == 1 and torch.equal(law.log_given[0], log_shares(marks, SIZES))


def test_few_rows_and_one_coordinate_have_one_class():
    assert len(fit_label_law(marks_of(rows(7)), SIZES).log_weights) == 1
    assert len(fit_label_law(torch.eye(3, dtype=F64).repeat(9, 1), (3,)).log_weights) == 1
    assert fit_label_law(torch.zeros(9, 0, dtype=F64), ()).log_given.shape == (1, 0)


def test_a_probability_of_every_label():
    """Also of one that no row of a class has."""
    law = fit_label_law(marks_of(rows(60)), SIZES)
    assert law.log_given.isfinite().all()
    for part in law.log_given.split(list(SIZES), 1):
        assert torch.allclose(part.exp().sum(1), torch.ones(len(part), dtype=F64))


def test_of_many_rows_some_are_used(monkeypatch):
    monkeypatch.setattr(label_law, "MOST_CELLS", 8 * 500)
    seen = []
    fitted = label_law._fitted
    monkeypatch.setattr(label_law, "_fitted", lambda marks, *rest: seen.append(len(marks)) or fitted(marks, *rest))
    fit_label_law(marks_of(rows(2000)), SIZES)
    assert max(seen) == 500


def test_saved_with_the_linear_law():
    labels = rows(400)
    process = un.Product(z=un.Gaussian((1,)), c=un.Masking(list(SIZES)))
    law = fit_linear_law(process, {"z": un.NoiseSource(3, 400).normal((1,)), "c": labels})
    again = LinearLaw.from_json(law.to_json())
    assert again.labels is not None and law.labels is not None
    assert torch.allclose(again.labels.log_given, law.labels.log_given, atol=1e-6)
    before = {name: part for name, part in law.to_json().items() if name != "labels"}  # as runs were saved earlier
    assert LinearLaw.from_json(before).labels is None


@pytest.mark.parametrize(("n", "together"), [(1000, True), (1001, False)])
def test_of_many_rows_the_law_leaves_labels_to_the_network(n, together):
    process = un.Product(z=un.Gaussian((1,)), c=un.Masking(list(SIZES)))
    law = fit_linear_law(process, {"z": un.NoiseSource(3, n).normal((1,)), "c": rows(n)})
    assert (law.labels is not None) == together
