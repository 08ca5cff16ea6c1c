"""Which columns have straight scores, where the likelier choice is known."""

import csv
from math import e, log, pi

import numpy as np
import pytest

from unnoise.data.score_maps import distance_from_normal
from unnoise.data.straight import Straight
from unnoise.data.table import Table

N = 400


def straight(path, columns):
    """The names of the columns with straight scores."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])
    table, _ = Table.fit(path)
    assert Table.from_json(table.to_json()).columns[0].scores is None or [
        type(column.scores) for column in Table.from_json(table.to_json()).columns
    ] == [type(column.scores) for column in table.columns]
    return [column.name for column in table.columns if isinstance(column.scores, Straight)]


def two_kinds(g):
    """Lengths of two kinds, normal each and far apart."""
    kind = g.integers(0, 2, N)
    return np.array(["a", "b"])[kind], (5 * kind + g.normal(size=N)).round(2)


@pytest.mark.parametrize(
    ("draw", "nats"),
    [
        (lambda g: g.normal(3, 2, 20_000), 0.0),
        (lambda g: g.uniform(size=20_000), 0.5 * log(2 * pi * e / 12)),
        (lambda g: g.exponential(size=20_000), 0.5 * log(2 * pi * e) - 1),
        (lambda g: g.laplace(size=20_000), 0.5 * log(2 * pi * e * 2) - 1 - log(2)),
    ],
)
def test_the_distance_from_normal_of_known_laws(draw, nats):
    """1/2 log(2 pi e variance) less the entropy."""
    assert distance_from_normal(draw(np.random.default_rng(0))) == pytest.approx(nats, abs=0.015)


def test_kinds_that_lie_apart_given_their_label(tmp_path):
    kind, length = two_kinds(np.random.default_rng(0))
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": length}) == ["length"]


def test_alone_they_are_scored_by_quantiles(tmp_path):
    _, length = two_kinds(np.random.default_rng(0))
    assert straight(tmp_path / "a.csv", {"length": length}) == []


def test_what_follows_another_column_goes_with_it(tmp_path):
    """Beside a straight column, of which it is a part, a normal one is straight too: what is left of it is less."""
    g = np.random.default_rng(0)
    kind, length = two_kinds(g)
    part = (length / 3 + 0.05 * g.normal(size=N)).round(3)
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": length, "part": part}) == ["length", "part"]


def test_curved_laws_and_normal_ones_are_scored_by_quantiles(tmp_path):
    g = np.random.default_rng(0)
    x = g.normal(size=N)
    columns = {"x": x.round(3), "exp": np.exp(2 * x + 0.1 * g.normal(size=N)).round(3), "free": g.normal(size=N)}
    assert straight(tmp_path / "a.csv", columns) == []


def test_repeated_numbers_on_no_grid_are_scored_by_quantiles(tmp_path):
    """A straight score would have no density there, however well the label tells it."""
    kind, length = two_kinds(np.random.default_rng(0))
    free = length + np.random.default_rng(1).uniform(size=N)
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": free}) == ["length"]
    free[: N // 2], kind[: N // 2] = free[N // 2 :], kind[N // 2 :].copy()
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": free}) == []


def test_numbers_on_a_grid_that_is_not_written_as_one_come_back(tmp_path):
    kind, length = two_kinds(np.random.default_rng(0))
    path = tmp_path / "a.csv"
    odd = length * np.pi
    _, first = np.unique(odd, return_index=True)
    assert straight(path, {"kind": kind[first], "length": odd[first]}) == ["length"]
    table, x = Table.fit(path)
    assert np.array_equal(table.frame(x)["length"], odd[first])


def test_missing_cells_and_large_tables(tmp_path, monkeypatch):
    g = np.random.default_rng(0)
    kind, length = two_kinds(g)
    texts = np.where(g.random(N) < 0.02, "", length.astype(str))
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": texts}) == ["length"]
    monkeypatch.setattr("unnoise.data.score_maps.MOST_ROWS", N - 1)
    assert straight(tmp_path / "a.csv", {"kind": kind, "length": texts}) == []


def test_labels_alone(tmp_path):
    assert straight(tmp_path / "a.csv", {"kind": ["a", "b"] * 20}) == []
