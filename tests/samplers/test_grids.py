"""Time grids: exact ends, falling times, equal steps in the variable of each."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import grids

SCHEDULES = {
    "Cosine": un.schedules.Cosine,  # infinite log-SNR at both ends
    "Linear": un.schedules.Linear,
    "LinearBeta": un.schedules.LinearBeta,  # at 0 alone
    "VE": lambda: un.schedules.VE(0.01, 10.0),  # at neither
}
RULES = {
    "Uniform": grids.Even,
    "Quadratic": grids.Quadratic,
    "LogSNR": grids.LogSNR,
    "Karras": grids.Karras,
    "Karras 2": lambda: grids.Karras(rho=2.0),
}


def variable(rule: str, schedule, times):
    if rule == "Uniform":
        return times
    if rule == "Quadratic":
        return times.sqrt()
    ratio = schedule.sigma(times) / schedule.alpha(times)
    return ratio.log() if rule == "LogSNR" else ratio ** (1 / (2.0 if rule == "Karras 2" else 7.0))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.95, 0.0), (1.0, 0.05), (0.95, 0.05), (1.0, 0.9995), (0.0003, 0.0)])
@pytest.mark.parametrize("steps", [1, 2, 3, 17])
def test_ends_and_order(rule, name, ends, steps):
    times = RULES[rule]().times(un.Gaussian((2,), SCHEDULES[name]()), steps, *ends)
    assert times.dtype == torch.float64 and len(times) == steps + 1
    assert (float(times[0]), float(times[-1])) == ends
    assert bool((times[1:] < times[:-1]).all()) and torch.equal(grids.checked(times), times)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ends", [(1.0, 0.0), (0.95, 0.05)])
def test_equal_steps(rule, name, ends):
    schedule = SCHEDULES[name]()
    times = RULES[rule]().times(un.Gaussian((2,), schedule), 20, *ends)
    if rule not in ("Uniform", "Quadratic"):  # an end with infinite log-SNR is added to what is spaced
        first, last = int(float(schedule.alpha(ends[0])) == 0), int(float(schedule.sigma(ends[1])) == 0)
        assert first == 0 or float(times[1]) == ends[0] - grids.EDGE
        assert last == 0 or float(times[-2]) == ends[1] + grids.EDGE
        times = times[first : len(times) - last]
    gaps = variable(rule, schedule, times).diff()
    torch.testing.assert_close(gaps, gaps.mean().expand_as(gaps), rtol=1e-6, atol=0)


def test_sampling_on_each():
    oracle = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2))
    for rule in RULES.values():
        x, info = un.sample(oracle, 3, 12, un.samplers.DPMSolverPP(2), rule(), seed=0)
        assert bool(x.isfinite().all()) and len(info.times) == 13


def test_refusals():
    own = un.Gaussian((2,), un.schedules.PerCoordinate([un.schedules.Cosine(), un.schedules.Linear()]))
    for rule in (grids.LogSNR(), grids.Karras()):
        with pytest.raises(TypeError, match=f"{type(rule).__name__}.*Gaussian.*Even"):
            rule.times(own, 4, 1.0, 0.0)
    for rho in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="rho"):
            grids.Karras(rho)
    for times in ([], [0.5], torch.ones(2, 2), [0.5, 0.5], [0.0, 1.0], [1.5, 0.0], [1.0, -0.1], [1.0, float("nan"), 0.0]):
        with pytest.raises(ValueError):
            grids.GivenTimes(times)
    assert grids.GivenTimes([1.0, 0.4, 0.0]).times(own, 7, 1.0, 0.0).tolist() == [1.0, 0.4, 0.0]
