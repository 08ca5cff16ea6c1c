"""A state that a callback puts in the place of another is gone on from, whatever the method remembers."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.samplers import remasking

F64 = torch.float64
X = torch.tensor([[0.5, -1.0], [0.2, 0.3], [1.0, 1.5]], dtype=F64)
GRID = [0.95, 0.8, 0.6, 0.4, 0.2, 0.05]


class Bent(nn.Module):
    def forward(self, x, t):
        return torch.tanh(0.7 * x)


def model():
    return un.Denoiser(Bent(), un.Gaussian((2,), un.schedules.LinearBeta()))


def edited(x):
    return torch.cat([x[:1] + 0.7, x[1:]])


@pytest.mark.parametrize("method", [un.samplers.UniPC(2), un.samplers.DDIM(), un.samplers.Heun()])
def test_a_run_goes_on_from_an_edited_state(method):
    """These remember nothing beyond a step, so the rest is a run of its own from where the edit led."""
    seen = []

    def edit(i, t, state):
        if i == 1:
            seen.append(edited(state.x))
            return replace(state, x=seen[0])
        return None

    found, _ = un.sample(model(), x=X, grid=GRID, sampler=method, seed=0, callback=edit)
    plain, _ = un.sample(model(), x=X, grid=GRID, sampler=method, seed=0)
    alone, _ = un.sample(model(), x=seen[0], grid=GRID[2:], sampler=method, seed=0)
    torch.testing.assert_close(found[0], alone[0], rtol=1e-12, atol=1e-12)
    assert torch.equal(found[1:], plain[1:]) and float((found[0] - plain[0]).abs().min()) > 0.05


def test_rows_exchanged_under_unipc_are_corrected_as_before():
    index = torch.tensor([2, 0, 1])
    for order in (2, 3):
        method = un.samplers.UniPC(order)
        found, _ = un.sample(
            model(), x=X, grid=GRID, sampler=method, callback=lambda i, t, state: state.rows(index) if i == 2 else None
        )
        plain, _ = un.sample(model(), x=X, grid=GRID, sampler=method)
        assert torch.equal(found, plain[index])


def test_tokens_that_are_masked_again_under_routing():
    words = un.oracles.table(un.Masking(3, (4,)), torch.full((81,), 1 / 81, dtype=F64))
    masked = []

    def mask(i, t, state):
        if i != 4:
            return None
        masked.append(state.x.clone().index_fill(1, torch.tensor([0, 1]), 3))
        return replace(state, x=masked[0])

    x, _ = un.sample(words, 64, steps=8, sampler=un.samplers.Routed(), seed=0, callback=mask)
    kept = masked[0] != 3
    assert int(x.max()) < 3 and bool(kept.any()) and torch.equal(x[kept], masked[0][kept])


@pytest.mark.parametrize("rule", [remasking.Cap(0.2), remasking.Rate(1.0), remasking.Loop(remasking.Cap(0.2))])
def test_a_plan_is_made_anew_for_tokens_that_are_masked_or_set(rule):
    """Nothing is left masked, rows that are left alone stay the same, and the law is the one that a token set has."""
    law = torch.full((9,), 1 / 9, dtype=F64)
    words, rows = un.oracles.table(un.Masking(3, (2,)), law), 400
    method = un.samplers.Remasking(rule)

    def edit(to, when):
        def change(i, t, state):
            if i != when:
                return None
            x = state.x.clone()
            x[: rows // 2, 0] = to
            return replace(state, x=x)

        return change

    plain, _ = un.sample(words, rows, steps=8, sampler=method, seed=0)
    masked, _ = un.sample(words, rows, steps=8, sampler=method, seed=0, callback=edit(3, 4))
    token, _ = un.sample(words, rows, steps=8, sampler=method, seed=0, callback=edit(1, 6))
    assert int(masked.max()) < 3 and int(token.max()) < 3
    assert torch.equal(masked[rows // 2 :], plain[rows // 2 :]) and torch.equal(token[rows // 2 :], plain[rows // 2 :])
    assert float((token[: rows // 2, 0] == 1).double().mean()) > 0.7  # a third, were it drawn again in the last step


def test_a_plan_goes_with_its_rows():
    words = un.oracles.table(un.Masking(3, (4,)), torch.full((81,), 1 / 81, dtype=F64))
    index = torch.tensor([2, 0, 1])
    method = un.samplers.Remasking(remasking.Cap(0.2))
    x, _ = un.sample(
        words, 3, steps=8, sampler=method, seed=0, callback=lambda i, t, state: state.rows(index) if i == 7 else None
    )
    assert torch.equal(x, un.sample(words, 3, steps=8, sampler=method, seed=0)[0][index])
    every, _ = un.sample(words, 3, steps=8, sampler=method, seed=0, callback=lambda i, t, state: state.rows(index))
    assert int(every.max()) < 3
