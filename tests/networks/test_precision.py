"""Networks in another precision than their states."""

import pytest
import torch

import unnoise as un
from unnoise.networks.precision import FeaturesInPrecision, InPrecision, in_precision
from unnoise.networks.presets import default_network
from unnoise.samplers import sample
from unnoise.tree import leaves

PROCESSES = {
    "numbers": lambda: un.Gaussian((3,)),
    "sequences": lambda: un.Masking(5, (6,)),
    "table": lambda: un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3, 4], (3,))),
}


@pytest.fixture
def everywhere(monkeypatch):
    """Also on a processor, which otherwise leaves networks as they are."""
    monkeypatch.setattr(InPrecision, "devices", ("cuda", "cpu"))


def denoiser_of(name):
    process = PROCESSES[name]()
    torch.manual_seed(0)
    denoiser = un.Denoiser(default_network(process, "tiny"), process, un.predictions.default_kind(process))
    with torch.no_grad():
        for parameter in denoiser.parameters():  # some of a fresh network's are zero
            parameter.add_(0.1 * torch.randn_like(parameter))
    return denoiser.eval().requires_grad_(False)


def states(process, n=64):
    x0 = process.prior(n, torch.float32).draw(un.NoiseSource(0, n))
    return x0, torch.linspace(0.1, 0.9, n).double()


@pytest.mark.parametrize("name", PROCESSES)
def test_products_are_rounded_and_what_comes_out_is_wide(name, everywhere):
    plain = denoiser_of(name)
    half = in_precision(plain, "bf16")
    x, t = states(plain.process)
    one, other = (leaves(d.network(x, t.float())) for d in (plain, half))
    for exact, rounded in zip(one, other, strict=True):
        assert exact.dtype == rounded.dtype == torch.float32
        real = exact > -1e8  # what a column does not have is impossible in both
        error = (exact - rounded)[real].abs().max() / exact[real].abs().max()
        assert 1e-5 < error < 0.03
    drawn, _ = sample(half, 5, 4, seed=0)
    assert all(leaf.dtype in (torch.float32, torch.int64) for leaf in leaves(drawn))


def test_a_network_in_two_parts_stays_so(everywhere):
    half = in_precision(denoiser_of("sequences"), "bf16")
    assert isinstance(half.network, FeaturesInPrecision) and half.in_two_parts
    x, t = states(half.process)
    features = half.network.features(x, t.float())
    assert half.network.head(features).dtype == torch.float32
    whole, head = half.network(x, t.float()), half.network.head(features)
    torch.testing.assert_close(whole, head, rtol=0.02, atol=0.02)


def test_weights_are_shared_and_the_denoiser_given_is_left_as_it_was():
    plain = denoiser_of("table")
    half = in_precision(plain, "bf16")
    assert half.network.network is plain.network and not isinstance(plain.network, InPrecision)
    assert half.dtype == plain.dtype == torch.float32 and half.clock_dtype == torch.float32
    assert in_precision(plain, "no") is plain


def test_on_a_processor_a_network_runs_as_it_is():
    plain = denoiser_of("table")
    x, t = states(plain.process)
    for precision in ("bf16", "tf32"):
        for exact, same in zip(
            *(leaves(d.network(x, t.float())) for d in (plain, in_precision(plain, precision))), strict=True
        ):
            assert torch.equal(exact, same)


def test_tf32_is_asked_for_while_the_network_runs_and_no_longer(everywhere):
    seen = []

    class Asks(torch.nn.Module):
        def forward(self, x, t):
            seen.append(torch.get_float32_matmul_precision())
            return x

    denoiser = in_precision(un.Denoiser(Asks(), un.Gaussian((2,)), un.Clean), "tf32")
    denoiser(torch.zeros(3, 2), torch.full((3,), 0.5))
    assert seen == ["high"] and torch.get_float32_matmul_precision() == "highest"


def test_a_precision_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="precision = 'half': choose from no, tf32, bf16"):
        in_precision(denoiser_of("numbers"), "half")
