"""A network that sees its own first estimate: still a denoiser, whose bounds are bounds, in every sampler."""

from itertools import product

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.networks import MLP, MLPConfig, SequenceTransformer, SequenceTransformerConfig, SmallUNet, SmallUNetConfig
from unnoise.samplers.captured import captured
from unnoise.self_conditioning import one_pass

SIZE, LENGTH = 3, 2


def stirred(network: nn.Module, dtype: torch.dtype = torch.float64, seed: int = 0) -> nn.Module:
    """Weights that are far from the neutral answer of a new network."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return network.to(dtype)


def letters(dtype: torch.dtype = torch.float64, **options) -> nn.Module:
    config = SequenceTransformerConfig(size=SIZE, length=LENGTH, width=16, layers=1, heads=2, self_condition=True, **options)
    return stirred(SequenceTransformer(config), dtype)


def numbers(dtype: torch.dtype = torch.float64) -> nn.Module:
    return stirred(MLP(MLPConfig(shape=(2,), width=16, layers=1, frequencies=0, self_condition=True)), dtype)


def velocity(network: nn.Module | None = None, **options) -> un.Denoiser:
    return un.Denoiser(network or numbers(), un.Gaussian((2,)), un.Velocity, self_condition=True, **options)


EVERY = torch.tensor(list(product(range(SIZE), repeat=LENGTH)))


class Echo(nn.Module):
    """Repeats what it is shown of x_0, with conviction."""

    def forward(self, x, t, previous=None):
        first = torch.nn.functional.one_hot(x.flip(-1).clamp_max(SIZE - 1), SIZE).double()
        return 4.0 * (first if previous is None else previous)


class Told(Echo):
    """The same, shown what it is told."""

    def forward(self, x, t, told):
        return super().forward(x, t, previous=told)


def mass(denoiser: un.Denoiser, **condition) -> float:
    """sum_x exp(-bound(x)) by enumeration: at most 1 for a bound."""
    with torch.no_grad():
        bound = un.bound(denoiser, EVERY, times=un.Quadrature(48), exact=True, condition=condition)
    return float((-bound.total).exp().sum())


@pytest.mark.parametrize("make", [un.Masking, un.Uniform])
def test_the_bound_is_a_bound(make):
    process = make(SIZE, (LENGTH,))
    extra = {} if make is un.Masking else {"extra": 0}
    for network in (letters(**extra), Echo()):
        twice, once = un.Denoiser(network, process, self_condition=True), un.Denoiser(network, process)
        assert mass(twice) <= 1 + 1e-6
        assert mass(twice) != pytest.approx(mass(once), rel=1e-3)  # the second pass says something else
    # the same number is no bound where the estimate comes from elsewhere than x_t, such as a chain that began at x_0
    told = torch.nn.functional.one_hot(EVERY, SIZE).double()
    assert mass(un.Denoiser(Told(), process), told=told) > 1.5


def test_what_the_network_is_shown():
    x, t = torch.randn(5, 2, dtype=torch.float64), torch.full((5,), 0.3, dtype=torch.float64)
    denoiser = velocity()
    with one_pass(denoiser):
        first = denoiser(x, t)
    assert torch.equal(first.value, denoiser.network(x, t)) and denoiser.passes == 2
    angle = torch.tensor(0.3 * torch.pi / 2, dtype=torch.float64)
    clean = angle.cos() * x - angle.sin() * first.value  # x_0 of a velocity under the cosine schedule
    torch.testing.assert_close(denoiser(x, t).value, denoiser.network(x, t, previous=clean), rtol=1e-12, atol=1e-12)
    tokens = EVERY[:5]
    finite = un.Denoiser(letters(), un.Masking(SIZE, (LENGTH,)), self_condition=True)
    shown = finite.network(tokens, t).softmax(-1)
    torch.testing.assert_close(finite(tokens, t).logits, finite.network(tokens, t, previous=shown))
    image = SmallUNetConfig(
        shape=(4, 4), kind="category", size=5, extra=1, width=16, multipliers=[1], blocks=1, self_condition=True
    )
    unet = stirred(SmallUNet(image))
    sure = torch.nn.functional.one_hot(torch.full((1, 4, 4), 2), 5).double()  # the middle level: 0 as a scaled number
    state, time = torch.full((1, 4, 4), 5), torch.tensor([0.5], dtype=torch.float64)
    torch.testing.assert_close(unet(state, time, previous=sure), unet(state, time))
    moved = (unet(state, time, previous=sure.roll(1, -1)) - unet(state, time)).detach()
    assert float(moved.abs().max()) > 1e-3


@pytest.mark.parametrize("precision", [None, torch.bfloat16])
def test_no_gradient_reaches_the_weights_through_the_first_pass(precision):
    """bfloat16 too: weights that were rounded in the first pass must not be taken for constants in the second."""
    dtype = torch.float64 if precision is None else torch.float32
    x, t = torch.randn(6, 2, dtype=dtype), torch.linspace(0.1, 0.9, 6, dtype=torch.float64)
    denoiser = velocity(numbers(dtype))
    parameters = list(denoiser.parameters())
    with torch.autocast("cpu", precision or torch.bfloat16, enabled=precision is not None):
        ours = torch.autograd.grad(denoiser(x, t).value.square().mean(), parameters)
        first = un.Denoiser(denoiser.network, denoiser.process, un.Velocity)(x, t).to(un.Clean).value
        expected, through = (
            torch.autograd.grad(
                denoiser.network(x, t.to(dtype), previous=shown).square().mean(), parameters, retain_graph=True
            )
            for shown in (first.detach(), first)
        )
    for mine, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, right)
    assert max(float((a - b).abs().max()) for a, b in zip(ours, through, strict=True)) > 1e-3
    assert float(ours[0].abs().max()) > 0


def test_derivatives_by_the_state_are_whole():
    """The divergence of a flow needs them."""
    denoiser, t = velocity(), torch.tensor([0.4], dtype=torch.float64)
    x, step = torch.tensor([[0.3, -0.7]], dtype=torch.float64), 1e-5

    def value(x):
        return denoiser(x, t).value[0]

    moved = torch.eye(2, dtype=torch.float64) * step
    slopes = torch.stack([(value(x + d) - value(x - d)) / (2 * step) for d in moved], 1).detach()
    by_autograd = torch.autograd.functional.jacobian(value, x)[:, 0]
    forward = torch.stack([torch.func.jvp(value, (x,), (d[None] / step,))[1] for d in moved], 1).detach()
    torch.testing.assert_close(by_autograd, slopes, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(forward, slopes, rtol=1e-6, atol=1e-7)


SAMPLERS = [un.samplers.DDIM(), un.samplers.Heun(), un.samplers.DPMSolverPP(2), un.samplers.Ancestral()]
DISCRETE = [un.samplers.Ancestral(), un.samplers.FirstHitting(), un.samplers.Reveal()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samplers_work_unchanged(dtype):
    masked = un.Denoiser(letters(dtype), un.Masking(SIZE, (LENGTH,)), self_condition=True)
    for denoiser, methods in ((velocity(numbers(dtype)), SAMPLERS), (masked, DISCRETE)):
        evaluations = []
        hook = denoiser.network.register_forward_hook(lambda *_, seen=evaluations: seen.append(1))
        for sampler in methods:
            evaluations.clear()
            x, info = un.sample(denoiser, n=64, steps=6, sampler=sampler, seed=1)
            expected = info.calls if denoiser is not masked else info.calls // 2  # its second pass is `features`
            assert len(evaluations) == expected > 0, sampler
            with one_pass(denoiser):
                once, _ = un.sample(denoiser, n=64, steps=6, sampler=sampler, seed=1)
            assert x.dtype == (dtype if denoiser is not masked else torch.int64) and not torch.equal(x, once)
            recorded, _ = un.sample(captured(denoiser), n=64, steps=6, sampler=sampler, seed=1)
            assert torch.equal(recorded, x)
        hook.remove()


def test_what_has_no_estimate_of_the_data_is_refused():
    for kind in (un.Noise, un.Score, un.Energy):
        with pytest.raises(TypeError, match=f"predicts = {kind.__name__}: it needs an estimate of x_0"):
            un.Denoiser(numbers(), un.Gaussian((2,)), kind, self_condition=True)
    with pytest.raises(TypeError, match="Remaining"):
        un.Denoiser(numbers(), un.Thinning((2,)), self_condition=True)
