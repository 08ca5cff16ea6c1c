"""Names that Python has plans of its own for, and arrays that are no tensors."""

import numpy as np
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import conditions, weightings


class Half(nn.Module):
    def forward(self, x, t):
        return {name: 0.5 * value for name, value in x.items()}


@pytest.mark.parametrize("name", ["self", "t", "x", "condition", "seed", "a.b", "a/b", ""])
def test_a_leaf_may_have_any_name(name):
    process = un.Product(**{name: un.Gaussian((1,)), "other": un.Gaussian((1,))})
    denoiser = un.Denoiser(Half(), process, predicts={name: un.Clean})
    x = {name: torch.tensor([[0.3], [0.1]]), "other": torch.tensor([[1.0], [-1.0]])}
    plain = {"leaf": x[name], "other": x["other"]}
    same = un.Denoiser(Half(), un.Product(leaf=un.Gaussian((1,)), other=un.Gaussian((1,))), predicts={"leaf": un.Clean})
    times = un.Quadrature(4)
    assert list(process.space.check(x)) == [name, "other"]
    assert torch.equal(
        un.bound(denoiser, x, times=times, exact=True).total, un.bound(same, plain, times=times, exact=True).total
    )
    weighted = un.Objective(denoiser, weightings.LeafWeightings(**{name: weightings.Simple()}))
    assert weighted(x).loss.isfinite().all()
    method = un.samplers.Leaves(un.samplers.DDIM(), **{name: un.samplers.Ancestral()})
    assert list(un.sample(denoiser, 2, steps=2, sampler=method)[0]) == [name, "other"]


def test_a_condition_named_self():
    with pytest.raises(ValueError, match="names 'self', which a network is given already"):
        conditions.checked({"self": torch.zeros(2)}, 2)


@pytest.mark.parametrize("value", [np.zeros(3), {"deep": np.zeros((3, 2))}, [np.zeros(3)]])
def test_an_array_that_is_no_tensor_is_refused(value):
    """Its rows would not be cut with the others, and the network would see those of other rows."""
    with pytest.raises(TypeError, match="whose rows would not be found"):
        conditions.checked({"label": value}, 3)


def test_numbers_of_numpy_and_marked_arrays_are_shared():
    table = np.zeros((3, 2))
    told = conditions.checked({"scale": np.float64(2.0), "zero": np.array(1.0), "table": un.Shared(table)}, 3)
    assert conditions.given(conditions.rows_of(told, torch.tensor([1])))["table"] is table
