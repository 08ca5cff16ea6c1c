"""The first stage of a quantised autoencoder: its gradients, its codes, and those that stand for nothing."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.latent import NumbersLaw, QuantisedCode, quantised_code
from unnoise.noise import NoiseSource

CORNERS = torch.tensor([[-2.0, -2.0], [-2.0, 2.0], [2.0, -2.0], [2.0, 2.0]])


class AsItIs(nn.Module):
    """One place, whose vector is the data times a number."""

    def __init__(self, back=False):
        super().__init__()
        self.factor, self.back = nn.Parameter(torch.ones(2)), back

    def forward(self, x):
        return (x * self.factor).flatten(1) if self.back else (x * self.factor).unsqueeze(1)


def code(codes=4, **options):
    data = NumbersLaw((2,), 0.3)
    return QuantisedCode(un.Euclidean((2,)), 1, AsItIs(), AsItIs(back=True), torch.zeros(codes, 2), data, **options)


def clusters(rows=256):
    noise = NoiseSource(0, rows)
    return CORNERS[torch.arange(rows) % 4] + 0.1 * noise.normal((2,), torch.float32)


def settled(own, monkeypatch=None, steps=120):
    x = clusters()
    own.first_steps = steps
    own.prepare(lambda n: x[:n], None, torch.device("cpu"), 0)
    return own, x


@pytest.mark.parametrize("codebook", ["ema", "gradient"])
def test_codes_come_to_stand_for_clusters(codebook):
    own, x = settled(code(codebook=codebook))
    seen = own.monitor(x, NoiseSource(0, len(x)))
    assert seen["perplexity"] > 3.9 and own.troubles(seen) == {}
    gaps = torch.cdist(own.vectors / own.encoder.factor, CORNERS).amin(0)
    assert float(gaps.max()) < (0.15 if codebook == "ema" else 0.5)
    assert not own.trained and not any(p.requires_grad for p in own.parameters())


def test_dead_codes_are_put_to_use(monkeypatch):
    """From a start where one code is nearest to all; the mutant is never put anywhere else."""

    def far(self, x, generator):
        begin(self, x, generator)
        self.vectors[1:] = 1000.0 + torch.arange(6.0).reshape(3, 2)
        self.sums.copy_(self.vectors)

    begin = QuantisedCode.begin
    monkeypatch.setattr(QuantisedCode, "begin", torch.no_grad()(far))
    own, x = settled(code())
    assert own.monitor(x, NoiseSource(0, len(x)))["dead"] == 0
    monkeypatch.setattr(quantised_code, "LOW", -1.0)
    own, x = settled(code())
    seen = own.monitor(x, NoiseSource(0, len(x)))
    assert seen["dead"] == 3
    assert "3 of 4 codes stand for none" in own.troubles(seen)["dead codes"]


def test_gradients_pass_straight_through():
    """The encoder's is that of the decoder at the code, and of the commitment; codes have none where they follow means."""
    own = code(commitment=0.5)
    own.requires_grad_(True)
    x = clusters(8)
    own.begin(x, torch.Generator().manual_seed(0))
    loss, _ = own.first_loss(x, NoiseSource(0, 8))
    (found,) = torch.autograd.grad(loss.sum(), own.encoder.factor)
    h = own.encoded(x).detach()
    e = own.vectors[own.nearest(h)].detach().requires_grad_()
    (by_e,) = torch.autograd.grad(-own.decoded(e).log_prob(x).sum(), e)
    wanted = ((by_e + 2 * 0.5 * (h - e)).detach()[:, 0] * x).sum(0)
    assert torch.allclose(found, wanted, rtol=1e-4)


def test_codes_follow_the_mean_of_what_they_stand_for():
    own = code()
    x = clusters(64)
    own.begin(x, torch.Generator().manual_seed(0))
    own.vectors.copy_(CORNERS * 0.8)
    own.sums.copy_(own.vectors)
    for step in range(1, 20):
        own.first_loss(x, NoiseSource(0, 64))
        own.after(step, 1.0, torch.Generator())
    kept = quantised_code.DECAY**19
    means = torch.stack([x[i::4].mean(0) for i in range(4)])
    each = torch.full((4, 1), 16.0)
    wanted = (kept * CORNERS * 0.8 + (1 - kept) * each * means) / (kept + (1 - kept) * each)
    assert torch.allclose(own.vectors.detach(), wanted, atol=1e-4)


def test_a_codebook_larger_than_the_data_is_refused():
    x = clusters(16)
    own = code(codes=17)
    with pytest.raises(ValueError, match=r"17 codes is larger than the data: 16 rows of 1 places.*take 4 at most"):
        own.prepare(lambda n: x[:n], None, torch.device("cpu"), 0)
    with pytest.raises(ValueError, match="two codes at least"):
        code(codes=1)
    with pytest.raises(ValueError, match="choose from ema, gradient"):
        code(codebook="mean")
