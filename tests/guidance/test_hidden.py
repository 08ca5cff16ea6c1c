"""What a model knows by its state alone serves both sides of guidance: with it in place, and hidden.

Of an exact denoiser both are laws that can be summed up; guided by particles the law is p(x | y)^g p(x)^(1 - g).
"""

import random

import pytest
import torch

import unnoise as un
from unnoise.data.table import Table
from unnoise.guidance.hidden import Hidden, WithoutKnown
from unnoise.guidance.steering import Steering, drawn
from unnoise.oracles import CategoricalLeaf, Components

JOBS, SEXES, CITIES = ("cook", "nurse", "pilot"), ("F", "M"), ("A", "B", "C", "D")
P = torch.rand(24, generator=torch.Generator().manual_seed(0)).double().square() + 0.01
P = (P / P.sum()).reshape(3, 2, 4)  # by job, sex, city
MEANS = torch.linspace(-2, 2, 24).double().reshape(3, 2, 4)  # of the number
N = 1000
OPTIONS = {"given": {"sex": "F"}, "seed": 0, "device": "cpu", "steps": 16}
SEX = torch.tensor([False, True, False])


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder, g = tmp_path_factory.mktemp("hidden"), random.Random(0)
    lines = [f"{g.choice(JOBS)},{g.choice(SEXES)},{g.choice(CITIES)}" for _ in range(500)]
    (folder / "labels.csv").write_text("\n".join(["job,sex,city", *lines]) + "\n")
    return Table.fit(folder / "labels.csv")[0]


def labels(table):
    process = table.process()
    return Components(process, P.flatten(), {"categories": CategoricalLeaf.points(process.leaves["categories"].space)})


def mixed():
    process = un.Product(c=un.Masking([3, 2, 4], (3,)), z=un.Gaussian((1,)))
    return un.oracles.conditional_gaussian(process, P.flatten(), MEANS.reshape(24, 1), torch.ones(24, 1, 1).double() * 0.3)


def test_labels_with_one_of_them_hidden_have_the_law_of_the_rest(table):
    model = labels(table)
    mask = model.process.leaves["categories"].mask
    x = torch.tensor([[mask, 0, 2], [mask, 1, mask], [1, 0, mask]])
    t = torch.full((3,), 0.6).double()
    said = WithoutKnown(model, Hidden(model.process, {"categories": SEX}))({"categories": x}, t)["categories"]
    found = said.logits.log_softmax(-1).exp()
    rest = P.sum(1)
    assert torch.equal(said.x_t, x)  # it is asked about what is there
    for row, place, wanted in ((0, 0, rest[:, 2]), (1, 0, rest.sum(1)), (1, 2, rest.sum(0)), (2, 2, rest[1])):
        assert (found[row, place, : len(wanted)] - wanted / wanted.sum()).abs().max() < 1e-12
    given = P[:, 0, 2] / P[:, 0, 2].sum()
    assert (given - rest[:, 2] / rest[:, 2].sum()).abs().max() > 0.05  # which is another law


def test_numbers_and_labels_hide_one_another():
    model = mixed()
    mask, t = model.process.leaves["c"].mask, torch.full((1,), 0.5).double()
    x = {"c": torch.tensor([[mask, 0, 2]]), "z": torch.tensor([[0.7]], dtype=torch.float64)}
    alpha, sigma = (
        float(f(t)) for f in (model.process.leaves["z"].schedule.alpha, model.process.leaves["z"].schedule.sigma)
    )
    spread = (alpha**2 * 0.3 + sigma**2) ** 0.5

    def score(p, means):
        law = (
            p
            / p.sum()
            * torch.distributions.Normal(alpha * means, spread).log_prob(torch.tensor(0.7, dtype=torch.float64)).exp()
        )
        return float((law * (alpha * means - 0.7)).sum() / law.sum() / spread**2)

    hidden = WithoutKnown(model, Hidden(model.process, {"c": SEX}))(x, t)
    assert float(hidden["z"].to(un.Score).value) == pytest.approx(score(P[:, :, 2], MEANS[:, :, 2]), abs=1e-9)
    assert float(model(x, t)["z"].to(un.Score).value) == pytest.approx(score(P[:, 0, 2], MEANS[:, 0, 2]), abs=1e-9)

    observed = {"c": t, "z": torch.zeros(1).double()}
    shown = model(x, observed)["c"].logits[0, 0].log_softmax(-1).exp()
    unseen = WithoutKnown(model, Hidden(model.process, {"z": torch.tensor([True])}))(x, observed)
    found = unseen["c"].logits[0, 0].log_softmax(-1).exp()[:3]
    assert (found - P[:, 0, 2] / P[:, 0, 2].sum()).abs().max() < 1e-9
    assert (shown[:3] - found).abs().max() > 0.1
    assert torch.equal(unseen["z"].x_t, x["z"]) and torch.equal(unseen.t["z"], observed["z"])


def counted(x):
    return torch.bincount(x[:, 0] * 4 + x[:, 2], minlength=12).double() / len(x)


def wanted(weight):
    given, rest = P[:, 0] / P[:, 0].sum(), P.sum(1)
    law = given**weight * rest ** (1 - weight)
    return (law / law.sum()).flatten(), float(law.sum().log())


def off_by(found, law):
    """The largest difference in standard errors of so many draws."""
    return float(((found - law).abs() / (law * (1 - law) / N).sqrt()).max())


def test_guided_by_particles_the_law_is_the_one_that_is_named(table):
    """12 shares within 4.5 standard errors (a false alarm in 12,000 runs), its sum within 4 and 0.01."""
    law, log_z = wanted(3.0)
    x, info = drawn(labels(table), table, N, Steering(guide=3.0, particles=6), **OPTIONS)
    assert bool((x["categories"][:, 1] == 0).all())
    assert off_by(counted(x["categories"]), law) < 4.5
    found, error = info.particles.estimate()
    assert abs(found - log_z) < 4 * error + 0.01 < 0.1


def test_at_weight_1_nothing_changes_and_at_0_nothing_is_given(table):
    bare, _ = drawn(labels(table), table, 50, Steering(), **OPTIONS)
    one, _ = drawn(labels(table), table, 50, Steering(guide=1.0), **OPTIONS)
    assert torch.equal(bare["categories"], one["categories"])
    zero, _ = drawn(labels(table), table, N, Steering(guide=0.0), **OPTIONS)
    assert off_by(counted(zero["categories"]), P.sum(1).flatten()) < 4.5
    assert off_by(counted(zero["categories"]), wanted(1.0)[0]) > 6


class Bare(Hidden):
    """Planted: nothing is hidden."""

    def query(self, x_t, t, condition):
        return x_t, t, condition


def test_a_side_that_is_shown_everything_is_noticed(table, monkeypatch):
    from unnoise.guidance import steering

    monkeypatch.setattr(steering, "Hidden", Bare)
    law, _ = wanted(3.0)
    x, _ = drawn(labels(table), table, N, Steering(guide=3.0, particles=2), **OPTIONS)
    assert off_by(counted(x["categories"]), law) > 6


def test_one_call_of_the_network_in_a_step(table):
    """The two sides go together: twice as many rows, no more calls."""
    model, asked = labels(table), []
    inner = un.Denoiser(Counting(asked), model.process)
    drawn(inner, table, 5, Steering(guide=2.0), given={"sex": "F"}, seed=0, device="cpu")
    guided = list(asked)
    asked.clear()
    drawn(inner, table, 5, Steering(), given={"sex": "F"}, seed=0, device="cpu")
    assert len(guided) == len(asked) and guided == [2 * rows for rows in asked]


class Counting(torch.nn.Module):
    def __init__(self, asked):
        super().__init__()
        self.asked = asked

    def forward(self, x, t):
        self.asked.append(len(x["categories"]))
        return {"categories": torch.zeros(*x["categories"].shape, 4)}


def test_misuse_is_named(table):
    model = mixed()
    with pytest.raises(ValueError, match=r"hidden names \['q'\]; the leaves are \['c', 'z'\]"):
        Hidden(model.process, {"q": SEX})
    two = un.Product(a=un.Gaussian((2,)), b=un.Masking(2, (1,)))
    with pytest.raises(ValueError, match="only a part of the leaf 'a' is known"):
        Hidden(two, {"a": torch.tensor([True, False])})
    with pytest.raises(ValueError, match="weaker is told and shown the same"):
        un.guidance.ClassifierFree(model, 2.0, weaker=model, hidden=Hidden(model.process, {"c": SEX}))
    with pytest.raises(ValueError, match="guide = 2 leads towards what is given: give something"):
        drawn(labels(table), table, 5, Steering(guide=2.0), seed=0)
    with pytest.raises(ValueError, match="guide = nan: it must be a number"):
        drawn(labels(table), table, 5, Steering(guide=float("nan")), given={"sex": "F"}, seed=0)
