"""The order of every sampler is the one it states; a sampler that is wrong, or is forgotten, fails."""

import sys

import pytest
import torch

import unnoise as un
import unnoise.verify as verify_package
from unnoise.cli import verify as command
from unnoise.laws import Categorical
from unnoise.samplers import (
    CategoricalDDIM,
    Heun,
    Langevin,
    Remasking,
    Sampler,
    ThetaTrapezoidal,
    exponential,
    heun,
    leaps,
    linear,
)
from unnoise.samplers.reveal import Reveal
from unnoise.verify.branching import branches
from unnoise.verify.order_settings import C, M, MemoisedOracle, PosteriorMean
from unnoise.verify.orders import WITHOUT, Case, cases, measured, slope, unstated

CASES = cases()


def ok(case: Case) -> bool:
    return measured(case)[0].ok


def the(text: str, process: str = "", note: str = "") -> Case:
    """The case of this text, on the first such process."""
    return next(c for c in CASES if c.text == text and c.setting.process.startswith(process) and c.note == note)


SLOW = ("Leaves", "OneByOne", "Ancestral(2)", "FromGenerator")  # by many steps of several leaves


@pytest.mark.parametrize(
    "case",
    [pytest.param(c, marks=pytest.mark.conformance if c.text.startswith(SLOW) else ()) for c in CASES],
    ids=lambda case: f"{case.label} on {case.setting.process}",
)
def test_the_fitted_order_is_the_stated_one(case):
    row, points = measured(case)
    assert row.ok, (row.ours, points)
    assert row.exact == case.stated and row.error == pytest.approx(abs(row.ours - row.exact))
    assert all(a[1] > b[1] for a, b in zip(points, points[1:], strict=False))  # errors fall


def test_only_the_cut_rule_has_another_order_than_it_states():
    assert {case.text.split("(")[0] for case in CASES if case.order is not None} == {"ThetaTrapezoidal"}
    for case in CASES:
        assert case.text.startswith(type(case.sampler).__name__)


# --- nothing is forgotten


def test_every_sampler_has_a_row_or_a_reason():
    assert unstated() == []
    rows = {type(case.sampler).__name__ for case in CASES}
    assert not rows & set(WITHOUT)
    for name, reason in WITHOUT.items():
        found = getattr(un.samplers, name)
        if reason.startswith("exact"):
            assert found().exact and found().order is None
        else:
            assert found.order is None and not found.exact


def test_a_forgotten_sampler_is_found(monkeypatch):
    class Newcomer(Sampler):
        order = 2

        def run(self, problem, x, after):
            return x

    monkeypatch.setattr(un.samplers, "Newcomer", Newcomer, raising=False)
    monkeypatch.setattr(un.samplers, "__all__", [*un.samplers.__all__, "Newcomer"])
    assert unstated() == ["Newcomer"]


# --- mutants


def test_a_wrong_coefficient_is_found(monkeypatch):
    through, row = exponential.Exponential.through, linear.EulerMaruyama.row

    def heavier(self, *arguments, **options):
        right = through(self, *arguments, **options)
        return linear.Coefficients(right.keep, (1.01 * right.weights[0], *right.weights[1:]), right.noise)

    with monkeypatch.context() as patch:
        patch.setattr(exponential.Exponential, "through", heavier)
        assert not ok(the("DPMSolverPP(2)")) and not ok(the("UniPC(3)")) and not ok(the("DPMSolverPP(2, sde=True)"))
    with monkeypatch.context() as patch:
        patch.setattr(linear.EulerMaruyama, "row", lambda self, m, i, known: _stronger(row(self, m, i, known)))
        assert not ok(the("EulerMaruyama(eta=0)"))
    with monkeypatch.context() as patch:

        def second(self, problem, rates, state, h):  # not extrapolated
            return leaps.leap(state.x, rates, (1 - self.theta) * h)

        patch.setattr(ThetaTrapezoidal, "second", second)
        assert not ok(the("ThetaTrapezoidal(0.5)"))


def _stronger(row: linear.Coefficients) -> linear.Coefficients:
    return linear.Coefficients(row.keep, tuple(1.2 * w for w in row.weights), row.noise)


def test_swapped_times_are_found(monkeypatch):
    """The network is asked at the step's end."""
    with monkeypatch.context() as patch:
        late = lambda self, problem, tables: [(t,) for t in problem.times[1:].tolist()]  # noqa: E731
        patch.setattr(linear.LinearMethod, "stage_times", late)
        assert not ok(the("DEIS(2)")) and not ok(the("DPMSolverPP(2)"))
    with monkeypatch.context() as patch:
        leap = leaps.leap
        patch.setattr(leaps, "leap", lambda x, rates, h: leap(x, rates, h.abs() * 0.9))  # time runs slow
        assert not ok(the("Euler()", "Uniform"))


def test_halved_noise_is_found(monkeypatch):
    with monkeypatch.context() as patch:
        ddim_row = linear.ddim_row

        def halved(m, i, eta=0.0):
            row = ddim_row(m, i, eta)
            return linear.Coefficients(row.keep, row.weights, None if row.noise is None else 0.5 * row.noise)

        patch.setattr(linear, "ddim_row", halved)
        assert not ok(the("DDIM(eta=1)")) and ok(the("DDIM()"))
    with monkeypatch.context() as patch:
        rows = Langevin.rows
        patch.setattr(Langevin, "rows", lambda self, *a: [(keep, w, 0.7 * scale) for keep, w, scale in rows(self, *a)])
        assert not ok(the("PredictorCorrector(DDIM(), Langevin())"))
    with monkeypatch.context() as patch:
        before = heun.Heun.before
        patch.setattr(Heun, "before", lambda s, p, m, state, i: state.to(0.5 * (state.x + before(s, p, m, state, i).x)))
        assert not ok(the("Heun(churn=4)"))


@pytest.mark.parametrize("text", ["DPMSolverPP(3)", "DEIS(3)"])
def test_a_first_step_without_a_second_call_loses_the_third_order(text, monkeypatch):
    case = the(text)
    monkeypatch.setattr(case.sampler, "twice", False)
    row, _ = measured(case)
    assert not row.ok and row.ours < 2.7


def test_wrong_chances_are_found(monkeypatch):
    with monkeypatch.context() as patch:
        chances = Remasking.chances
        patch.setattr(Remasking, "chances", lambda self, *a: (chances(self, *a)[0], 0.9 * chances(self, *a)[1]))
        assert not ok(the("Remasking(Rate(2))"))
    with monkeypatch.context() as patch:
        shares = CategoricalDDIM.shares

        def skewed(self, process, times):
            keep, clean, fresh = shares(self, process, times)
            return 0.9 * keep, clean, fresh

        patch.setattr(CategoricalDDIM, "shares", skewed)
        assert not ok(the("CategoricalDDIM()", "Masking"))
    with monkeypatch.context() as patch:
        logits = Reveal.logits
        patch.setattr(Reveal, "logits", lambda self, prediction, index: 0.8 * logits(self, prediction, index))
        assert not ok(the("Reveal()"))


def test_leaves_that_do_not_see_each_other_lose_the_order(monkeypatch):
    case = the("FromGenerator(0.5)", "Product")
    monkeypatch.setattr(case.sampler, "_extrapolated", lambda problem, now, before: before)
    row, _ = measured(case)
    assert not row.ok and row.ours < 1.5


# --- the calculators


def test_branches_are_the_outcomes_of_a_draw():
    """Two draws of a category and a coin that is looked at twice, with the probabilities of each."""
    p = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def run(noise, x):
        first = Categorical(p.log().expand(len(x), 1, 3)).draw(noise.at("first"))
        coin = noise.at("coin").uniform((1,))
        low, high = coin < 0.25, coin < 0.25 + 0.1 * first.double()
        again = (noise.at("three").uniform((1,)) * 3).long()
        return torch.where(low, -1, torch.where(high, first, 10 + again))

    out, weight = branches(run, torch.zeros(2, 1), {})
    assert float((weight.sum(1) - 1).abs().max()) < 1e-14
    expected = {-1: 0.25, 1: 0.05, 2: 0.06, **dict.fromkeys((10, 11, 12), 0.64 / 3)}
    for value, probability in expected.items():
        found = torch.where(out.squeeze(-1) == value, weight, 0.0).sum(1)
        assert found.tolist() == pytest.approx([probability] * 2, abs=1e-14)


def test_a_number_that_is_not_compared_is_refused():
    with pytest.raises(ValueError, match="goes through torch.exp"):
        branches(lambda noise, x: noise.uniform(()).exp(), torch.zeros(2), {})


def test_normal_numbers_have_their_moments():
    out, weight = branches(lambda noise, x: x + noise.normal((1,)), torch.tensor([[0.0], [2.0]], dtype=torch.float64), {})
    powers = [(weight * out.squeeze(-1) ** k).sum(1).tolist() for k in (1, 2, 4)]
    assert powers[0] == pytest.approx([0, 2]) and powers[1] == pytest.approx([1, 5]) and powers[2] == pytest.approx([3, 43])


def test_the_cheap_denoisers_are_the_oracles():
    process = un.Gaussian((2,), un.schedules.Cosine())
    x, t = torch.randn(5, 2, dtype=torch.float64), torch.tensor([0.1, 0.1, 0.4, 0.7, 0.9], dtype=torch.float64)
    oracle = un.oracles.normal(process, M, C)
    for at in (t, t[0]):
        torch.testing.assert_close(PosteriorMean(process)(x, at).value, oracle(x, at).to(un.Clean).value, rtol=0, atol=1e-12)
    setting = the("Euler()", "Masking").setting
    points = setting.denoiser.points.flip(0)
    told, looked = (
        setting.oracle(points, 0.6),
        MemoisedOracle(setting.oracle)(points, torch.tensor(0.6, dtype=torch.float64)),
    )
    torch.testing.assert_close(looked.step(0.3).probs, told.step(0.3).probs, rtol=0, atol=1e-14)


def test_the_slope():
    assert slope([(n, 3.0 * n**-2.0) for n in (4, 8, 16)]) == pytest.approx(2)
    assert slope([(4, 1.0), (8, 0.0)]) != slope([(4, 1.0), (8, 0.0)])  # no number, and so no row that is right


# --- the command


@pytest.fixture
def few(monkeypatch):
    """The command with two of the cases."""
    chosen = [the("DDIM()"), the("Euler()", "Uniform")]
    monkeypatch.setattr(verify_package, "cases", lambda brief: chosen)


def verify(capsys, **options) -> tuple[int, str]:
    return command.Verify(**options).run(), capsys.readouterr().out


def test_only_samplers(few, capsys, monkeypatch):
    status, out = verify(capsys, only="samplers")
    assert status == 0 and "2 checks of 2 orders of samplers in" in out
    assert [line.split()[2] for line in out.splitlines()[2:4]] == ["DDIM()", "Euler()"]
    monkeypatch.setattr(verify_package, "checks", lambda subject, thorough: [])
    status, out = verify(capsys, only="uniform/sizes")
    assert status == 1 and "checks of 1 process in" in out and "order in law" not in out  # nothing checked is no success
    status, out = verify(capsys, only="uniform/sizes,samplers")
    assert status == 0 and "2 checks of 1 process and 2 orders of samplers in" in out


def test_a_lost_order_fails_the_command(few, capsys, monkeypatch):
    right = linear.ddim_row
    monkeypatch.setattr(linear, "ddim_row", lambda *a: _stronger(right(*a)))
    status, out = verify(capsys, only="samplers")
    assert status == 1 and "1 failed" in out and "FAIL" in out


def test_picture(few, capsys, tmp_path, monkeypatch):
    file = tmp_path / "deep" / "orders.png"
    assert verify(capsys, only="samplers", picture=file)[0] == 0
    assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and file.stat().st_size > 20_000
    with pytest.raises(ValueError, match="add samplers to --only"):
        verify(capsys, only="gaussian", picture=file)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ValueError, match=r"pip install 'unnoise\[all\]'"):
        verify(capsys, only="samplers", picture=file)


def test_a_brief_run_has_every_kind():
    brief = cases(brief=True)
    assert {case.setting.panel for case in brief} == {case.setting.panel for case in CASES} and len(brief) < 12
