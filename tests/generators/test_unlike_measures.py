"""Generators that cannot be compared term by term: jumps that lead elsewhere, rates that one side lacks, parts that are not
there, and leaves at times of their own."""

import math

import pytest
import torch

import unnoise as un
from unnoise.generators import Local
from unnoise.laws import LOG_ZERO

F64 = torch.float64
X = torch.zeros(2, 1, dtype=torch.int64)


class Listed(un.JumpKernel):
    """Rates to each of a few categories, with a rule that visits only where it leads."""

    def __init__(self, *rates):
        self.rate = torch.tensor(rates, dtype=F64)
        self.places = self.rate.nonzero()

    def log_rate(self, x, y):
        rate = self.rate[y[:, 0]]
        return torch.where(rate > 0, rate.clamp_min(1e-300).log(), LOG_ZERO)

    def nodes(self, x):
        return self.places.expand(len(x), -1, 1), torch.zeros(len(x), len(self.places), dtype=F64)


def by_hand(true, model):
    total = 0.0
    for r, m in zip(true, model, strict=True):
        total += m - r + (0.0 if r == 0 else math.inf if m == 0 else r * math.log(r / m))
    return total


@pytest.mark.parametrize(
    ("true", "model"),
    [
        ((0, 1, 0, 0), (0, 1, 5, 0)),  # the model jumps where the true process never does
        ((0, 1, 2, 0), (0, 3, 0.5, 0.25)),
        ((0, 1, 2, 0), (0, 1, 2, 0)),
        ((0, 1, 0, 0), (0, 0, 5, 0)),
        ((0, 1e-15, 0, 1), (0, 0, 0, 1)),  # rarely, but never under the model
    ],
)
def test_the_divergence_of_jump_measures_sums_over_all_that_either_reaches(true, model):
    expected = by_hand(true, model)
    space = un.Finite(4, (1,))
    found = space.divergence(Local(jumps=Listed(*true)), Local(jumps=Listed(*model)), X)
    assert found.tolist() == pytest.approx([expected] * 2, rel=1e-14, abs=1e-15)
    logs = [torch.tensor(r, dtype=F64).clamp_min(1e-300).log().where(torch.tensor(r) > 0, LOG_ZERO) for r in (true, model)]
    by_rates = [Local(log_rates=log.expand(2, 1, 4)) for log in logs]
    assert space.divergence(*by_rates, X).tolist() == pytest.approx([expected] * 2, rel=1e-14, abs=1e-15)


def test_a_drift_without_diffusion_keeps_its_precision():
    still, x = torch.zeros(2, 1, dtype=F64), torch.zeros(2, 1, dtype=F64)
    found = un.Euclidean((1,)).divergence(Local(still), Local(still + 1), x)
    assert found.dtype == F64 and found.tolist() == [math.inf] * 2


def test_a_coordinate_that_is_not_there_is_refused():
    """Its part of the generator would be 0, which is an answer to another question."""
    generator = un.Product(a=un.Gaussian((2,)), b=un.Uniform(3, (2,))).generator(0.5)
    for path, k, words in ((("c",), 0, r"no leaf \('c',\)"), (("a",), 2, "0 ... 1"), (("b",), -1, "0 ... 1")):
        with pytest.raises(ValueError, match=words):
            generator.coordinate(path, k)


def test_a_reversed_generator_with_a_time_for_each_leaf():
    """One time said of every leaf is that time; the leaves of a product are asked at their own."""
    process = un.Product(a=un.Gaussian((2,)), rest=un.Product(b=un.Uniform(3, (2,)), c=un.Masking(2, (2,))))
    x = {
        "a": torch.ones(2, 2, dtype=F64),
        "rest": {"b": torch.tensor([[0, 1], [2, 2]]), "c": torch.tensor([[2, 2], [0, 2]])},
    }
    x0 = {
        "a": torch.zeros(2, 2, dtype=F64),
        "rest": {"b": torch.tensor([[0, 0], [2, 1]]), "c": torch.tensor([[1, 0], [0, 1]])},
    }
    t, s = torch.tensor([0.3, 0.6], dtype=F64), torch.tensor([0.8, 0.2], dtype=F64)
    common = process.conditioned_local(x, x0, t)
    told = process.conditioned_local(x, x0, {"a": t, "rest": {"b": t, "c": t}})
    for leaf in ("b", "c"):
        assert torch.equal(told["rest"][leaf].log_rates, common["rest"][leaf].log_rates)
    mixed = process.conditioned_local(x, x0, {"a": s, "rest": t})
    torch.testing.assert_close(mixed["rest"]["b"].log_rates, common["rest"]["b"].log_rates)
    torch.testing.assert_close(mixed["a"].drift, process.conditioned_local(x, x0, s)["a"].drift)
