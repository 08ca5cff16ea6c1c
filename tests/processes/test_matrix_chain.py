"""Chains by their matrices: the order of the product, D3PM's matrices, and what a chain without a generator refuses."""

import pytest
import torch

import unnoise as un
from unnoise import d3pm
from unnoise.processes.matrix_chain import _Steps
from unnoise.verify.matrix_chains import matrix_chain_checks, matrix_chain_subject

F64 = torch.float64
STEPS = 6
LINEAR = [1 / (STEPS - i) for i in range(STEPS)]  # alpha_i = 1 - i/T
RISING = torch.linspace(0.02, 0.5, STEPS, dtype=F64)


def arbitrary(steps=STEPS, size=3, seed=0):
    weights = torch.rand(steps, size, size, dtype=F64, generator=torch.Generator().manual_seed(seed)) + torch.eye(size)
    return weights / weights.sum(1, keepdim=True)


class Table(torch.nn.Module):
    """Arbitrary logits from the state and the time."""

    def __init__(self, states, size, dtype=F64):
        super().__init__()
        table = torch.randn(states, size, dtype=dtype, generator=torch.Generator().manual_seed(3))
        self.table = torch.nn.Parameter(table)

    def forward(self, x, t):
        return self.table[x] * (1 + t).reshape(-1, *[1] * x.ndim)


# -- the product --------------------------------------------------------------------------------------------------------


def test_the_latest_factor_stands_on_the_left():
    matrices = arbitrary()
    chain = un.MatrixChain(matrices)
    x = torch.arange(3)
    for i in range(STEPS):
        exact = torch.eye(3, dtype=F64)
        for j in range(i, STEPS):
            exact = matrices[j] @ exact
            s, t = chain.grid[i].item(), chain.grid[j + 1].item()
            torch.testing.assert_close(chain.transition(x, s, t).probs.T, exact, rtol=0, atol=1e-14)
            if i == 0:
                torch.testing.assert_close(chain.marginal(x, t).probs.T, exact, rtol=0, atol=1e-14)
    other = matrices[0] @ matrices[1]
    assert float((other - matrices[1] @ matrices[0]).abs().max()) > 0.01  # the order matters here


def test_rows_at_different_steps():
    """One kernel per row, whatever the steps of the others."""
    matrices = arbitrary()
    chain = un.MatrixChain(matrices, (2,))
    x = torch.randint(3, (4, 2))
    s, t = chain.grid[[0, 1, 3, 5]], chain.grid[[6, 2, 5, 6]]
    together = chain.transition(x, s, t).probs
    for i in range(4):
        alone = chain.transition(x[i : i + 1], s[i].item(), t[i].item()).probs[0]
        torch.testing.assert_close(together[i], alone, rtol=0, atol=1e-15)


def test_a_product_the_other_way_round_is_caught(monkeypatch):
    chain = un.MatrixChain(arbitrary(8), (1,))
    quantity = "transition = product of the matrices"

    def failed():
        rows = [row for row in matrix_chain_checks(matrix_chain_subject(chain, "chain")) if quantity in row.quantity]
        assert len(rows) == 3
        return [row for row in rows if not row.ok]

    assert not failed()

    def other_way(self, s, t):
        i, j = (self.index(v)[0] for v in (s if s is not None else 0 * t, t))
        total = torch.eye(self.state_space.size, dtype=F64)
        for step in self.steps[i:j]:
            total = total @ step
        return total.expand(len(t), -1, -1)

    monkeypatch.setattr(_Steps, "kernel", other_way)
    assert failed()


# -- the usual matrices -------------------------------------------------------------------------------------------------

MATRICES = {
    "uniform": (d3pm.uniform(5, RISING), True),
    "absorbing": (d3pm.absorbing(5, RISING), False),
    "gaussian": (d3pm.gaussian(5, RISING), True),
    "banded": (d3pm.banded(5, RISING, 2), True),
}


@pytest.mark.parametrize("name", MATRICES)
def test_columns_sum_to_one(name):
    matrices, symmetric = MATRICES[name]
    states = 6 if name == "absorbing" else 5
    assert matrices.shape == (STEPS, states, states) and matrices.dtype == F64
    assert bool((matrices >= 0).all())
    assert float((matrices.sum(1) - 1).abs().max()) < 1e-14
    if symmetric:
        torch.testing.assert_close(matrices, matrices.mT, rtol=0, atol=1e-15)
        assert float((matrices.sum(2) - 1).abs().max()) < 1e-14  # so the uniform law is stationary


def test_formulas():
    i, b, size = 3, RISING[3].item(), 5
    x = torch.arange(size)
    off = ~torch.eye(size, dtype=torch.bool)
    exact = (1 - b) * torch.eye(size, dtype=F64) + b / size
    torch.testing.assert_close(MATRICES["uniform"][0][i], exact, rtol=0, atol=1e-15)
    absorbing = MATRICES["absorbing"][0][i]
    assert absorbing[5].tolist() == pytest.approx([b] * 5 + [1.0], abs=1e-15)
    assert absorbing.diagonal()[:5].tolist() == pytest.approx([1 - b] * 5, abs=1e-15)
    gap = (x[:, None] - x[None]).abs()
    banded = MATRICES["banded"][0][i]
    assert torch.equal(banded > 0, gap <= 2)
    torch.testing.assert_close(banded[off & (gap <= 2)], torch.full((14,), b / size, dtype=F64), rtol=1e-14, atol=0)
    gaussian = MATRICES["gaussian"][0][i]
    weight = torch.exp(-4 * torch.arange(-4, 5, dtype=F64).square() / (16 * b))
    assert gaussian[0, 4].item() == pytest.approx((weight[-1] / weight.sum()).item(), rel=1e-13)
    assert gaussian[2, 1].item() == pytest.approx((weight[5] / weight.sum()).item(), rel=1e-13)


TWINS = {
    "absorbing": lambda: (un.MatrixChain(d3pm.absorbing(3, LINEAR), (2,), size=3), un.Chain(un.Masking(3, (2,)), STEPS)),
    "uniform": lambda: (un.MatrixChain(d3pm.uniform(3, LINEAR), (2,)), un.Chain(un.Uniform(3, (2,)), STEPS)),
}


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Transition])
@pytest.mark.parametrize("name", TWINS)
def test_matrices_of_a_process_in_continuous_time(name, kind):
    """With betas 1/(T - i) alpha_i is 1 - i/T: Masking's and Uniform's own chains, kernels and bound alike."""
    ours, theirs = TWINS[name]()
    points, data = theirs.state_space.states(), theirs.space.states()
    torch.testing.assert_close(ours.grid, theirs.grid)
    torch.testing.assert_close(ours.prior(2).probs, theirs.prior(2).probs, rtol=0, atol=1e-14)
    for i in range(STEPS):
        s, t = ours.grid[i].item(), ours.grid[i + 1].item()
        torch.testing.assert_close(
            ours.transition(points, s, t).probs, theirs.transition(points, s, t).probs, rtol=0, atol=1e-14
        )
        torch.testing.assert_close(ours.marginal(data, t).probs, theirs.marginal(data, t).probs, rtol=0, atol=1e-14)
    network = Table(theirs.state_space.size, theirs.state_space.size if kind is un.Transition else 3)
    values = [un.bound(un.Denoiser(network, chain, kind), data, exact=True) for chain in (ours, theirs)]
    for part in ("prior", "diffusion", "reconstruction"):
        torch.testing.assert_close(getattr(values[0], part), getattr(values[1], part), rtol=1e-12, atol=1e-12)
    assert ours.process.noiseless(0.0) and not ours.process.noiseless(1 / STEPS)


# -- what it has not ----------------------------------------------------------------------------------------------------


def test_there_is_no_generator():
    chain = un.MatrixChain(arbitrary(), (2,))
    x = torch.zeros(1, 2, dtype=torch.int64)
    assert not chain.process.has_generator
    message = (
        r"a chain by matrices has no generator.*T-step bound and kernels, or a process in continuous time, such as RateM"
    )
    for call in (
        lambda: chain.generator(0.5),
        lambda: chain.local(x, 0.5),
        lambda: chain.process.local(x, 0.5),
        lambda: chain.reverse(x, x, 0.5).local(),
        lambda: chain.process.rates(torch.tensor([0.5], dtype=F64)),
        lambda: un.Posterior(torch.zeros(1, 2, 3, dtype=F64), chain.process, x, 0.5).local(),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates])
def test_predictions_that_speak_of_rates_are_refused(kind):
    with pytest.raises(
        TypeError, match=rf"predicts = {kind.__name__} speaks of rates.*choose Posterior, RawPosterior or Tr"
    ):
        un.Denoiser(Table(3, 3), un.MatrixChain(arbitrary()), kind)


def test_times_between_its_steps_are_refused():
    chain = un.MatrixChain(arbitrary(), (2,))
    x = torch.zeros(1, 2, dtype=torch.int64)
    message = r"t = 0\.4 is not on the chain's grid of 6 steps: pass one of chain\.grid"
    for call in (
        lambda: chain.marginal(x, 0.4).probs,
        lambda: chain.transition(x, 0.4, 1.0).probs,
        lambda: chain.transition(x, 0.0, 0.4).probs,
        lambda: chain.posterior(x, x, 0.4, 1.0),
        lambda: un.Denoiser(Table(3, 3), chain)(x, 0.4).step(0.0),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    single = torch.tensor([1 / 3])  # a grid time that float32 rounds is one all the same
    torch.testing.assert_close(chain.marginal(x, single).probs.double(), chain.marginal(x, 2 / 6).probs, rtol=0, atol=1e-6)


def test_there_is_no_bound_in_continuous_time():
    chain = un.MatrixChain(arbitrary(), (2,))
    x = torch.zeros(1, 2, dtype=torch.int64)
    with pytest.raises((ValueError, TypeError), match=r"not on the chain's grid|no generator"):
        un.bound(un.Denoiser(Table(3, 3), chain.process), x, seed=0)


def test_a_chain_of_it_is_refused():
    with pytest.raises(TypeError, match=r"chain of 6 steps already"):
        un.Chain(un.MatrixChain(arbitrary()), 2)


def changed(i, y, x, value):
    matrices = arbitrary()
    matrices[i, y, x] = value
    return matrices


WRONG = {
    "negative": (changed(2, 1, 0, -0.1), r"step 3 of 6: the probability of 0 -> 1, entry \[1, 0\], is -0\.1"),
    "NaN": (changed(5, 0, 2, float("nan")), r"step 6 of 6: the probability of 2 -> 0, entry \[0, 2\], is nan"),
    "sum": (changed(0, 1, 1, 9.0), r"step 1 of 6: column 1 sums to 9\.\d+, not 1$"),
    "transposed": (arbitrary().mT, r"step 1 of 6: column 0 sums to .*; its rows do, so transpose the matrices"),
    "one matrix": (arbitrary()[0], r"matrices of shape \(3, 3\): pass \[steps, states, states\]"),
    "no steps": (arbitrary()[:0], r"matrices of shape \(0, 3, 3\)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_matrix_is_named_by_step_and_entry(name):
    bad, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        un.MatrixChain(bad)


# -- training -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("times", [None, un.Grid()], ids=["drawn steps", "all steps"])
@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Transition])
@pytest.mark.parametrize("name", MATRICES)
def test_a_random_network_trains(name, kind, times):
    matrices, _ = MATRICES[name]
    size = 5
    chain = un.MatrixChain(matrices, (3,), size)
    states = chain.state_space.size
    network = Table(states, states if kind is un.Transition else size, torch.float32)
    objective = un.Objective(un.Denoiser(network, chain, kind), times=times)
    x0 = torch.randint(size, (16, 3), generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(network.parameters(), 0.1)
    losses = []
    for i in range(5):
        optimiser.zero_grad()
        value = objective(x0, un.NoiseSource(0 if times else i, 16))
        assert bool(value.total.isfinite().all())
        value.loss.mean().backward()
        assert bool(network.table.grad.isfinite().all()) and float(network.table.grad.abs().max()) > 1e-6
        optimiser.step()
        losses.append(value.loss.mean().item())
    assert times is None or losses[-1] < losses[0]


def test_noise_states_of_its_own():
    chain = un.MatrixChain(d3pm.absorbing(3, LINEAR), (2,), size=3)
    assert (chain.space.size, chain.state_space.size) == (3, 4)
    assert chain.movable(torch.tensor([[0, 3]])).tolist() == [[False, True]]
    assert chain.prior(1).probs[0, 0].tolist() == pytest.approx([0, 0, 0, 1], abs=1e-14)
    step = un.Denoiser(Table(4, 3), chain)(torch.tensor([[1, 3]]), 0.5).step(2 / 6)
    assert step.probs[0, 0].tolist() == [0, 1, 0, 0]


def test_a_step_without_noise_is_the_identity():
    for make in (un.d3pm.uniform, un.d3pm.absorbing):
        first = make(3, [0.0, 0.2])[0]
        assert torch.equal(first, torch.eye(len(first), dtype=torch.float64))
