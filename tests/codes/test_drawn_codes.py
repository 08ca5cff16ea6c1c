"""Drawing given something: gaps filled, and samples led by a classifier, through the states of a code."""

import pytest
import torch
from exact_codes import ExactPair

import unnoise as un
from unnoise import codes
from unnoise.guidance import ClassifierGuided
from unnoise.training.drawing import conditioning, fill, states_known

Q = torch.tensor([[0.30, 0.05, 0.05], [0.02, 0.08, 0.20], [0.10, 0.15, 0.05]], dtype=torch.float64)
N = 4000  # draws: frequencies of three categories are off by 0.04 in total with a chance below 1e-6


def exact(cutoff=None):
    code = codes.bits(3, (2,)).double()
    code.cutoff = cutoff
    process = un.Gaussian(code.shape)
    return un.Denoiser(ExactPair(code, process, Q), process, code=code)


def off(x, wanted):
    found = torch.bincount(x, minlength=len(wanted)).double() / len(x)
    return float((found - wanted).abs().sum() / 2)


def test_a_gap_is_filled_given_the_rest():
    """P(x_2 | x_1 = 1): by particles, for four numbers are few; without what is known the law is another."""
    denoiser = exact()
    x, fixed = torch.tensor([[1, 9]]).expand(N // 3, 2), torch.tensor([[True, False]]).expand(N // 3, 2)
    z, held = states_known(denoiser, x, fixed)
    assert torch.equal(z[0, 0], denoiser.code.vectors[1]) and held[0].tolist() == [[True, True], [False, False]]
    assert "particles" in conditioning(denoiser.process, held)[""]
    whole, _ = fill(denoiser, x, fixed, seed=0, steps=16)
    assert bool((whole[:, 0] == 1).all()) and whole.dtype == torch.int64
    wanted = Q[1] / Q[1].sum()
    assert off(whole[:, 1], wanted) < 0.05
    assert off(whole[:, 1], Q.sum(0)) > 0.15  # the mutant: a draw that is told nothing


def test_rows_that_are_known_stay():
    denoiser = exact()
    x, fixed = torch.tensor([[2, 0], [1, 9]]), torch.tensor([[True, True], [True, False]])
    whole, _ = fill(denoiser, x, fixed, seed=0, steps=8)
    assert whole[0].tolist() == [2, 0] and int(whole[1, 0]) == 1 and 0 <= int(whole[1, 1]) < 3


def test_a_code_without_places_says_so():
    class Whole(codes.Code):
        def __init__(self):
            super().__init__()
            self.space = un.Finite(3, (2,))

    with pytest.raises(ValueError, match="known ones cannot be held"):
        Whole().known(torch.zeros(1, 2), torch.ones(1, 2))


def equal_by_states(denoiser):
    """log p(x_1 = x_2 | z_t), by the exact joint law."""

    def classifier(z, t):
        log_joint = denoiser.network.log_joint(z, t)
        same = torch.diagonal(log_joint, dim1=1, dim2=2).logsumexp(1)
        return same - log_joint.flatten(1).logsumexp(1)

    return classifier


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_gradients_through_the_states_lead_to_the_conditional_law(weight):
    """Given x_1 = x_2 the exact classifier leads to q(a, a)/sum q(b, b); with weight 0, the mutant, to q."""
    denoiser = exact(cutoff=0.08)
    guided = ClassifierGuided(denoiser, equal_by_states(denoiser), weight)
    x, _ = un.sample(guided, n=N, steps=64, seed=0)
    agree = float((x[:, 0] == x[:, 1]).double().mean())
    if weight:
        assert agree > 0.97
        assert off(x[x[:, 0] == x[:, 1], 0], Q.diagonal() / Q.diagonal().sum()) < 0.05
    else:
        assert abs(agree - float(Q.diagonal().sum())) < 0.05
