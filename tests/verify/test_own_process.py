"""A process of one's own is asked for its prior draws, moves and decoder, and a generator for its drawn jumps: each mistake
fails a row of its own."""

import importlib
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.verify.drawn_laws import jump_checks
from unnoise.verify.generators import wave
from unnoise.verify.own_process import own_process_checks
from unnoise.verify.rows import Place
from unnoise.verify.subjects import subject_of

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@pytest.fixture
def circle(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("circle")


def right(circle):
    return circle.Brownian()


def generous(circle):
    """The decoder is 2 nats too good."""

    class Generous(circle.Brownian):
        pass

    class Better(circle.Backwards):
        def nll(self, *arguments):
            return super().nll(*arguments) - 2.0

    un.objectives.default_decoder.register(Generous)(lambda process: Better())
    return Generous()


def narrow(circle):
    """Prior draws lie closer together than the prior's density says."""

    class Narrow(circle.UniformAngle):
        def draw(self, noise):
            return 0.8 * super().draw(noise)

    class Priored(circle.Brownian):
        def prior(self, rows, dtype=None, device=None):
            return Narrow(rows, dtype, device)

    return Priored()


def on(circle, space):
    class Elsewhere(circle.Brownian):
        def __init__(self):
            super().__init__()
            self.space = self.state_space = space((1,))

    return Elsewhere()


def still(circle):
    """A move without noise."""

    class Still(circle.Circle):
        def move(self, frozen, local, x, h, noise):
            return super().move({**frozen, "diffusion": 0 * frozen["diffusion"]}, local, x, h, noise)

    return on(circle, Still)


def open_ended(circle):
    """A space that does not wrap."""
    return on(circle, un.Euclidean)


def failed(make, circle):
    return [row.quantity for row in own_process_checks(subject_of(make(circle), "x")) if not row.ok]


def test_the_right_process_passes(circle):
    rows = list(own_process_checks(subject_of(right(circle), "x")))
    assert len(rows) >= 7 and all(row.verdict == "ok" for row in rows)


@pytest.mark.conformance
@pytest.mark.parametrize(
    ("make", "quantity"),
    [
        (generous, "int exp(-bound) <= 1"),
        (narrow, "means over prior draws"),
        (still, "order of E phi(X_h)"),
        (open_ended, "a move leads where a transition does"),
    ],
)
def test_a_mistake_fails_its_row(make, quantity, circle):
    found = failed(make, circle)
    assert found and all(told.startswith((quantity, "a move leads")) for told in found), found
    assert any(told.startswith(quantity) for told in found)


@pytest.mark.parametrize(
    "process",
    [un.Masking(3, (2,)), un.Uniform(3, (1,)), un.Gaussian((1,)), un.Thinning((1,), immigration=1.3)],
    ids=lambda process: type(process).__name__,
)
def test_the_librarys_own_pass(process):
    rows = list(own_process_checks(subject_of(process, "x")))
    assert len(rows) > 1 and all(row.ok for row in rows)


class Hops(un.JumpKernel):
    """To x + 1 or x - 1, on nodes."""

    steps = torch.tensor([1.0, -1.0], dtype=torch.float64)

    def log_rate(self, x, y):
        return torch.where((y - x)[:, 0] > 0, 0.5, -0.5).double()

    def nodes(self, x):
        return x.unsqueeze(1) + self.steps.reshape(1, 2, 1), torch.zeros(len(x), 2, dtype=torch.float64)


class Astray(Hops):
    def draw(self, x, noise):
        return x + 1


@pytest.mark.parametrize(("kernel", "wrong"), [(Hops(), False), (Astray(), True)], ids=["as said", "astray"])
def test_jumps_are_drawn_as_their_nodes_say(kernel, wrong):
    generator = un.Generator(un.Euclidean((1,)), lambda x: un.Local(jumps=kernel))
    points = torch.linspace(-1, 1, 5, dtype=torch.float64).unsqueeze(1)
    rows = list(jump_checks(generator, points, Place("x"), [wave(k) for k in range(3)]))
    assert len(rows) == 3 and any(not row.ok for row in rows) == wrong


def test_a_process_by_its_generator_alone_is_verified_and_steps_of_another_spread_are_seen():
    """The page's own passes; steps that are drawn with half of the spread that their density says fail a named row."""
    from unnoise.verify.simulated_paths import simulated_rows

    def local(x, t):
        return un.Local(drift=-x, diffusion=2 * torch.ones_like(x))

    def prior(rows):
        return un.laws.Normal(torch.zeros(rows, 1, dtype=torch.float64), torch.ones((), dtype=torch.float64))

    class HalfDrawn(un.laws.Normal):
        def draw(self, noise):
            return self.mean + 0.5 * (super().draw(noise) - self.mean)

    class Halved(un.Euclidean):
        def step_law(self, local, x, h):
            law = super().step_law(local, x, h)
            return HalfDrawn(law.mean, law.std)

    right, wrong = (
        [row for row in simulated_rows(un.Simulated(space, local, prior, steps=40), "own") if not row.ok]
        for space in (un.Euclidean((1,)), Halved((1,)))
    )
    assert not right, right
    assert "E[dQ/dP] = 1 along eight steps, in standard errors" in {row.quantity for row in wrong}
