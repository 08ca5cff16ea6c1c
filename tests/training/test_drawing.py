"""Drawing from a run: the same rows in any batch, whatever memory there is, and in the precision of its training."""

from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.evaluation.likelihood import bound_terms
from unnoise.samplers import CapturedRun, many
from unnoise.training import Run
from unnoise.training.drawing import draw, fill
from unnoise.tree import leaves, map_leaves

SAVED = Path(__file__).parent / "saved_runs"


@pytest.fixture
def run():
    return Run.open(SAVED / "table")


@pytest.fixture
def denoiser(run):
    return run.denoiser(which="best").double()  # so that sums in another order round to the same categories


def alike(x, y) -> None:
    for a, b in zip(leaves(x), leaves(y), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def narrowed(denoiser, most: int) -> list[int]:
    """The network has no memory for more rows than that any more; returns the sizes it is asked for."""
    forward, asked = denoiser.network.forward, []

    def narrow(x, t, **condition):
        asked.append(len(leaves(x)[0]))
        if asked[-1] > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return forward(x, t, **condition)

    denoiser.network.forward = narrow
    return asked


@pytest.mark.parametrize("given", [None, {"item": "tea"}, {"price": "1.5"}])
def test_rows_are_the_same_in_any_batch(run, denoiser, given):
    whole, info = draw(denoiser, run.format(), 50, steps=6, seed=3, given=given, device="cpu")
    assert info.batch == 50 and info.seed == 3
    rows = info.rows
    for batch in (1, 7, 32, 1000):
        parts, info = draw(denoiser, run.format(), 50, steps=6, seed=3, given=given, device="cpu", batch=batch)
        alike(whole, parts)
        assert info.batch == min(batch, 50) and info.rows == rows
    few, _ = draw(denoiser, run.format(), 9, steps=6, seed=3, given=given, device="cpu")
    alike(map_leaves(lambda leaf: leaf[:9], whole), few)


@pytest.mark.parametrize("given", [None, {"item": "tea"}])
def test_a_draw_without_memory_for_all_rows_goes_on_with_half_of_them(run, denoiser, given):
    options = {"steps": 6, "seed": 3, "given": given, "device": "cpu"}
    whole, _ = draw(denoiser, run.format(), 30, **options)
    narrowed(denoiser, 8)
    with pytest.warns(UserWarning, match="memory ran out with 30 rows at a time: going on with 7") as told:
        parts, info = draw(denoiser, run.format(), 30, **options)
    alike(whole, parts)
    assert info.batch == 7 and len(told) == 1


def test_so_does_one_that_was_told_its_batch(run, denoiser):
    whole, _ = draw(denoiser, run.format(), 30, steps=6, seed=3, device="cpu")
    narrowed(denoiser, 8)
    with pytest.warns(UserWarning, match="with 20 rows at a time: going on with 5"):
        parts, info = draw(denoiser, run.format(), 30, steps=6, seed=3, device="cpu", batch=20)
    alike(whole, parts)


def gaps(run, denoiser):
    """Rows of which one knows the item, the next the price, and so on."""
    x, _ = draw(denoiser, run.format(), 30, steps=6, seed=3, device="cpu")
    known = torch.arange(30) % 2 == 0
    names = list(x)
    fixed = {
        name: (known if i else ~known).reshape(-1, *[1] * (x[name].ndim - 1)).expand_as(x[name]).clone()
        for i, name in enumerate(names)
    }
    return x, fixed


def test_gaps_are_filled_the_same_in_any_batch_and_in_halves(run, denoiser):
    x, fixed = gaps(run, denoiser)
    whole, info = fill(denoiser, x, fixed, seed=5, steps=6, device="cpu")
    for batch in (1, 4, 13):
        alike(whole, fill(denoiser, x, fixed, seed=5, steps=6, device="cpu", batch=batch)[0])
    narrowed(denoiser, 8)
    with pytest.warns(UserWarning, match="with 15 rows at a time: going on with 7"):
        parts, told = fill(denoiser, x, fixed, seed=5, steps=6, device="cpu")
    alike(whole, parts)
    assert told.rows == info.rows and told.batch == 7


def test_gaps_are_filled_by_recorded_runs_too(run, denoiser, monkeypatch):
    class OnHost(CapturedRun):
        recorded_on = ("cpu",)
        record = staticmethod(lambda work: (work(), work)[1])

    x, fixed = gaps(run, denoiser)
    whole, _ = fill(denoiser, x, fixed, seed=5, steps=6, device="cpu")
    known, _ = draw(denoiser, run.format(), 30, steps=6, seed=3, given={"item": "tea"}, device="cpu")
    monkeypatch.setattr(many, "RECORDED_ON", ("cpu",))
    monkeypatch.setattr(many, "CapturedRun", OnHost)
    parts, info = fill(denoiser, x, fixed, seed=5, steps=6, device="cpu", batch=4)
    alike(whole, parts)
    assert info.way == many.RUN
    given, info = draw(denoiser, run.format(), 30, steps=6, seed=3, given={"item": "tea"}, device="cpu", batch=8)
    alike(known, given)
    assert info.way == many.RUN


@pytest.mark.parametrize("name", ["draw", "fill"])
def test_a_batch_of_none_is_refused(run, denoiser, name):
    with pytest.raises(ValueError, match="batch = 0: at least one is needed"):
        if name == "draw":
            draw(denoiser, run.format(), 3, batch=0, device="cpu")
        else:
            fill(denoiser, *gaps(run, denoiser), batch=0, device="cpu")


def test_the_terms_of_a_bound_are_the_same_where_its_rows_do_not_fit(run, denoiser):
    """Times are spread over the batch, however few rows are worked on at once."""
    x0, _ = draw(denoiser, run.format(), 40, steps=6, seed=3, device="cpu")
    options = {"options": run.objective_options(), "batch": 20}
    whole = bound_terms(denoiser, x0, 2, seed=1, **options)
    asked = narrowed(denoiser, 8)
    with pytest.warns(UserWarning, match="memory ran out with 20 rows at a time: going on with 5"):
        parts = bound_terms(denoiser, x0, 2, seed=1, **options)
    torch.testing.assert_close(whole, parts, rtol=1e-9, atol=1e-9)
    assert 5 in asked


def test_a_run_is_drawn_from_in_its_precision(run):
    plain = run.denoiser(which="best")
    assert run.for_drawing(plain) is plain  # it was trained in float32
    half = run.for_drawing(plain, "bf16")
    assert half.network.network is plain.network and half.kinds == plain.kinds
    one, other = (draw(d, run.format(), 8, steps=4, seed=0, device="cpu")[0] for d in (plain, half))
    assert all(torch.equal(a, b) for a, b in zip(leaves(one), leaves(other), strict=True))  # on a processor, the same
    with pytest.raises(ValueError, match="precision = 'fp8': choose from no, tf32, bf16"):
        run.for_drawing(plain, "fp8")


def test_where_a_code_stands_for_the_data_its_states_are_held():
    """Three independent categories by their bits, two of them known: what is known stays, and the third has its law (2,000
    draws, total variation below 0.06; false alarm below 1e-6)."""
    q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)

    class Known(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.zero = torch.nn.Parameter(torch.zeros((), dtype=torch.float64))

        def forward(self, x, t):
            return self.zero + q.log().expand(len(x), 3, 4)

    code = un.codes.bits(4, (3,), cutoff=0.05).double()
    denoiser = un.Denoiser(Known(), un.Gaussian(code.shape), code=code)
    x, fixed = torch.tensor([[1, 0, 2]]).repeat(2000, 1), torch.tensor([[True, False, True]]).repeat(2000, 1)
    found, _ = fill(denoiser, x, fixed, seed=0, steps=16, rounds=2)
    assert torch.equal(found[:, 0::2], x[:, 0::2])
    share = torch.bincount(found[:, 1], minlength=4) / len(found)
    assert float((share - q).abs().sum() / 2) < 0.06
