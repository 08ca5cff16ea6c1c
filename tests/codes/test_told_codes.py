"""From one sequence to another: a network that is told a source, on a task whose conditional law is known."""

import torch

import unnoise as un
from unnoise import codes
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig
from unnoise.noise import NoiseSource

RIGHT, SIZE, LENGTH = 0.8, 3, 2  # each symbol of the source, read backwards, is kept with this chance, or any other


def log_law(source):
    """log p(x^k | source) [batch, LENGTH, SIZE]: reversed, with errors."""
    kept = torch.nn.functional.one_hot(source.flip(1), SIZE).double()
    return (kept * RIGHT + (1 - kept) * (1 - RIGHT) / (SIZE - 1)).log()


class Reader(torch.nn.Module):
    """Its positions are independent given the source, so that leave-one-out logits are the law itself."""

    def forward(self, z, t, source):
        return log_law(source).to(z.dtype)


def exact():
    code = codes.bits(SIZE, (LENGTH,)).double()
    return un.Denoiser(Reader(), un.Gaussian(code.shape), code=code)


def test_the_bound_is_the_conditional_entropy():
    """10,000 rows: five standard errors (false alarm 6e-7); told the wrong source, the mutant, it is far above."""
    denoiser, n = exact(), 10_000
    source = torch.randint(SIZE, (n, LENGTH), generator=torch.Generator().manual_seed(0))
    x = torch.distributions.Categorical(logits=log_law(source)).sample()
    wanted = -log_law(source).gather(-1, x.unsqueeze(-1)).sum((1, 2)).mean()
    found = un.bound(denoiser, x, condition={"source": source}, seed=0).total
    error = float(found.std()) / n**0.5
    assert abs(float(found.mean() - wanted)) < 5 * error < 0.25
    wrong = un.bound(denoiser, x, condition={"source": source.flip(1)}, seed=0).total
    assert float(wrong.mean() - wanted) > 0.5


def test_what_is_drawn_has_the_conditional_law():
    denoiser, n = exact(), 4000
    source = torch.tensor([[0, 2]]).expand(n, LENGTH)
    x, _ = un.sample(denoiser, n=n, steps=16, condition={"source": source}, seed=0)
    for k in range(LENGTH):
        found = torch.bincount(x[:, k], minlength=SIZE).double() / n
        assert float((found - log_law(source[:1])[0, k].exp()).abs().sum() / 2) < 0.05  # false alarm below 1e-6


def test_a_transformer_learns_to_read_its_source():
    """Told as a condition of categories: after 40 updates it knows what is copied, and without a source it does not."""
    torch.manual_seed(0)
    code = codes.bits(SIZE, (LENGTH,))
    told = [{"name": "source", "size": SIZE, "shape": [LENGTH]}]
    config = SequenceTransformerConfig(
        size=SIZE, extra=0, numbers=code.shape[-1], length=LENGTH, width=32, layers=1, heads=2, conditions=told
    )
    denoiser = un.Denoiser(SequenceTransformer(config), un.Gaussian(code.shape), code=code)
    objective = un.Objective(denoiser, un.weightings.CrossEntropy(), times=un.Stratified())
    optimiser = torch.optim.Adam(denoiser.parameters(), 0.02)
    source = torch.randint(SIZE, (128, LENGTH))
    for step in range(40):
        optimiser.zero_grad()
        objective(source.flip(1), NoiseSource(step, 128), {"source": source}).loss.mean().backward()
        optimiser.step()
    with torch.no_grad():
        known = un.bound(denoiser, source.flip(1), condition={"source": source}, seed=0).total.mean()
        unknown = un.bound(denoiser, source.flip(1), seed=0).total.mean()
    assert float(known) < 0.5 < float(unknown)
