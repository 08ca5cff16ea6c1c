"""A computation that stops is a row that fails and names its quantity; the other checks are made."""

import json

import pytest
import torch

import unnoise as un
from unnoise.processes import Gaussian
from unnoise.processes.base import Process
from unnoise.verify import checks, render, subject_of
from unnoise.verify.guard import guarded
from unnoise.verify.recall import Recalled
from unnoise.verify.rows import Place
from unnoise.verify.subjects import finite_subject, gaussian_subject


def stopped(rows):
    return [row for row in rows if not row.ok]


def raising(self, *arguments, **options):
    raise RuntimeError("the planted failure\nwith a second line")


@pytest.mark.parametrize(
    ("process", "method", "quantity", "goes_on"),
    [
        (un.Uniform(3, (1,)), "posterior", "posterior = Bayes: stopped in raising", "transition sums to 1"),
        (un.Uniform(3, (1,)), "support", "bound(x) with the exact model: stopped", "reverse kernel = Bayes"),
        (un.Uniform(3, (1,)), "inverse", "inverse kernels: stopped", "bound(x) with the exact model, cut-off"),
        (un.Gaussian((1,)), "posterior", "posterior = Bayes: stopped", "forward equation of the generator"),
    ],
)
def test_a_planted_failure_is_a_row(process, method, quantity, goes_on, monkeypatch):
    make = gaussian_subject if isinstance(process, Gaussian) else finite_subject
    subject = make(process, "planted")
    subject.kinds, subject.grid_kind = subject.kinds[:1], None
    monkeypatch.setattr(type(process), method, raising)
    rows = list(checks(subject))
    failed = stopped(rows)
    row = next(row for row in failed if row.quantity.startswith(quantity))
    assert "test_guard.py" in row.quantity and row.note == "RuntimeError: the planted failure"
    assert any(row.ok and row.quantity.startswith(goes_on) for row in rows)
    assert "FAIL  (RuntimeError: the planted failure)" in render(rows)
    told = json.loads(json.dumps(row.json(), allow_nan=False))
    assert told["verdict"] == "FAIL" and told["ours"] is None and told["note"] == row.note


def test_an_answer_that_was_never_written_is_not_checked():
    @guarded("a sum over nodes")
    def check(place):
        yield place.equal("one", 1.0, 1.0, 0.0)
        raise NotImplementedError("no nodes")

    first, second = check(Place("x"))
    assert first.verdict == "ok" and second.verdict == "not checked" and second.ok
    assert second.quantity == "a sum over nodes" and second.note == "no nodes"
    told = json.loads(json.dumps(second.json(), allow_nan=False))
    assert told["verdict"] == "not checked" and "not checked  (no nodes)" in render([first, second])


def test_an_interrupt_is_none_of_its_business():
    @guarded("anything")
    def check(place):
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        list(check(Place("x")))


def test_a_process_without_a_subject_says_what_to_write():
    class Own(Process):
        pass

    with pytest.raises(TypeError, match=r"Own has no subject.*unnoise\.verify\.subject_of\.register\(Own\)"):
        subject_of(Own(), "own")


def test_a_chain_is_verified_as_its_process():
    assert subject_of(un.Chain(un.Uniform(3, (2,)), 4), "chain").process.base is not None
    assert isinstance(subject_of(un.Chain(un.Gaussian((1,)), 4), "chain").process, Gaussian)


def test_near_one_a_tolerance_follows_from_the_conditioning():
    """A quantity that a last digit of t moves by 1e-9 cannot be asked for 1e-10; one that is merely wrong can."""
    place, t = Place("steep"), 1 - 1e-5

    def steep(t):
        exact = torch.sin(torch.tensor((1 - t) * 1e7, dtype=torch.float64))
        return exact, exact + 5e-9

    row = place.sensitive("steep", steep, (t,), 1e-10)
    assert row.ok and 1e-8 < row.tolerance < 1e-7 and "what the last digit of a time changes" in row.note
    assert not place.sensitive("steep, by too much", lambda t: (steep(t)[0], steep(t)[1] + 1e-6), (t,), 1e-10).ok
    flat = place.sensitive("flat", lambda t: (torch.ones(1).double(), torch.ones(1).double() + 5e-9), (t,), 1e-10)
    assert not flat.ok and flat.tolerance == 1e-10
    early = place.sensitive("early", lambda t: (steep(0.5)[0], steep(0.5)[1]), (0.5,), 1e-10)
    assert not early.note and early.tolerance == 1e-10


def test_an_oracle_that_remembers_answers_the_question_asked():
    """Equal questions are answered once; questions of one fingerprint, two states that change places, are told apart."""
    oracle = un.oracles.table(un.Uniform(3, (2,)), torch.arange(1.0, 10.0) / 45)
    asked, native = [], type(oracle).native

    class Counting(type(oracle)):
        def native(self, x_t, t):
            asked.append(x_t)
            return native(self, x_t, t)

    oracle.__class__ = Counting
    recalled = Recalled(oracle)
    x, t = torch.tensor([[0, 1], [2, 2]]), torch.tensor([0.3, 0.6], dtype=torch.float64)
    for kind in (un.Posterior, un.Ratio, un.Rates):
        torch.testing.assert_close(
            recalled.predicting(kind)(x, t).value, oracle.predicting(kind)(x, t).value, rtol=0, atol=0
        )
    assert len(asked) == 3 + 1
    turned = recalled(x.flip(0), t)
    assert len(asked) == 3 + 2 and torch.equal(turned.value, native(oracle, x.flip(0), t).value)
    told = recalled(x, t)
    told.x_t = None  # what is told may be changed, what is kept is not
    assert recalled(x, t).x_t is not None
