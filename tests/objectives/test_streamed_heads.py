"""Losses of large linear heads, whose logits are made in chunks, are those of any other head."""

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.kernels import head_chunks
from unnoise.kernels.head_chunks import ChunkPlan
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig
from unnoise.objectives import closed_forms
from unnoise.objectives.closed_forms import rate
from unnoise.predictions import linear_heads

F64 = torch.float64
SIZE, WIDTH, LENGTH, ROWS = 11, 6, 5, 8


@pytest.fixture
def in_chunks(monkeypatch):
    """Chunks of three rows, whatever the number of logits."""

    def put(many=0):
        monkeypatch.setattr(linear_heads, "FEW", {"cpu": many})
        monkeypatch.setattr(closed_forms, "CHUNK", many)
        monkeypatch.setattr(head_chunks, "ON_HOST", ChunkPlan(held=3 * SIZE, aligned=1, kernels=False))

    put()
    return put


class Network(nn.Module):
    def __init__(self, bias=True):
        super().__init__()
        self.embed = nn.Embedding(SIZE + 1, WIDTH)
        self.head = nn.Linear(WIDTH, SIZE, bias=bias)

    def features(self, x, t):
        h = self.embed(x)
        return torch.tanh(h + h.mean(1, keepdim=True)) * (1 + t.reshape(-1, *[1] * x.ndim))

    def forward(self, x, t):
        return self.head(self.features(x, t))


PROCESSES = {
    "masking": lambda: un.Masking(SIZE, (LENGTH,)),
    "masking in two axes": lambda: un.Masking(SIZE, (LENGTH, 1), un.schedules.Cosine()),
    "uniform": lambda: un.Uniform(SIZE, (LENGTH,)),
    "uniform, cosine": lambda: un.Uniform(SIZE, (LENGTH,), un.schedules.Cosine()),
    "uniform, a schedule each": lambda: un.Uniform(
        SIZE, (2,), un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Cosine()])
    ),
}
WEIGHTINGS = {"bound": un.weightings.Bound, "cross-entropy": un.weightings.CrossEntropy}


def losses(objective, x0):
    """The loss of every row, and the gradients of a sum in which every row counts differently."""
    loss = objective(x0, un.NoiseSource(3, len(x0))).loss
    parameters = list(objective.denoiser.network.parameters())
    return [loss, *torch.autograd.grad((loss * torch.linspace(-1, 2, len(x0), dtype=loss.dtype)).sum(), parameters)]


class Watched:
    """How often a head is called."""

    def __init__(self, monkeypatch):
        self.calls = 0
        inner = nn.Linear.forward

        def forward(layer, h):
            self.calls += layer.out_features == SIZE
            return inner(layer, h)

        monkeypatch.setattr(nn.Linear, "forward", forward)


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("bias", [False, True])
def test_losses_and_gradients(name, weighting, bias, in_chunks, monkeypatch):
    process = PROCESSES[name]()
    x0 = torch.randint(SIZE, (ROWS, *process.space.shape))
    objective = un.Objective(un.Denoiser(Network(bias).double(), process), WEIGHTINGS[weighting]())
    objective.loss_only = True
    seen = Watched(monkeypatch)
    found, calls = losses(objective, x0), seen.calls
    in_chunks(many=2**40)
    wanted = losses(objective, x0)
    assert seen.calls > 0 and calls == (0 if weighting == "bound" or "masking" in name else seen.calls // 2)
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
        assert float(theirs.detach().abs().max()) > 1e-4


@pytest.mark.parametrize("name", PROCESSES)
def test_close_to_the_ends_of_time(name, in_chunks):
    """Where odds are very large and very small; and at alpha = 1, whose odds stand for any larger ones."""
    process, network = PROCESSES[name](), Network().double()
    t = torch.tensor([0.0, 1e-12, 1e-6, 1e-3, 0.5, 0.99, 1 - 1e-6, 1 - 1e-12], dtype=F64)
    x0 = torch.randint(SIZE, (ROWS, *process.space.shape))
    x_t = process.marginal(x0, t).draw(un.NoiseSource(1, ROWS))
    prediction = un.Denoiser(network, process)(x_t, t)
    found = rate(prediction, process, x0)
    in_chunks(many=2**40)
    torch.testing.assert_close(found, rate(prediction, process, x0), rtol=1e-9, atol=1e-9)
    gradients = torch.autograd.grad(found.sum(), list(network.parameters()))
    assert all(bool(value.isfinite().all()) for value in (found, *gradients))


def test_single_precision(in_chunks):
    """The same loss to float32's rounding, of odds from 10^-5 to 10^5."""
    process, network = un.Uniform(SIZE, (LENGTH,)), Network()
    t = torch.logspace(-5, -1e-5, ROWS, dtype=F64)
    x0 = torch.randint(SIZE, (ROWS, LENGTH))
    x_t = process.marginal(x0, t).draw(un.NoiseSource(1, ROWS))
    found = rate(un.Denoiser(network, process)(x_t, t), process, x0)
    exact = rate(un.Denoiser(network.double(), process)(x_t, t), process, x0)
    torch.testing.assert_close(found, exact, rtol=2e-5, atol=2e-5)


def test_the_schedule_has_its_gradient(in_chunks):
    """An exact bound of a learned schedule: the odds are differentiated, too."""
    process = un.Uniform(3, (1,), un.schedules.Learned(hidden=3))
    network = nn.Module()
    network.features = lambda x, t: nn.functional.one_hot(x, 3).double() + t.reshape(-1, 1, 1)
    network.head = nn.Linear(3, 3).double()
    network.forward = lambda x, t: network.head(network.features(x, t))
    objective = un.Objective(un.Denoiser(network, process), exact=True, times=un.Quadrature(4), cutoff=0.05)
    parameters = [p for p in process.parameters() if p.requires_grad]

    def gradients():
        return torch.autograd.grad(objective(torch.tensor([[0], [2]])).diffusion.sum(), parameters)

    found = gradients()
    in_chunks(many=2**40)
    for ours, theirs in zip(found, gradients(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)
    assert max(float(g.abs().max()) for g in found) > 1e-4


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("name", ["masking", "uniform"])
def test_the_library_s_transformer(tied, name, in_chunks, monkeypatch):
    torch.manual_seed(0)
    options = SequenceTransformerConfig(size=SIZE, width=16, layers=1, heads=2, tied=tied)
    network = SequenceTransformer(options).double()
    with torch.no_grad():  # the last layer starts at 0
        (network.project if tied else network.out).weight.normal_()
    objective = un.Objective(un.Denoiser(network, PROCESSES[name]()))
    x0 = torch.randint(SIZE, (ROWS, LENGTH))
    seen = Watched(monkeypatch)
    found = losses(objective, x0)
    assert not seen.calls
    in_chunks(many=2**40)
    for ours, theirs in zip(found, losses(objective, x0), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


def test_under_autocast(in_chunks):
    """Rounding of bfloat16 moves a loss of about 100 nats by less than 1 %, in chunks as at once."""
    objective = un.Objective(un.Denoiser(Network(), un.Masking(SIZE, (LENGTH,))))
    x0 = torch.randint(SIZE, (ROWS, LENGTH))
    exact = losses(objective, x0)
    for many in (0, 2**40):
        in_chunks(many)
        with torch.autocast("cpu", torch.bfloat16):
            found = losses(objective, x0)
        for ours, theirs in zip(found, exact, strict=True):
            assert ours.dtype == theirs.dtype
            assert float((ours - theirs).norm().detach()) < 0.02 * float(theirs.norm().detach())


COMPILED = """
import torch, unnoise as un
from unnoise.objectives import closed_forms
import test_streamed_heads as t

closed_forms.CHUNK = 0
torch.manual_seed(0)
network = t.Network().double()
objective = un.Objective(un.Denoiser(network, un.Uniform(t.SIZE, (t.LENGTH,))))
x0 = torch.randint(t.SIZE, (t.ROWS, t.LENGTH))
wanted = t.losses(objective, x0)
network.features = torch.compile(network.features, backend="aot_eager")
for ours, theirs in zip(t.losses(objective, x0), wanted, strict=True):
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-11)
print("same")
"""


@pytest.mark.conformance
def test_beside_a_compiled_network():
    """The shape checks of the tests' import hook cannot be traced, so this runs without them."""
    here = os.path.dirname(__file__)
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([here, os.path.dirname(os.path.dirname(un.__file__))])}
    done = subprocess.run([sys.executable, "-c", COMPILED], env=given, capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "same", done.stderr[-2000:]
