"""`torch.compile(fullgraph=True)` on the objective of every family: the same values and gradients, for any seed.

The shape checks of the tests' import hook cannot be traced, so the compiled part runs in a process without them.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import unnoise as un
from test_compile import ROWS, Net, cases
from unnoise.tree import batch_size, map_leaves

COUNTS = ("death", "immigration")
NUMBERS = torch.randn(ROWS, 2, generator=torch.Generator().manual_seed(1))
LETTERS = torch.tensor([[0, 1], [2, 2], [1, 0], [2, 1]])


def data(process, x):
    """States as data: a mask stands for none."""
    if process.leaves:
        return {name: data(leaf, x[name]) for name, leaf in process.leaves.items()}
    return x.clamp_max(process.space.size - 1) if hasattr(process.space, "size") else x


def families():
    return {
        name: (un.Objective(denoiser), data(denoiser.process, x))
        for name, (denoiser, x) in cases().items()
        if name not in COUNTS
    }


def variants():
    """Other weightings, times, decoders, schedules and chains."""
    numbers, letters = un.Denoiser(Net(), un.Gaussian((2,))), un.Denoiser(Net(3), un.Masking(3, (2,)))
    learned = un.Denoiser(Net(), un.Gaussian((2,), un.schedules.Learned(hidden=3)))
    chain = un.Denoiser(Net(3), un.Chain(un.Uniform(3, (2,)), 8))
    both, x = cases()["product"]
    x = data(both.process, x)
    return {
        "simple": (un.Objective(numbers, un.weightings.Simple()), NUMBERS),
        "network decoder": (un.Objective(numbers, decoder=un.decoders.GaussianDecoder(network=True)), NUMBERS),
        "three draws": (un.Objective(numbers, times=un.Importance(draws=3)), NUMBERS),
        "quadrature": (un.Objective(numbers, times=un.Quadrature(4)), NUMBERS),
        "learned": (un.Objective(learned, times=un.Stratified()), NUMBERS),
        "by generators": (un.Objective(letters, fast=False), LETTERS),
        "cross-entropy": (un.Objective(letters, un.weightings.CrossEntropy()), LETTERS),
        "exact": (un.Objective(letters, exact=True), LETTERS),
        "chain of categories": (un.Objective(chain), LETTERS),
        "mixed times": (un.Objective(both, times=un.MixedTimes()), x),
    }


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x, t):
        return -0.5 * self.scale * x.square().sum(1)


def refused():
    """What docs/extending-denoiser.md says cannot be one graph."""
    found = {name: (un.Objective(cases()[name][0]), cases()[name][1]) for name in COUNTS}
    sparse = un.RateMatrix(un.rate_matrices.nearest_neighbour(3).to_sparse(), (2,))
    matrices = (0.7 * torch.eye(3) + 0.1).double().expand(4, 3, 3).clone()
    found["sparse rates"] = un.Objective(un.Denoiser(Net(3), sparse)), LETTERS
    found["matrix chain"] = un.Objective(un.Denoiser(Net(3), un.MatrixChain(matrices, (2,)))), LETTERS
    custom = un.schedules.Custom(lambda t: 1 - t, lambda t: t)
    found["custom schedule"] = un.Objective(un.Denoiser(Net(), un.Gaussian((2,), custom))), NUMBERS
    laws = [torch.tensor([0.2, 0.3, 0.5]), torch.tensor([0.6, 0.2, 0.2])]
    mixture = un.Mixture(3, (2,), laws=laws, weights=lambda t: torch.stack([t, 1 - t], -1))
    found["mixture"] = un.Objective(un.Denoiser(Net(3), mixture)), LETTERS
    found["energy"] = un.Objective(un.Denoiser(Potential(), un.Gaussian((2,)), un.Energy)), NUMBERS
    return found


def graded(f, objective, x0, seed):
    """Losses and the gradients of their mean."""
    parameters = [p for p in objective.parameters() if p.requires_grad]
    loss = f(x0, torch.tensor(seed))
    return [loss, *torch.autograd.grad(loss.mean(), parameters)]


def compared(objective, x0, backend, **close):
    """The compiled loss and its gradients against the others, for several seeds in one graph."""

    def loss(x0, seed):
        return objective(x0, un.NoiseSource(seed, batch_size(x0))).loss

    wanted = [graded(loss, objective, x0, seed) for seed in range(3)]
    assert not torch.equal(wanted[0][0], wanted[1][0]) or objective.exact or isinstance(objective.times, un.Quadrature)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend=backend)
    for seed, right in enumerate(wanted):
        with torch._dynamo.config.patch(error_on_recompile=seed > 0):
            found = graded(compiled, objective, x0, seed)
        for ours, theirs in zip(found, right, strict=True):
            torch.testing.assert_close(ours, theirs, **(close or {"rtol": 1e-6, "atol": 1e-6}))


def compiled_families():
    for name, (objective, x0) in families().items():
        compared(objective, x0, "aot_eager" if name in ("numbers", "masking") else "eager")
        print(name)


def compiled_variants():
    for name, (objective, x0) in variants().items():
        compared(objective, x0, "eager")
        print(name)


def compiled_whole():
    """The module itself, whose noise is fresh: from torch's generator, as without a graph; then another batch."""
    for name in ("numbers", "masking"):
        objective, x0 = families()[name]
        torch._dynamo.reset()
        compiled = torch.compile(objective, fullgraph=True, backend="eager")
        for rows in (x0, map_leaves(lambda v: torch.cat([v, v[:3]]), x0)):
            torch.manual_seed(4)
            ours = [compiled(rows) for _ in range(2)]
            torch.manual_seed(4)
            for found in ours:
                right = objective(rows)
                torch.testing.assert_close(found.terms, right.terms)
            assert not torch.equal(ours[0].total, ours[1].total)
        print(name)


def compiled_refused():
    for name, (objective, x0) in refused().items():
        objective(x0)
        torch._dynamo.reset()
        try:
            torch.compile(objective, fullgraph=True, backend="eager")(x0)
        except torch._dynamo.exc.TorchDynamoException:
            print(name)


def compiled_by_inductor():
    objective, x0 = families()["numbers"]
    compared(objective, x0, "inductor", rtol=1e-5, atol=1e-6)
    print("numbers")


def printed(name):
    here = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"import test_compile_objectives as t; t.{name}()"]
    done = subprocess.run(command, cwd=Path(__file__).parent, env=here, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    return done.stdout.split("\n")[:-1]


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("compiled_families", families),
        ("compiled_variants", variants),
        ("compiled_refused", refused),
        ("compiled_whole", lambda: ["numbers", "masking"]),
    ],
)
def test_compiled_objectives_say_the_same(name, listed):
    assert printed(name) == list(listed())


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("g++") is None, reason="no compiler")
def test_an_objective_by_inductor():
    assert printed("compiled_by_inductor") == ["numbers"]
