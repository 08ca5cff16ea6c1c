"""Noise laws that change with time: which of them are Markov processes, and with which rates.

alpha_t in [0, 1] and p_t a law at every time are not enough.  The example that fails has alpha = 1 - t^2 and

    p_t = (1 - t)^n e_0 + (1 - (1 - t)^n) e_1,      r_t(0) = (1 - t)^(n-1) t [2/(1 + t) - n t],

which turns negative at the root of n t (1 + t) = 2: t = (sqrt(3) - 1)/2 for n = 4, and never before t = 1 for n = 1.
False alarms: each chi-square below rejects a right law with probability 1e-7.
"""

from math import sqrt

import pytest
import torch

import unnoise as un
from unnoise import noise_laws, schedules

F64, DRAWS, LEVEL = torch.float64, 50_000, 1e-7
FAST_END = (sqrt(3) - 1) / 2
E0, E1 = torch.tensor([1.0, 0.0], dtype=F64), torch.tensor([0.0, 1.0], dtype=F64)


def falling(power):
    def weights(t):
        first = (1 - t) ** power
        return torch.stack([first, 1 - first], -1)

    return weights


def fixed_pair(power=4, laws=(E0, E1), schedule=None):
    return un.Mixture(2, laws=list(laws), weights=falling(power), schedule=schedule or schedules.Polynomial(2.0))


def kernel(alpha, p, s, t):
    """Q_{t|s} = alpha_t/alpha_s I + [beta_t p_t - alpha_t/alpha_s beta_s p_s] 1^T, written out."""
    keep = alpha(t) / alpha(s)
    fresh = (1 - alpha(t)) * p(t) - keep * (1 - alpha(s)) * p(s)
    return keep * torch.eye(len(fresh), dtype=F64) + fresh[:, None]


def example(power):
    def p(t):
        return torch.tensor([(1 - t) ** power, 1 - (1 - t) ** power], dtype=F64)

    return (lambda t: 1 - t * t), p


# -- laws of x_t that no process has ----------------------------------------------------------------------------------


def test_marginals_that_no_markov_process_has():
    """By brute force: every marginal is a law, every "kernel" composes them, and some of its entries are negative."""
    alpha, p = example(4)
    times = torch.linspace(0.01, 0.99, 99, dtype=F64).tolist()
    least, where = 1.0, None
    for s in times:
        for t in times:
            if s < t:
                q = kernel(alpha, p, s, t)
                assert float((q.sum(0) - 1).abs().max()) < 1e-14
                assert float((q @ kernel(alpha, p, 1e-9, s) - kernel(alpha, p, 1e-9, t)).abs().max()) < 1e-14
                if float(q.min()) < least:
                    least, where = float(q.min()), (s, t, divmod(int(q.argmin()), 2))
    assert least < -0.005 and where is not None
    assert where[0] > 0.2 and where[2] == (0, 1)  # the entry 1 -> 0: law 0 is left faster than noise is added


@pytest.mark.parametrize("power", [4, 3, 2])
def test_such_a_mixture_is_refused_at_its_first_bad_time(power):
    first = (sqrt(1 + 8 / power) - 1) / 2
    alpha, p = example(power)
    h = 1e-4  # over short steps the entry changes its sign where the rate does
    before, after = (float(kernel(alpha, p, first + side - h, first + side + h)[0, 1]) for side in (-1e-3, 1e-3))
    assert before > 0 > after
    with pytest.raises(ValueError, match=r"no Markov process: at t = (0\.\d+) the rate of jumps to state 0 would be -") as e:
        fixed_pair(power)
    named = float(str(e.value).split("at t = ")[1].split(" ")[0])
    assert first <= named <= first + 1 / 2048 + 1e-4
    assert "slow the weights down" in str(e.value)


def test_the_entry_is_named_per_coordinate():
    laws = [torch.tensor([[0.5, 0.5], [1.0, 0.0]], dtype=F64), torch.tensor([[0.5, 0.5], [0.0, 1.0]], dtype=F64)]
    with pytest.raises(ValueError, match=r"at t = 0\.366\d the rate of jumps to state 0 of coordinate \[1\] would be -"):
        un.Mixture(2, (2,), laws=laws, weights=falling(4), schedule=schedules.Polynomial(2.0))


def test_slower_or_noisier_is_accepted():
    process = fixed_pair(1)
    alpha, p = example(1)
    x = torch.arange(2)
    for s, t in ((0.1, 0.4), (0.5, 0.9), (0.98, 1.0)):
        exact = kernel(alpha, p, s, t)
        assert float(exact.min()) >= 0
        torch.testing.assert_close(process.transition(x, s, t).probs.T, exact, rtol=0, atol=1e-14)
    # the same fast weights over laws that hardly differ
    near = [0.6 * E0 + 0.4 * E1, 0.4 * E0 + 0.6 * E1]
    fixed_pair(4, near)


# -- rates --------------------------------------------------------------------------------------------------------------

LAWS = [torch.tensor([0.7, 0.2, 0.1], dtype=F64), torch.tensor([0.1, 0.3, 0.6], dtype=F64)]
VALID = {
    "slow pair": lambda: fixed_pair(1),
    "near pair": lambda: fixed_pair(4, [0.6 * E0 + 0.4 * E1, 0.4 * E0 + 0.6 * E1]),
    "uniform and mask": lambda: un.Mixture.uniform_and_mask(3, uniform=0.3),
    "uniform and mask, gamma 2": lambda: un.Mixture.uniform_and_mask(3, uniform=0.6, gamma=2.0),
    "overlapping": lambda: un.Mixture(
        3, laws=LAWS, weights=lambda t: torch.stack([1 - 0.8 * t, 0.8 * t], -1), schedule=schedules.Cosine()
    ),
}


def dense(process, s, t):
    return process.transition(torch.arange(process.state_space.size), s, t).probs.T


def generator(process, t):
    r = process.local(torch.arange(process.state_space.size), t).rates.T
    return r - torch.diag(r.sum(0))


@pytest.mark.parametrize("name", VALID)
def test_rates_are_the_slope_of_the_kernel(name):
    """R_t by central differences of Q_{t+h|t-h}, whose error is of order h^2; without p_t' it is off by far more."""
    process, h = VALID[name](), 1e-4
    eye = torch.eye(process.state_space.size, dtype=F64)
    for t in (0.2, 0.5, 0.8):
        q = dense(process, t - h, t + h)
        # the matrix logarithm to second order: (Q - I) - (Q - I)^2/2, over 2 h
        slope = ((q - eye) - (q - eye) @ (q - eye) / 2) / (2 * h)
        torch.testing.assert_close(generator(process, t), slope, rtol=0, atol=3e-6)
    time = torch.tensor([0.5], dtype=F64)
    ratio = -process.schedule.d_alpha(time) / process.schedule.alpha(time)
    p = process._combine(process.shares(time), torch.device("cpu"))[0]
    q = dense(process, 0.5 - h, 0.5 + h)
    without = ratio * p[:, None].expand_as(eye) - ratio * eye  # eq:Rate-matrix-expression with p_t put in
    gap = (without - ((q - eye) - (q - eye) @ (q - eye) / 2) / (2 * h)).abs().max()
    assert float(gap) > 0.02


@pytest.mark.parametrize("name", VALID)
def test_kernels_are_those_of_the_marginals(name):
    process = VALID[name]()
    points = torch.arange(process.space.size)
    for s, t in ((0.1, 0.3), (0.3, 0.95), (0.6, 1.0)):
        at = {v: process.marginal(points, v).probs for v in (s, t)}
        moved = at[s] @ dense(process, s, t).T
        torch.testing.assert_close(moved, at[t], rtol=0, atol=1e-14)


# -- draws --------------------------------------------------------------------------------------------------------------


def chi_square_rejects(observed, probs):
    expected = probs * observed.sum()
    statistic = ((observed - expected).square() / expected).sum()
    freedom = torch.tensor(float(len(probs) - 1), dtype=F64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2)) < LEVEL


def test_a_law_whose_own_share_is_negative():
    """Overlapping laws: every r_t is positive, though more of law 0 is taken away than noise adds.  A fresh draw cannot be
    a draw of a law first; by table it has the right law, by law first it has not."""

    def weights(t):
        first = ((0.85 - t) / 0.4).clamp(0, 1)
        return torch.stack([first, 1 - first], -1)

    process = un.Mixture(2, laws=[0.9 * E0 + 0.1 * E1, 0.3 * E0 + 0.7 * E1], weights=weights)
    assert not process.separable
    s, t = 0.5, 0.8
    shares = process.fresh_shares(torch.zeros(1, dtype=torch.int64), s, t)[0]
    torch.testing.assert_close(shares, torch.tensor([-0.075, 0.675], dtype=F64))  # beta_t w_t - alpha_{t|s} beta_s w_s
    x = torch.zeros(DRAWS, dtype=torch.int64)
    noise = un.NoiseSource(5, DRAWS)
    laws = {
        "transition": lambda: process.transition(x, s, t),
        "marginal": lambda: process.marginal(x, t),
        "posterior": lambda: process.posterior(x, x, s, t),
        "prior": lambda: process.prior(DRAWS),
    }
    for make in laws.values():
        law = make()
        observed = torch.bincount(law.draw(noise), minlength=2).double()
        assert not chi_square_rejects(observed, law.probs[0])
    process.separable = True  # the mutant
    law = process.transition(x, s, t)
    assert chi_square_rejects(torch.bincount(law.draw(noise), minlength=2).double(), law.probs[0])


def test_a_mixture_that_separates_draws_law_first():
    process = un.Mixture.uniform_and_mask(3, (2,), uniform=0.4)
    assert process.separable
    x = torch.tensor([[0, 2]]).expand(DRAWS, -1)
    law = process.transition(x, 0.2, 0.7)
    drawn = law.draw(un.NoiseSource(6, DRAWS))
    for k in range(2):
        observed = torch.bincount(drawn[:, k], minlength=4).double()
        assert not chi_square_rejects(observed, law.probs[0, k])
        assert chi_square_rejects(observed, law.probs[0, 1 - k])


# -- uniform noise and MASK ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("uniform", [0.05, 0.2, 0.8])
def test_uniform_and_mask_has_its_masses(uniform, gamma):
    """(1 - t)/C on x_0, c/(C K) on every category, t/C on MASK; C = 1 + c, c = 2^gamma u/(1 - u) (t (1 - t))^(gamma/2)."""
    size = 5
    process = un.Mixture.uniform_and_mask(size, uniform=uniform, gamma=gamma)
    assert process.mask == size and process.state_space.size == size + 1 and process.separable
    x0 = torch.arange(size)
    for t in (1e-9, 1e-3, 0.2, 0.5, 0.77, 1 - 1e-6, 1.0):
        c = 2**gamma * uniform / (1 - uniform) * (t * (1 - t)) ** (gamma / 2)
        exact = torch.full((size, size + 1), c / (1 + c) / size, dtype=F64)
        exact[:, size] = t / (1 + c)
        exact[x0, x0] += (1 - t) / (1 + c)
        torch.testing.assert_close(process.marginal(x0, t).probs, exact, rtol=1e-12, atol=1e-15)
        if t == 0.5:
            assert c / (1 + c) == pytest.approx(uniform, rel=1e-14)
            spread = size * process.marginal(x0, t).probs[0, 1].item()
            assert spread == pytest.approx(uniform, rel=1e-12)
    mask_only = torch.zeros(size + 1, dtype=F64)
    mask_only[size] = 1
    torch.testing.assert_close(process.prior(1).probs[0], mask_only, rtol=0, atol=1e-15)
    assert process.noiseless(0.0)


@pytest.mark.parametrize("name", VALID)
def test_posterior_formula(name):
    """(alpha_{t|s} e_{x_t} + nu(x_t) 1) (alpha_s e_{x_0} + beta_s p_s) / (alpha_t d(x_t, x_0) + beta_t p_t(x_t)),
    nu = beta_t p_t - alpha_{t|s} beta_s p_s."""
    process, s, t = VALID[name](), 0.3, 0.7
    states, size = process.state_space.size, process.space.size
    alpha_s, alpha_t = (float(process.schedule.alpha(v)) for v in (s, t))
    p_s, p_t = (process._combine(process.shares(torch.tensor([v], dtype=F64)), torch.device("cpu"))[0] for v in (s, t))
    keep = alpha_t / alpha_s
    nu = (1 - alpha_t) * p_t - keep * (1 - alpha_s) * p_s
    eye = torch.eye(states, dtype=F64)
    for x_t in range(states):
        for x0 in range(size):
            top = (keep * eye[x_t] + nu[x_t]) * (alpha_s * eye[x0] + (1 - alpha_s) * p_s)
            exact = top / (alpha_t * (x_t == x0) + (1 - alpha_t) * p_t[x_t])
            ours = process.posterior(torch.tensor([x_t]), torch.tensor([x0]), s, t).probs[0]
            torch.testing.assert_close(ours, exact, rtol=0, atol=1e-12)
            assert float(exact.sum()) == pytest.approx(1, abs=1e-12)


def test_one_law_for_all_times_is_an_interpolation():
    law = torch.tensor([0.5, 0.2, 0.3], dtype=F64)
    ours = un.Mixture(3, (2,), laws=[law, law], weights=falling(1), schedule=schedules.Cosine())
    theirs = un.Interpolation(3, (2,), law, schedules.Cosine())
    x = theirs.space.states()
    for s, t in ((0.1, 0.5), (0.5, 1.0)):
        torch.testing.assert_close(ours.transition(x, s, t).probs, theirs.transition(x, s, t).probs, rtol=0, atol=1e-14)
    torch.testing.assert_close(ours.local(x, 0.4).rates, theirs.local(x, 0.4).rates, rtol=1e-12, atol=0)
    torch.testing.assert_close(ours.prior_kl(x, 0.9), theirs.prior_kl(x, 0.9), rtol=1e-11, atol=1e-14)


def test_laws_of_fewer_states_give_the_others_nothing():
    process = un.Mixture(3, laws=[noise_laws.uniform(3), noise_laws.mask(3)], weights=falling(1))
    p = process._combine(torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=F64), torch.device("cpu"))
    torch.testing.assert_close(p, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0], [0, 0, 0, 1.0]], dtype=F64))
    assert process.movable(torch.arange(4)).all()


def test_float32_times_meet_float64_coefficients():
    process = VALID["uniform and mask"]()
    x = torch.arange(3)
    t = torch.tensor([0.3, 0.6, 0.9])
    ours = process.marginal(x, t).log_probs
    assert ours.dtype == torch.float32
    torch.testing.assert_close(ours.double().exp(), process.marginal(x, t.double()).probs, rtol=0, atol=1e-7)
