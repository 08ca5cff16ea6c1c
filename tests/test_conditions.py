"""One rule of conditions: a tensor has one entry per row, what has none is marked, and nothing is guessed from a length."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import conditions

N = 4
LABEL = torch.arange(N)
NESTED = {
    "label": LABEL,
    "site": {"place": torch.arange(2.0 * N).reshape(N, 2), "word": "north"},
    "scale": 2.0,
    "none": None,
}


def test_nested_dicts_are_sliced_like_their_tensors():
    told = conditions.checked(NESTED, N)
    index = torch.tensor([2, 0])
    some = conditions.rows_of(told, index)
    assert torch.equal(some["label"], LABEL[index]) and torch.equal(some["site"]["place"], NESTED["site"]["place"][index])
    assert some["site"]["word"] == "north" and some["scale"] == 2.0 and some["none"] is None
    part = conditions.rows_of(told, slice(1, 3))
    assert torch.equal(part["site"]["place"], NESTED["site"]["place"][1:3])
    twice = conditions.tiled(told, 2)
    assert torch.equal(twice["site"]["place"], torch.cat([NESTED["site"]["place"]] * 2)) and twice["scale"] == 2.0
    assert torch.equal(conditions.rows_of(twice, slice(N, 2 * N))["label"], LABEL)


def test_a_shared_table_of_as_many_rows_is_never_cut():
    table = torch.randn(N, 3)
    told = conditions.checked({"label": LABEL, "table": un.Shared(table), "deep": {"table": un.Shared({"a": table})}}, N)
    for changed in (conditions.rows_of(told, torch.tensor([1])), conditions.tiled(told, 3), conditions.moved(told, "cpu")):
        seen = conditions.given(changed)
        assert torch.equal(seen["table"], table) and torch.equal(seen["deep"]["table"]["a"], table)
    assert conditions.given(told)["table"] is table
    assert conditions.moved(told, "meta")["deep"]["table"].value["a"].device.type == "meta"


def test_one_row_and_back():
    same = {"label": torch.full((N,), 7), "table": un.Shared(torch.arange(N))}
    one = conditions.one_row(conditions.checked(same, N), N)
    assert one["label"].tolist() == [7] and conditions.spread(one, 3)["label"].tolist() == [7, 7, 7]
    assert conditions.given(one)["table"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="differs between rows 0 and 1"):
        conditions.one_row({"label": LABEL}, N)


@pytest.mark.parametrize(
    ("condition", "error", "words"),
    [
        ({"t": LABEL}, ValueError, "names 't', which a network is given already"),
        ({"x": LABEL}, ValueError, "names 'x'"),
        ({"previous": LABEL}, ValueError, "names 'previous'"),
        ({"label": LABEL[:3]}, ValueError, r"condition\['label'\] has shape \(3,\), but there are 4 rows.*un\.Shared"),
        ({"deep": {"y": torch.tensor(1.0)}}, ValueError, r"condition\['deep'\]\['y'\] has shape \(\)"),
        (
            {"pair": [LABEL, LABEL]},
            TypeError,
            r"condition\['pair'\] is a list, .*pass a tensor .* a dict of tensors, or mark",
        ),
        ({"label": LABEL.numpy()}, TypeError, r"condition\['label'\] is a ndarray, .*torch\.as_tensor.*un\.Shared"),
        ({"deep": {"y": (0, 1, 2, 3)}}, TypeError, r"condition\['deep'\]\['y'\] is a tuple, .*un\.Shared"),
        ({"words": ["a", "b", "c", "d"]}, TypeError, r"condition\['words'\] is a list, .*un\.Shared"),
        ({1: LABEL}, TypeError, "has the name 1"),
        (LABEL, TypeError, "condition is a Tensor: pass a dict"),
    ],
)
def test_what_breaks_the_rule_is_named(condition, error, words):
    with pytest.raises(error, match=words):
        conditions.checked(condition, N)


def test_no_condition():
    assert conditions.checked(None, N) == {} and conditions.checked({}, N) == {}


class Told(nn.Module):
    """Logits by a label's row of a table that all rows share, and a shift by a nested condition."""

    def forward(self, x, t, label, table, site):
        assert not isinstance(table, un.Shared)
        return table[label].unsqueeze(1) + site["shift"].reshape(-1, 1, 1) + 0 * x.unsqueeze(-1)


def test_a_denoiser_takes_the_marks_off():
    table, process = torch.randn(N, 3), un.Masking(3, (2,))
    denoiser, x = un.Denoiser(Told(), process), torch.full((N, 2), 3)
    told = denoiser(x, 0.5, label=LABEL, table=un.Shared(table), site={"shift": torch.zeros(N)})
    assert torch.equal(told.logits, table.unsqueeze(1).expand(N, 2, 3))


class Level(nn.Module):
    """An energy with a condition for each row and a shared table of as many rows as the batch."""

    def forward(self, x, t, label, table, site):
        return table[label, x[:, 0]] + site["slope"] * x[:, 1]


def test_an_energy_asks_for_the_rows_of_its_condition():
    table, process = torch.randn(N, 3, dtype=torch.float64), un.Uniform(3, (2,))
    x, slope = torch.tensor([[0, 1], [1, 1], [2, 0], [0, 2]]), torch.arange(1.0, N + 1, dtype=torch.float64)
    denoiser = un.Denoiser(Level(), process, un.Energy)
    told = denoiser(x, 0.5, label=LABEL.flip(0), table=un.Shared(table), site={"slope": slope})
    ratios = told.by_leaf().value
    for row in range(N):
        own = table[N - 1 - row]
        torch.testing.assert_close(ratios[row, 0], own - own[x[row, 0]])
        torch.testing.assert_close(ratios[row, 1], slope[row] * (torch.arange(3) - x[row, 1]))


def test_a_variance_is_fitted_under_a_condition():
    class Scaled(nn.Module):
        def forward(self, x, t, factor):
            return factor.unsqueeze(1) * x

    chain = un.Chain(un.Gaussian((1,), un.schedules.LinearBeta()), 4)
    denoiser, x0, source = un.Denoiser(Scaled(), chain, un.Clean), torch.randn(50, 1), un.NoiseSource(0, 50)
    zero, half = (
        un.fit_variance(denoiser, x0, source, condition={"factor": torch.full((50,), f)}).variance for f in (0.0, 0.5)
    )
    t = torch.tensor([1.0], dtype=torch.float64)
    assert float(zero.clean_variance(x0[:1], t)) == pytest.approx(float(x0.square().mean()), rel=1e-5)
    assert float(half.clean_variance(x0[:1], t)) != pytest.approx(float(x0.square().mean()), rel=1e-2)
    with pytest.raises(ValueError, match="there are 50 rows"):
        un.fit_variance(denoiser, x0, source, condition={"factor": torch.zeros(3)})
