"""Numbers that many rows share stand where the rest of the row says, and are the same numbers."""

import numpy as np
import pandas as pd
import pytest
import torch

import unnoise as un
from unnoise.data import places
from unnoise.data.places import Places, Scored, fit_places
from unnoise.data.table import Table

R, ROWS = 0.8, 1000
CUTS = torch.tensor([-1.2, -0.4, 0.3, 1.1], dtype=torch.float64)  # five numbers


def latent(rows=ROWS, seed=0):
    source = un.NoiseSource(seed, rows)
    a, b = source.at("a").normal(), source.at("b").normal()
    return a, R * a + (1 - R * R) ** 0.5 * b


def correlation(a, b):
    return float(np.corrcoef(np.asarray(a, float), np.asarray(b, float))[0, 1])


def told():
    """w = Var E[u | number] of the five numbers: the squared fall of the density over an interval, by its probability."""
    ends = torch.cat([torch.tensor([-torch.inf], dtype=torch.float64), CUTS, torch.tensor([torch.inf], dtype=torch.float64)])
    density = (-0.5 * ends.square()).exp() / (2 * torch.pi) ** 0.5
    return float((density.diff().square() / torch.special.ndtr(ends).diff()).sum())


def frame_of(rows=ROWS):
    a, b = latent(rows)
    return pd.DataFrame({"a": torch.bucketize(a, CUTS).numpy(), "b": torch.bucketize(b, CUTS).numpy()})


def table_of(frame):
    import pyarrow as pa

    return Table.of_arrow(pa.Table.from_pandas(frame), {name: "count" for name in ("a", "b") if name in frame})


def test_correlations_of_shared_numbers_are_kept(monkeypatch):
    """By chance alone they are about r w w'; by the rest of the row they are those of the latent scores."""
    frame = frame_of()
    _, x = table_of(frame)
    assert correlation(x["a"][:, 0], x["b"][:, 0]) == pytest.approx(R, abs=0.03)
    monkeypatch.setattr(places, "FEWEST", 10 * ROWS)
    _, x = table_of(frame)
    assert correlation(x["a"][:, 0], x["b"][:, 0]) == pytest.approx(R * told() ** 2, abs=0.04)
    assert R * told() ** 2 < 0.7  # so the two are told apart


def test_a_normal_law_of_the_scores_gives_the_numbers_their_correlation():
    frame = frame_of()
    table, x = table_of(frame)
    z = torch.stack([x["a"][:, 0], x["b"][:, 0]], 1).double()
    source = un.NoiseSource(5, 20_000).normal((2,)) @ torch.linalg.cholesky(z.T.cov()).T + z.mean(0)
    drawn = table.frame({"a": source[:, :1].float(), "b": source[:, 1:].float()})
    assert correlation(drawn["a"], drawn["b"]) == pytest.approx(correlation(frame["a"], frame["b"]), abs=0.02)


def test_no_number_changes():
    g = np.random.default_rng(0)
    frame = frame_of(600).assign(c=np.round(g.normal(size=600), 1), d=g.choice(["x", "y"], 600))
    frame.loc[g.random(600) < 0.2, "c"] = np.nan
    table, x = table_of(frame)
    assert table.places is not None and len(table.places.columns) == 3
    pd.testing.assert_frame_equal(table.frame(x), frame, check_dtype=False)


def test_a_row_is_placed_by_itself_and_as_it_was_after_loading():
    frame = frame_of(500)
    table, x = table_of(frame)
    again = Table.from_json(table.to_json())
    for n in (500, 60):
        y = again.encode_frame(frame.head(n))
        assert all(torch.equal(y[leaf], x[leaf][:n]) for leaf in x)


def scored(z, low, high, own=None, marks=0):
    own = torch.ones_like(z, dtype=torch.bool) if own is None else own
    return Scored(z, low, high, own, torch.zeros(len(z), marks, dtype=torch.float64))


def test_scores_that_nobody_reads():
    """They follow the regression on those that are read, and their density is told exactly."""
    a, b = latent()
    z = torch.stack([a, b], 1)
    own = torch.stack([torch.ones(ROWS, dtype=torch.bool), un.NoiseSource(3, ROWS).uniform() < 0.5], 1)
    z[~own] = un.NoiseSource(4, int((~own).sum())).normal()
    law = fit_places(scored(z, z, z, own))
    placed = law.placed(scored(z, z, z, own))
    assert law.columns == (1,) and torch.equal(placed[own], z[own])
    unread = ~own[:, 1]
    assert float(law.weights[0, 1]) == pytest.approx(R, abs=0.03)
    assert float(law.deviations[0]) == pytest.approx((1 - R * R) ** 0.5, abs=0.03)
    assert correlation(placed[unread, 0], placed[unread, 1]) == pytest.approx(R, abs=0.03)
    normal = torch.distributions.Normal(law.weights[0, 0] + law.weights[0, 1] * placed[:, 0], law.deviations[0])
    exact = torch.where(unread, normal.log_prob(placed[:, 1]), 0.0)
    assert torch.allclose(law.log_fill(scored(placed, z, z, own)), exact, atol=1e-10)


def test_the_fill_of_a_table_is_that_density():
    """Of a column without a law of its places it is standard normal."""
    frame = frame_of(400).astype({"b": "float"})
    frame.loc[un.NoiseSource(3, 400).uniform().numpy() < 0.3, "b"] = np.nan
    table, x = table_of(frame)
    unread = torch.tensor(frame["b"].isna().tolist())
    assert 0 < int(unread.sum()) < 400
    found = table.log_fill(x)
    assert (found[~unread] == 0).all() and (found[unread] != 0).all()
    plain = Table.from_json({**table.to_json(), "places": None})
    z = x["b"][unread, 0].double()
    assert torch.allclose(plain.log_fill(x)[unread], torch.distributions.Normal(0.0, 1.0).log_prob(z).double())
    assert float(found[unread].mean()) > float(plain.log_fill(x)[unread].mean())  # told more sharply, and drawn from it


def test_within_the_interval_by_the_law_of_a_truncated_normal():
    """Its mean, of one column given the other, is known in closed form."""
    n = 20_000
    z = torch.zeros(n, 2, dtype=torch.float64)
    z[:, 1] = 0.5
    low, high = z.clone(), z.clone()
    low[:, 0], high[:, 0] = 0.1, 0.9
    law = Places((0,), torch.tensor([[0.2, 0.0, 1.0]], dtype=torch.float64), torch.tensor([0.6], dtype=torch.float64))
    found = law.placed(scored(z, low, high), sweeps=1)[:, 0]
    edges = (torch.tensor([0.1, 0.9], dtype=torch.float64) - 0.7) / 0.6
    density = (-0.5 * edges.square()).exp() / (2 * torch.pi) ** 0.5
    exact = 0.7 - 0.6 * float(density.diff() / torch.special.ndtr(edges).diff())
    assert float(found.mean()) == pytest.approx(exact, abs=0.006)
    assert bool(((found > 0.1) & (found < 0.9)).all())


def test_far_from_what_is_expected_it_stays_in_its_interval():
    z = torch.tensor([[3.0, -3.0]], dtype=torch.float64).repeat(50, 1)
    low, high = z.clone(), z.clone()
    low[:, 0], high[:, 0] = 2.5, 3.5
    law = Places((0,), torch.tensor([[0.0, 0.0, 9.0]], dtype=torch.float64), torch.tensor([0.1], dtype=torch.float64))
    found = law.placed(scored(z, low, high))[:, 0]
    assert found.isfinite().all() and bool(((found > 2.5) & (found < 3.5)).all())


def test_what_is_left_where_it_is():
    a, b = latent(200)
    z = torch.stack([a, b], 1)
    assert fit_places(scored(z, z, z)) is None  # no interval
    wide = scored(z, z - 0.5, z + 0.5)
    assert fit_places(wide).columns == (0, 1)
    assert fit_places(scored(z[:30], z[:30] - 0.5, z[:30] + 0.5)) is None
    many = z.repeat(6, 1)
    assert fit_places(scored(many[:1000], many[:1000] - 0.5, many[:1000] + 0.5)) is not None
    assert fit_places(scored(many[:1001], many[:1001] - 0.5, many[:1001] + 0.5)) is None
    assert fit_places(scored(z[:, :1], z[:, :1] - 0.5, z[:, :1] + 0.5)) is None  # nothing else in the row
    low, high = z - 0.5, z + 0.5
    low[:120, 0], high[:120, 0] = -1.0, 1.0  # 68 % of a normal law
    assert fit_places(scored(z, low, high)).columns == (1,)


def test_scores_that_nobody_reads_are_no_evidence():
    a, b = latent(200)
    z = torch.stack([a, b], 1)
    own = torch.stack([torch.ones(200, dtype=torch.bool), torch.arange(200) % 2 == 0], 1)
    law = Places((0,), torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64))
    other = torch.stack([a, torch.where(own[:, 1], b, b + 2)], 1)
    found, again = (law.placed(scored(y, z - 1, z + 1, own))[:, 0] for y in (z, other))
    assert torch.equal(found, again)
    read = law.placed(scored(torch.stack([a, b + 2], 1), z - 1, z + 1, own))[:, 0]
    assert ((read - found).abs() > 0.01)[own[:, 1]].any() and torch.equal(read[~own[:, 1]], found[~own[:, 1]])
