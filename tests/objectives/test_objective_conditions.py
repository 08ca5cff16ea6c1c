"""Conditions of bounds, objectives and likelihoods: cut and repeated with their rows, and shared ones never.

The network looks its logits up in a table that all rows share, with exactly as many rows as the batch has by accident, and
its own label in a nested dict.  The answers are those of a network that is given the logits themselves.
"""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.likelihoods.paths import PathWeighted
from unnoise.schedules import Learned

ROWS, SIZE = 4, 2
TABLE = torch.tensor([[0.3, -0.2], [1.0, 0.0], [-0.5, 0.4], [0.0, 0.9]], dtype=torch.float64)
LABELS = torch.tensor([2, 0, 3, 1])
WORDS = torch.tensor([[0, 1], [1, 1], [0, 0], [1, 0]])
FLOW = un.ProbabilityFlow(rtol=1e-2, atol=1e-2, cutoff=0.3)
NUMBERS = torch.linspace(-1, 1, ROWS, dtype=torch.float64).unsqueeze(1)


class Looking(nn.Module):
    def forward(self, x, t, table, side):
        return self.answer(x, table[side["label"]])

    def answer(self, x, found):
        return found.unsqueeze(1).expand(-1, x.shape[1], -1)


class Given(Looking):
    def forward(self, x, t, found):
        return self.answer(x, found)


class LookingAtNumbers(Looking):
    def answer(self, x, found):
        return 0.3 * x + found[:, :1]


class GivenNumbers(LookingAtNumbers):
    def forward(self, x, t, found):
        return self.answer(x, found)


def conditions(labels=LABELS):
    return {"table": un.Shared(TABLE), "side": {"label": labels}}, {"found": TABLE[labels]}


def words(process=None):
    process = process or un.Masking(SIZE, (2,))
    return un.Denoiser(Looking(), process), un.Denoiser(Given(), process)


def numbers(process=None):
    process = process or un.Gaussian((1,))
    return un.Denoiser(LookingAtNumbers(), process), un.Denoiser(GivenNumbers(), process)


CASES = {"words": (words, WORDS), "numbers": (numbers, NUMBERS)}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "options", [{"seed": 3}, {"exact": True}, {"seed": 3, "times": un.Stratified(3)}], ids=["drawn", "exact", "stratified"]
)
def test_bounds(name, options):
    (looking, plain), x0 = CASES[name][0](), CASES[name][1]
    shared, own = conditions()
    ours = un.bound(looking, x0, condition=shared, **options).total
    assert torch.equal(ours, un.bound(plain, x0, condition=own, **options).total)
    other = un.bound(looking, x0, condition=conditions(LABELS.roll(1))[0], **options).total
    assert not torch.allclose(ours, other)  # the rows have their own


def test_bounds_of_chains():
    process = un.Chain(un.Uniform(SIZE, (2,)), 4)
    (looking, plain), (shared, own) = words(process), conditions()
    for options in ({"exact": True}, {"seed": 1, "times": un.Stratified()}):
        ours, told = (un.bound(d, WORDS, condition=c, **options).total for d, c in ((looking, shared), (plain, own)))
        assert torch.equal(ours, told)


@pytest.mark.parametrize("name", CASES)
def test_objectives(name):
    (looking, plain), x0 = CASES[name][0](), CASES[name][1]
    shared, own = conditions()
    for weighting in (None, un.weightings.Balanced(), un.weightings.CrossEntropy()):
        ours, told = (
            un.Objective(d, weighting)(x0, un.NoiseSource(5, ROWS), c).loss for d, c in ((looking, shared), (plain, own))
        )
        assert torch.equal(ours, told)


def test_observed_leaves():
    class Pair(nn.Module):
        def forward(self, x, t, table, side):
            found = table[side["label"]]
            return {"x": 0.3 * x["x"] + found[:, :1], "c": found.unsqueeze(1).expand(-1, 2, -1)}

    process = un.Product(x=un.Gaussian((1,)), c=un.Masking(SIZE, (2,)))
    objective = un.objectives.Observed(un.Denoiser(Pair(), process), share=0.5)
    x0, noise = {"x": NUMBERS, "c": WORDS}, un.NoiseSource(5, ROWS)
    whole = objective(x0, noise, conditions()[0]).loss
    others = objective(x0, noise, conditions(LABELS.roll(1))[0]).loss
    assert whole.shape == (ROWS,) and not torch.allclose(whole, others)


def test_fit_schedule():
    shared, own = conditions()
    found = []
    for i, condition in ((0, shared), (1, own)):
        torch.manual_seed(0)
        process = un.Gaussian((1,), Learned(hidden=3))
        objective = un.Objective(numbers(process)[i], times=un.Stratified())
        found.append(un.fit_schedule(objective, NUMBERS, steps=3, batch=6, seed=0, condition=condition)["bound"])
    assert torch.equal(*found)


@pytest.mark.parametrize("method", [FLOW, PathWeighted(3, steps=4)], ids=lambda m: type(m).__name__)
def test_likelihoods_of_numbers(method):
    (looking, plain), (shared, own) = numbers(), conditions()
    ours, told = (un.likelihood(d, NUMBERS, method, seed=0, condition=c)[0] for d, c in ((looking, shared), (plain, own)))
    assert torch.equal(ours, told)
    bins = torch.tensor([[0], [2], [1], [1]])
    ours, told = (
        un.likelihood(d, bins, un.Dequantised(method, draws=2), seed=0, condition=c)[0]
        for d, c in ((looking, shared), (plain, own))
    )
    assert torch.equal(ours, told)


def test_likelihoods_of_words():
    (looking, plain), (shared, own) = words(), conditions()
    ours, told = (
        un.likelihood(d, WORDS, PathWeighted(3, steps=4), seed=0, condition=c)[0]
        for d, c in ((looking, shared), (plain, own))
    )
    assert torch.equal(ours, told)
    one = torch.full_like(LABELS, 3)
    for method in (un.Enumeration(), un.Enumeration(steps=3)):
        ours, _ = un.likelihood(looking, WORDS, method, condition=conditions(one)[0])
        told, _ = un.likelihood(plain, WORDS, method, condition=conditions(one)[1])
        assert torch.equal(ours, told)
        table, _ = method.table(looking, condition=conditions(one[:1])[0])
        assert torch.equal(table[torch.tensor([1, 3, 0, 2])], ours)
    with pytest.raises(ValueError, match="the condition 'side' differs between rows 0 and 1.*one condition at a time"):
        un.likelihood(looking, WORDS, un.Enumeration(), condition=shared)


def test_the_rule_is_asked_at_the_door():
    (looking, _), unmarked = words(), {"table": TABLE[:3], "side": {"label": LABELS}}
    fit = un.Objective(numbers(un.Gaussian((1,), Learned(hidden=3)))[0])
    for ask in (
        lambda: un.bound(looking, WORDS, condition=unmarked),
        lambda: un.Objective(looking)(WORDS, condition=unmarked),
        lambda: un.likelihood(looking, WORDS, condition=unmarked),
        lambda: un.Enumeration().table(looking, condition=unmarked),
        lambda: un.fit_schedule(fit, NUMBERS, condition=unmarked),
    ):
        with pytest.raises(ValueError, match=r"condition\['table'\] has shape \(3, 2\).*un\.Shared"):
            ask()
    with pytest.raises(ValueError, match="'previous', which a network is given already"):
        un.bound(looking, WORDS, condition={"previous": WORDS})


def test_names_do_not_clash_with_arguments():
    class Seeded(nn.Module):
        def forward(self, x, t, seed, exact):
            return seed.reshape(-1, 1, 1) * exact.reshape(-1, 1, 1) * torch.ones(*x.shape, SIZE, dtype=torch.float64)

    condition = {"seed": torch.ones(ROWS), "exact": torch.ones(ROWS)}
    assert un.bound(un.Denoiser(Seeded(), un.Masking(SIZE, (2,))), WORDS, seed=1, condition=condition).total.shape == (ROWS,)
