"""`torch.compile(fullgraph=True)` and `torch.func.vmap` on the denoiser of every family: the same values.

The shape checks of the tests' import hook cannot be traced, so the compiled part runs in a process without them.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import checks

ROWS = 4
T = torch.linspace(0.2, 0.9, ROWS, dtype=torch.float64)


class Net(nn.Module):
    def __init__(self, size=None):
        super().__init__()
        self.size, self.scale = size, nn.Parameter(torch.tensor(0.5))

    def forward(self, x, t, previous=None):
        h = x.float() * self.scale + t.reshape(-1, *[1] * (x.ndim - 1)).float()
        h = h if self.size is None else h.unsqueeze(-1) * torch.arange(1, self.size + 1)
        return h if previous is None else h + previous


class Parts(Net):
    def features(self, x, t):
        return Net.forward(self, x, t)

    def head(self, h):
        return torch.sin(h)

    def forward(self, x, t):
        return self.head(self.features(x, t))


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Net(), Net(3)

    def forward(self, x, t):
        return {"a": self.a(x["a"], t), "b": self.b(x["b"], t)}


def numbers():
    return torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(0))


def letters(size):
    return torch.randint(size, (ROWS, 2), generator=torch.Generator().manual_seed(0))


def cases():
    neighbours, chain = un.rate_matrices.nearest_neighbour(3), un.Chain(un.Gaussian((2,)), [0.1, *T.tolist()])
    correlated = un.Gaussian((2,), covariance=[[1.0, 0.5], [0.5, 1.0]])
    both = un.Product(a=un.Gaussian((2,)), b=un.Masking(3, (2,)))
    return {
        "numbers": (un.Denoiser(Net(), un.Gaussian((2,))), numbers()),
        "correlated": (un.Denoiser(Net(), correlated, un.Score), numbers()),
        "chain": (un.Denoiser(Net(), chain, un.Mean), numbers()),
        "self-conditioned": (un.Denoiser(Net(), un.Gaussian((2,)), self_condition=True), numbers()),
        "masking": (un.Denoiser(Net(3), un.Masking(3, (2,))), letters(4)),
        "in two parts": (un.Denoiser(Parts(3), un.Masking(3, (2,))), letters(4)),
        "uniform": (un.Denoiser(Net(3), un.Uniform(3, (2,)), un.RawPosterior), letters(3)),
        "interpolation": (un.Denoiser(Net(3), un.Interpolation(3, (2,), torch.tensor([0.5, 0.3, 0.2]))), letters(3)),
        "rate matrix": (un.Denoiser(Net(3), un.RateMatrix(neighbours, (2,)), un.Rates), letters(3)),
        "death": (un.Denoiser(Net(), un.Thinning((2,))), letters(5)),
        "immigration": (un.Denoiser(Net(2), un.Thinning((2,), immigration=1.0)), letters(5)),
        "product": (un.Denoiser(Both(), both), {"a": numbers(), "b": letters(4)}),
    }


def value(prediction):
    """The numbers of a prediction."""
    if isinstance(prediction, un.predictions.ProductPrediction):
        return {name: value(leaf) for name, leaf in prediction.leaves.items()}
    return prediction.value


def same(ours, theirs):
    un.tree.map_leaves(lambda a, b: torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6), ours, theirs)


def compiled():
    """Every family as one graph."""
    for name, (denoiser, x) in cases().items():
        torch._dynamo.reset()
        found = torch.compile(lambda x, t, d=denoiser: value(d(x, t)), fullgraph=True, backend="eager")(x, T)
        same(found, value(denoiser(x, T)))
        print(name)


def test_compiled_denoisers_say_the_same():
    here = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", "import test_compile; test_compile.compiled()"]
    done = subprocess.run(command, cwd=Path(__file__).parent, env=here, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0 and done.stdout.split("\n")[:-1] == list(cases()), done.stdout[-500:] + done.stderr[-3000:]


@pytest.mark.parametrize("name", cases())
def test_mapped_denoisers_say_the_same(name):
    denoiser, x = cases()[name]

    def row(x, t):
        told = denoiser(un.tree.map_leaves(lambda v: v.unsqueeze(0), x), t.unsqueeze(0))
        return un.tree.map_leaves(lambda v: v.squeeze(0), value(told))

    same(torch.func.vmap(row)(x, T), value(denoiser(x, T)))


def test_derivatives_of_mapped_denoisers():
    denoiser, x = un.Denoiser(Net(), un.Gaussian((2,))), numbers()

    def row(x, t):
        return value(denoiser(x.unsqueeze(0), t.unsqueeze(0))).squeeze(0)

    slopes = torch.func.vmap(torch.func.jacrev(row))(x, T)
    torch.testing.assert_close(slopes, (0.5 * torch.eye(2)).expand(ROWS, 2, 2))


def test_value_checks_can_be_switched_off_as_a_whole():
    denoiser, bad = un.Denoiser(Net(), un.Gaussian((2,))), torch.full((ROWS, 2), torch.nan)
    with checks.values(False):
        assert bool(denoiser(bad, T).value.isnan().all())
        with pytest.raises(ValueError, match="expected"):  # shapes are still looked at
            denoiser(bad[:, :1], T)
    with pytest.raises(ValueError, match="nan"):
        denoiser(bad, T)
