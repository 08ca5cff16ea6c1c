"""Allowed categories place by place: the weighted law is the model's given them, by all paths; the unweighted one is not."""

import pytest
import torch
from enumerated import weighted_law

import unnoise as un

SIZE, LENGTH = 3, 3
PROCESS = un.Masking(SIZE, (LENGTH,))
MASK = torch.tensor([[True, False, True], [False, True, True], [True, True, False]])


def model(process=PROCESS):
    p = torch.rand(SIZE**LENGTH, generator=torch.Generator().manual_seed(3)).double().square() + 0.01
    return un.oracles.table(process, p / p.sum()), p / p.sum()


def total_variation(p, q):
    return float((p / p.sum() - q / q.sum()).abs().sum() / 2)


def allowed():
    return MASK[torch.arange(LENGTH), PROCESS.space.states()].all(1)


def test_the_weighted_law_is_that_of_the_model_given_the_mask():
    denoiser, p = model()
    target, wanted = un.targets.restricted(denoiser, un.guidance.AllowedCategories(MASK)), p * allowed()
    law, z = weighted_law(target)
    assert total_variation(law, wanted) < 1e-12 and z == pytest.approx(float(wanted.sum()), rel=1e-12)
    unweighted, _ = weighted_law(target, weigh=False)
    assert total_variation(unweighted, wanted) > 0.01 and float(unweighted[~allowed()].sum()) == 0


def test_samples_of_products_keep_to_it_and_count_its_probability():
    """Of a leaf of several axes beside another: log Z to 4 standard errors."""
    leaf = un.Masking(SIZE, (LENGTH, 1))
    process = un.Product(word=leaf, other=un.Masking(2, (1,)))
    logits = torch.rand(1, LENGTH, SIZE, generator=torch.Generator().manual_seed(0)).double().log_softmax(-1)
    leaves = {
        "word": un.oracles.CategoricalLeaf(logits),
        "other": un.oracles.CategoricalLeaf(torch.zeros(1, 1, 2).double().log_softmax(-1)),
    }
    denoiser = un.oracles.Components(process, torch.ones(1), leaves)
    rule = un.guidance.AllowedCategories(MASK.unsqueeze(1), leaf="word")
    x, info = un.sample(un.targets.restricted(denoiser, rule), n=200, steps=4, seed=0, sampler=un.samplers.Particles(2))
    assert bool(rule.accepts(x).all())
    found, _ = info.particles.estimate()
    assert found == pytest.approx(float((logits.exp() * MASK).sum(-1).log().sum()), abs=1e-9)  # the weights are all alike


def test_a_mask_that_does_not_fit_is_refused():
    denoiser, _ = model()
    for mask, why in (
        (MASK[:2], r"has shape \(2, 3\)"),
        (MASK & torch.tensor([[True], [False], [True]]), r"allows nothing at the place \(1,\)"),
    ):
        with pytest.raises(TypeError, match=why):
            un.targets.restricted(denoiser, un.guidance.AllowedCategories(mask))
    with pytest.raises(ValueError, match="pass booleans"):
        un.guidance.AllowedCategories(MASK.double())
    with pytest.raises(TypeError, match="masks nothing"):
        un.targets.restricted(model(un.Uniform(SIZE, (LENGTH,)))[0], un.guidance.AllowedCategories(MASK))
