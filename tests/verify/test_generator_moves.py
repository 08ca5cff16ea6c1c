"""The order of a move under a frozen generator: right on every space, and each planted mistake fails a named row."""

import importlib
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.verify import Operators
from unnoise.verify.generator_moves import DRAWS, move_checks
from unnoise.verify.generators import generator_checks, wave
from unnoise.verify.rows import Place

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
TESTS = [wave(k) for k in range(3)]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return lambda name: importlib.import_module(name).operators()


def rows_of(given):
    return list(move_checks(given.generator, given.points, Place("x"), TESTS))


def on(given, cls):
    """The same operators where the space moves in the way of another class."""
    space = object.__new__(cls)
    space.__dict__.update(given.generator.space.__dict__)
    return Operators(un.Generator(space, given.generator.local), given.points)


def still(cls):
    """Nothing spreads."""

    class Still(cls):
        def move(self, frozen, local, x, h, noise):
            return super().move({**frozen, "diffusion": 0 * frozen["diffusion"]}, local, x, h, noise)

    return Still


def loud(cls):
    """sqrt(2 h) times the noise."""

    class Loud(cls):
        def move(self, frozen, local, x, h, noise):
            return super().move({**frozen, "diffusion": 2 * frozen["diffusion"]}, local, x, h, noise)

    return Loud


def undriven(cls):
    class Undriven(cls):
        def move(self, frozen, local, x, h, noise):
            return super().move({**frozen, "drift": 0 * frozen["drift"]}, local, x, h, noise)

    return Undriven


def unthrown(cls):
    """No jump is made."""

    class Unthrown(cls):
        def move(self, frozen, local, x, h, noise):
            return super().move(frozen, un.Local(local.drift, local.diffusion), x, h, noise)

    return Unthrown


@pytest.mark.parametrize("name", ["circle", "sphere", "jump_leaf"])
def test_the_spaces_of_the_pages_move_at_order_one(name, example):
    rows = rows_of(example(name))
    assert len(rows) == 4 and all(row.verdict == "ok" for row in rows)
    assert all(abs(row.ours - 2) < 0.05 and "laid out" in row.note for row in rows[1:])


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("circle", still),
        ("circle", loud),
        ("sphere", still),
        ("sphere", loud),
        ("jump_leaf", still),
        ("jump_leaf", loud),
        ("jump_leaf", undriven),
        ("jump_leaf", unthrown),
    ],
)
def test_a_wrong_move_is_of_order_one_locally(name, wrong, example):
    given = example(name)
    rows = rows_of(on(given, wrong(type(given.generator.space))))[1:]
    assert len(rows) == 3 and all(row.verdict == "FAIL" and abs(row.ours - 1) < 0.2 for row in rows)
    assert all(row.quantity.startswith("order of E phi(X_h) - phi - h L phi") for row in rows)


def test_a_move_that_leaves_the_space_is_named(example):
    given = example("circle")

    class Unwrapped(type(given.generator.space)):
        def project(self, x):
            return x

    given = Operators(given.generator, torch.tensor([[3.1], [-3.14]], dtype=torch.float64))
    (row,) = [row for row in rows_of(on(given, Unwrapped)) if not row.ok]
    assert row.quantity.startswith("a move stays in the space: stopped in check") and "a moved state" in row.note


# --- spaces of the library


def categories():
    return Operators.of(un.Product(a=un.Masking(2, (1,)), b=un.Uniform(3, (2,))).generator(0.4), "x")


def test_categories_are_laid_out_and_twice_the_rates_fail():
    rows = rows_of(categories())
    assert all(row.verdict == "ok" and "laid out" in row.note for row in rows[1:])

    class Hasty(un.spaces.Finite):
        def move(self, frozen, local, x, h, noise):
            return super().move({"rates": 2 * frozen["rates"]}, local, x, h, noise)

    rows = rows_of(on(Operators.of(un.Uniform(3, (2,)).generator(0.4), "x"), Hasty))
    assert [row.verdict for row in rows] == ["ok", "FAIL", "FAIL", "FAIL"]


def numbers(size=8):
    """More coordinates than can be laid out."""
    x = un.NoiseSource(3, 4).normal((size,))
    return Operators(un.Generator(un.Euclidean((size,)), lambda x: un.Local(-x, 1 + 0.5 * torch.sin(x))), x)


def counts():
    return Operators(un.Thinning((2,), immigration=1.0).generator(0.4), torch.tensor([[0, 1], [3, 2], [5, 0], [9, 4]]))


class Doubled(un.spaces.Counts):
    """Twice as many are born."""

    def move(self, frozen, local, x, h, noise):
        return super().move({**frozen, "births": 2 * frozen["births"]}, local, x, h, noise)


@pytest.mark.parametrize(
    ("make", "wrong"), [(numbers, [still(un.Euclidean), loud(un.Euclidean), undriven(un.Euclidean)]), (counts, [Doubled])]
)
def test_what_cannot_be_laid_out_is_drawn(make, wrong):
    given = make()
    rows = rows_of(given)[1:]
    assert all(row.verdict == "ok" and row.note.startswith(f"{DRAWS} draws") for row in rows)
    for cls in wrong:
        assert any(row.verdict == "FAIL" for row in rows_of(on(given, cls))), cls


def test_the_rows_stand_among_those_of_a_generator(example):
    rows = list(generator_checks(example("jump_leaf"), Place("x")))
    assert sum(row.quantity.startswith("order of E phi(X_h)") for row in rows) == 3


def test_what_moves_nothing_is_not_checked():
    idle = un.Generator(un.Euclidean((1,)), lambda x: un.Local(0 * x))
    (row,) = rows_of(Operators(idle, torch.zeros(2, 1, dtype=torch.float64)))
    assert row.verdict == "not checked" and "nothing moves" in row.note
