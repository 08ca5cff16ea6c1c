"""Labels that are drawn first: their probabilities against those of a law that is known, to rounding."""

import random

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data.base import BadData
from unnoise.data.table import Table
from unnoise.guidance import first_labels as module
from unnoise.guidance.allowed import allowed
from unnoise.guidance.first_labels import Combinations, first_labels
from unnoise.guidance.rules import ColumnRule
from unnoise.noise import NoiseSource
from unnoise.oracles import CategoricalLeaf, Components

JOBS, SEXES, CITIES = ("cook", "nurse", "pilot"), ("F", "M"), ("A", "B", "C", "D")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """Three labels, and the same beside a number."""
    folder, g = tmp_path_factory.mktemp("labels"), random.Random(0)
    rows = [(g.choice(JOBS), g.choice(SEXES), g.choice(CITIES), g.randint(0, 10_000)) for _ in range(500)]
    for name, width in (("labels", 3), ("mixed", 4)):
        lines = [",".join(["job", "sex", "city", "wage"][:width]), *(",".join(map(str, row[:width])) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return Table.fit(folder / "labels.csv")[0], Table.fit(folder / "mixed.csv")[0]


def oracle(table):
    """A denoiser that is exact for a law in which everything depends on everything, and the law of the labels."""
    process = table.process()
    p = torch.rand(24, generator=torch.Generator().manual_seed(0)).double().square() + 0.01
    p = p / p.sum()
    if len(process.leaves) == 1:
        return Components(process, p, {"categories": CategoricalLeaf.points(process.leaves["categories"].space)}), p
    means = torch.linspace(-2, 2, 24).double().unsqueeze(1)
    return un.oracles.conditional_gaussian(process, p, means, 0.3 * torch.ones(24, 1, 1).double()), p


def combinations(table, rule, given=None):
    found = ColumnRule(rule, table)
    return Combinations.of(found, allowed(found, given or {}), given or {})


RULES = [
    ("job == 'pilot'", lambda job, sex, city: job == "pilot"),
    ("job != 'cook' and sex == 'F'", lambda job, sex, city: job != "cook" and sex == "F"),
    (
        "city in ('A', 'D') and (job == 'cook' or sex == 'M')",
        lambda job, sex, city: city in "AD" and (job == "cook" or sex == "M"),
    ),
]


@pytest.mark.parametrize(("rule", "holds"), RULES)
@pytest.mark.parametrize("which", [0, 1])
def test_their_law_is_that_of_the_model_given_the_rule(tables, rule, holds, which):
    table = tables[which]
    model, p = oracle(table)
    listed = combinations(table, rule)
    found = first_labels(model, table, listed, {}, seed=0)
    states = np.stack(np.unravel_index(np.arange(24), (3, 2, 4)), 1)
    right = np.array([holds(JOBS[j], SEXES[s], CITIES[c]) for j, s, c in states])
    assert found.log_probability == pytest.approx(float(p[right].sum().log()), abs=1e-9) and found.error < 1e-9
    for row, share in zip(found.states.numpy(), found.share, strict=True):
        mine = right & (states[:, found.places] == row).all(1)
        assert float(share) == pytest.approx(float(p[mine].sum() / p[right].sum()), abs=1e-9)
    assert float(found.share.sum()) == pytest.approx(1)


def test_drawn_labels_have_that_law(tables):
    """Pearson's of 20,000 rows, up to 11 degrees of freedom: 45 has a chance below 1e-5.  Equal shares, a mutant, fail."""
    model, _ = oracle(tables[0])
    found = first_labels(model, tables[0], combinations(tables[0], RULES[2][0]), {}, seed=0)
    x = found.drawn(NoiseSource(3, torch.arange(20_000)))
    which = (x[:, found.places].unsqueeze(1) == found.states).all(2).int().argmax(1)
    counts = torch.bincount(which, minlength=len(found.share))

    def distance(share):
        return float(((counts - 20_000 * share).square() / (20_000 * share)).sum())

    assert distance(found.share) < 45 < distance(torch.full_like(found.share, 1 / len(found.share)))
    assert found.fixed.tolist() == [i in found.places for i in range(3)]
    assert torch.equal(found.drawn(NoiseSource(3, torch.arange(5, 9))), x[5:9])


@pytest.mark.parametrize("which", [0, 1])
def test_what_is_given_is_taken_into_account(tables, which):
    table = tables[which]
    model, p = oracle(table)
    given = {"sex": "M"}
    listed = combinations(table, "job == 'nurse' or sex == 'F' and city == 'A'", given)
    assert [table.coordinates[place].name for place in listed.places] == ["job", "city"]
    found = first_labels(model, table, listed, given, seed=0)
    joint = p.reshape(3, 2, 4)
    assert found.log_probability == pytest.approx(float((joint[1, 1].sum() / joint[:, 1].sum()).log()), abs=1e-9)


def test_columns_that_do_not_fit_are_left_to_others(tables, monkeypatch):
    monkeypatch.setattr(module, "COMBINATIONS", 4)
    listed = combinations(tables[0], "sex == 'F' and job != 'cook' and city != 'A'")
    assert [tables[0].coordinates[place].name for place in listed.places] == ["sex", "job"]
    assert not combinations(tables[1], "wage > 5000 or sex == 'F'").places
    assert not combinations(tables[1], "wage > 5000").places


def test_labels_that_exclude_one_another(tables):
    with pytest.raises(BadData, match="no values of city, job satisfy this together|no values of job, city satisfy"):
        combinations(tables[0], "(job == 'cook' or city == 'A') and job != 'cook' and city != 'A'")
