"""Rows that satisfy a rule have the law of the model given the rule, whichever way they are drawn: against the exact law of
two labels and a number that depends on both, sampled by its exact denoiser."""

import random
from math import log

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data.table import Table
from unnoise.guidance import ruled
from unnoise.guidance.allowed import allowed
from unnoise.guidance.first_labels import FirstLabels
from unnoise.guidance.rules import ColumnRule
from unnoise.guidance.steering import Steering, drawn

P = torch.tensor([[0.05, 0.3], [0.4, 0.05], [0.03, 0.17]]).double()
MEANS, VARIANCE = torch.tensor([-1.0, 0.8, 0.3, -0.4, 1.2, 0.0]).double(), 0.4
N = 2000
RULES = [
    "wage >= 6000 and job != 'cook'",
    "job != 'cook' and sex == 'F'",
    "wage < 3000 or sex == 'M' and wage > 9000",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    g, path = random.Random(0), tmp_path_factory.mktemp("ruled") / "t.csv"
    rows = [f"{g.choice(['cook', 'nurse', 'pilot'])},{g.choice('FM')},{g.randint(0, 10_000)}" for _ in range(600)]
    path.write_text("job,sex,wage\n" + "\n".join(rows) + "\n")
    return Table.fit(path)[0]


@pytest.fixture(scope="module")
def model(table):
    return un.oracles.conditional_gaussian(
        table.process(), P.flatten(), MEANS.unsqueeze(1), torch.full((6, 1, 1), VARIANCE).double()
    )


def exact(table, rule):
    """The probability of the rule, and of each pair of labels and half of the numbers given it: by quadrature over scores.

    The halves are those above and below the median score of the pair."""
    found, columns = ColumnRule(rule, table), table.rule_columns()
    z = torch.linspace(-9, 9, 40_001).double()
    values, weight = {"wage": columns["wage"].at(z.numpy())}, z[1] - z[0]
    cells = torch.zeros(6, 2).double()
    for i in range(6):
        labels = {"job": np.full(len(z), float(i // 2)), "sex": np.full(len(z), float(i % 2))}
        holds = torch.as_tensor(found.condition.on({**values, **labels}))
        density = torch.distributions.Normal(MEANS[i], VARIANCE**0.5).log_prob(z).exp() * P.flatten()[i] * holds * weight
        cells[i, 0], cells[i, 1] = density[z < MEANS[i]].sum(), density[z >= MEANS[i]].sum()
    return float(cells.sum()), cells.flatten() / cells.sum()


def counts(x):
    pair = x["categories"][:, 0] * 2 + x["categories"][:, 1]
    upper = x["wage"][:, 0] >= MEANS[pair]
    return torch.bincount(pair * 2 + upper.long(), minlength=12).double()


def distance(x, law):
    """Pearson's, over cells that expect 5 or more: up to 11 degrees of freedom, above 45 by chance once in 10^5."""
    n, seen = len(x["wage"]), counts(x)
    kept = law * n >= 5
    assert float(seen[law == 0].sum()) == 0
    return float(((seen - n * law).square() / (n * law))[kept].sum())


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("enough", [0.0, 2.0])  # rejection alone, labels first in any case
def test_the_law_is_the_models_own_given_the_rule(table, model, rule, enough, monkeypatch):
    monkeypatch.setattr(ruled, "ENOUGH", enough)
    z, law = exact(table, rule)
    x, info = drawn(model, table, N, Steering(where=rule), seed=1, steps=32)
    assert bool(torch.as_tensor(ColumnRule(rule, table).holds(x)).all())
    assert distance(x, law) < 45
    log_z, error = info.rejection.estimate()
    assert abs(log_z - log(z)) < 4.5 * error + 0.02  # 32 steps are not the process itself
    labels = "job" in rule
    assert info.rejection.way == ("labels first" if labels and enough else "rejection")


@pytest.mark.conformance
def test_mutants_are_noticed(table, model, monkeypatch):
    """Labels in equal shares; a rule that is not looked at; labels that are drawn as if no rule were."""
    rule = RULES[0]
    _, law = exact(table, rule)
    monkeypatch.setattr(ruled, "ENOUGH", 2.0)
    with monkeypatch.context() as patch:
        own = FirstLabels.drawn

        def equal(self, noise):
            return own(FirstLabels(**{**vars(self), "share": torch.full_like(self.share, 1 / len(self.share))}), noise)

        patch.setattr(FirstLabels, "drawn", equal)
        assert distance(drawn(model, table, N, Steering(where=rule), seed=1, steps=32)[0], law) > 100
    with monkeypatch.context() as patch:
        patch.setattr(ColumnRule, "holds", lambda self, x, given=None: np.ones(len(x["wage"]), dtype=bool))
        x, _ = drawn(model, table, N, Steering(where=rule), seed=1, steps=32)
        assert float(counts(x)[law == 0].sum()) > 100


def test_a_sample_is_a_function_of_the_seed_and_its_number(table, model):
    """Whatever the batch, and however many are asked for; another rule has others."""
    wish = Steering(where=RULES[0])
    x, _ = drawn(model, table, 300, wish, seed=2, steps=8)
    again, _ = drawn(model, table, 40, wish, seed=2, steps=8, batch=17)
    assert all(torch.equal(again[leaf], x[leaf][:40]) for leaf in x)
    other, _ = drawn(model, table, 40, wish, seed=3, steps=8)
    assert not torch.equal(other["wage"], x["wage"][:40])


def test_what_is_left_is_said_by_columns(table):
    assert set(allowed(ColumnRule(RULES[0], table), {})) == {"wage", "job"}
