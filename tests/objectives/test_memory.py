"""At a real vocabulary nothing of size K x K is formed, and nothing larger than the logits themselves."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import unnoise as un

SIZE, LENGTH, BATCH = 5_003, 6, 3


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation returned (views count by the storage they reach)."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            if isinstance(value, torch.Tensor):
                self.numel = max(self.numel, value.numel())
        return out


class Ready(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.randn(BATCH, LENGTH, size))

    def forward(self, x, t):
        return self.logits


def own_law():
    weights = torch.rand(SIZE) + 0.1
    return weights / weights.sum()


def mixture():
    return un.Mixture.uniform_and_mask(SIZE, (LENGTH,), uniform=0.3)


def moving_laws():
    """Laws that overlap, so that a share may fall: drawn from one table."""
    laws = [own_law(), own_law()]
    return un.Mixture(SIZE, (LENGTH,), laws=laws, weights=lambda t: torch.stack([(1 - t) ** 2, 1 - (1 - t) ** 2], -1))


CASES = {
    "masking": (lambda: un.Masking(SIZE, (LENGTH,)), un.Posterior),
    "uniform": (lambda: un.Uniform(SIZE, (LENGTH,)), un.Posterior),
    "uniform-ratio": (lambda: un.Uniform(SIZE, (LENGTH,)), un.Ratio),
    "masking-chain": (lambda: un.Chain(un.Masking(SIZE, (LENGTH,)), 4), un.Posterior),
    "uniform-chain": (lambda: un.Chain(un.Uniform(SIZE, (LENGTH,)), 4), un.Posterior),
    "interpolation": (lambda: un.Interpolation(SIZE, (LENGTH,), own_law()), un.Posterior),
    "interpolation-ratio": (lambda: un.Interpolation(SIZE, (LENGTH,), own_law()), un.Ratio),
    "interpolation-mask": (lambda: un.Interpolation(SIZE, (LENGTH,), un.noise_laws.uniform_with_mask(SIZE)), un.Posterior),
    "interpolation-chain": (lambda: un.Chain(un.Interpolation(SIZE, (LENGTH,), own_law()), 4), un.Posterior),
    "mixture": (mixture, un.Posterior),
    "mixture-chain": (lambda: un.Chain(mixture(), 4), un.Posterior),
    "mixture-moving": (moving_laws, un.Posterior),
}


@pytest.mark.parametrize(("make", "kind"), CASES.values(), ids=CASES.keys())
def test_bound_and_its_gradient(make, kind):
    objective = un.Objective(un.Denoiser(Ready(SIZE), make(), kind))
    x0 = torch.randint(SIZE, (BATCH, LENGTH))
    with Largest() as seen:
        objective(x0).loss.mean().backward()
    assert 0 < seen.numel <= BATCH * LENGTH * (SIZE + 1)


@pytest.mark.parametrize("make", [un.Masking, un.Uniform])
def test_noising_needs_no_row_of_categories(make):
    process = make(SIZE, (LENGTH,))
    x0 = torch.randint(SIZE, (BATCH, LENGTH))
    noise = un.NoiseSource(0, BATCH)
    with Largest() as seen:
        x_t = process.marginal(x0, 0.5).draw(noise)
        process.transition(x_t, 0.5, 0.7).draw(noise)
        process.marginal(x0, 0.5).log_prob(x_t)
        process.prior_kl(x0)
        process.prior(BATCH).draw(noise)
        assert not process.noiseless(0.5)
    assert seen.numel <= BATCH * LENGTH


@pytest.mark.parametrize(
    ("make", "most"),
    [
        (lambda: un.Interpolation(SIZE, (LENGTH,), un.noise_laws.uniform_with_mask(SIZE)), BATCH * LENGTH),
        (lambda: un.Interpolation(SIZE, (LENGTH,), own_law()), SIZE),  # the law itself, once for all rows
        (mixture, 2 * BATCH * LENGTH),  # which of the two laws, for each coordinate
    ],
    ids=["uniform+mask", "given", "mixture"],
)
def test_noising_by_a_law_needs_no_row_of_categories(make, most):
    process = make()
    x0 = torch.randint(SIZE, (BATCH, LENGTH))
    noise = un.NoiseSource(0, BATCH)
    with Largest() as seen:
        x_t = process.marginal(x0, 0.5).draw(noise)
        process.transition(x_t, 0.5, 0.7).draw(noise)
        process.marginal(x0, 0.5).log_prob(x_t)
        assert not process.noiseless(0.5)
        if isinstance(process, un.Interpolation):
            process.prior_kl(x0)
            process.prior(BATCH).draw(noise)
    assert 0 < seen.numel <= most


def test_building_a_mixture_forms_no_table_of_times_and_states():
    with Largest() as seen:
        un.Mixture.uniform_and_mask(SIZE, (LENGTH,), uniform=0.3)
    assert seen.numel <= 4 * 2049
    with Largest() as seen:
        assert not moving_laws().separable
    assert seen.numel <= 2**22


def test_the_watch_sees_a_square():
    process = un.Uniform(SIZE, (LENGTH,))
    with Largest() as seen:
        process.marginal(torch.arange(50).unsqueeze(1).expand(-1, LENGTH), 0.5).log_probs  # noqa: B018
    assert seen.numel == 50 * LENGTH * SIZE
