"""Planted mutants: each is a mistake that people make, and each is caught by a named check of `unnoise verify`.

A mutant is planted by replacing a method for the length of the test; the check named beside it must then fail, and must pass
without it (so it is the mutant that it catches).
"""

from dataclasses import replace

import pytest
import torch

from unnoise import schedules
from unnoise.covariance import Covariance
from unnoise.generators.local import Local
from unnoise.laws import Categorical, Normal
from unnoise.objectives import closed_forms
from unnoise.objectives.terms import Terms
from unnoise.predictions import Energy
from unnoise.predictions.continuous import Score
from unnoise.predictions.finite import Posterior, RawPosterior
from unnoise.processes import (
    BirthDeath,
    Gaussian,
    Interpolation,
    Masking,
    Mixture,
    Product,
    RankOne,
    RateMatrix,
    Uniform,
    rate_matrices,
)
from unnoise.processes.dense import TimeScaled
from unnoise.processes.finite import FiniteProcess
from unnoise.processes.rank_one import FixedNoise
from unnoise.schedules import Schedule
from unnoise.verify.bounds import fast_path_checks, identity_checks, inequality_checks
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.subjects import finite_subject, gaussian_subject, product_subject
from unnoise.verify.variance_bounds import variance_checks

LAWS = [torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.3, 0.6])]
CYCLE = torch.tensor([[0.0, 0.1, 1.0], [1.0, 0.0, 0.2], [0.3, 0.8, 0.0]])

SUBJECTS = {
    "interpolation": lambda: finite_subject(Interpolation(3, (1,), torch.tensor([0.6, 0.3, 0.1])), "interpolation"),
    "mixture": lambda: finite_subject(
        Mixture(3, (1,), laws=LAWS, weights=lambda t: torch.stack([1 - 0.8 * t, 0.8 * t], -1)), "mixture"
    ),
    "rates": lambda: finite_subject(RateMatrix(rate_matrices.relaxed(CYCLE), (1,)), "rates"),
    "birth-death": lambda: finite_subject(BirthDeath(3, (1,), occupancy=0.3), "birth-death"),
    "pure death": lambda: finite_subject(BirthDeath(3, (1,), occupancy=0.0), "pure death"),
    "masking": lambda: finite_subject(Masking(3, (2,)), "masking"),
    "uniform": lambda: finite_subject(Uniform(3, (2,)), "uniform"),
    "beta": lambda: finite_subject(Uniform(3, (2,), schedules.LinearBeta()), "beta"),
    "gaussian": lambda: gaussian_subject(Gaussian((1,)), "gaussian", 3),
    "gaussian-beta": lambda: gaussian_subject(Gaussian((1,), schedules.LinearBeta()), "gaussian", 3),
    "correlated": lambda: gaussian_subject(
        Gaussian((2,), schedules.Linear(), covariance=[[1.0, 0.6], [0.6, 0.8]]), "correlated", 3
    ),
    "energy": lambda: replace(finite_subject(Uniform(3, (2,)), "energy"), kinds=(Energy,)),
    "energy of a product": lambda: replace(
        product_subject(Product(y=Gaussian((1,)), c=Masking(3, (1,))), "energy of a product"), kinds=(Energy,)
    ),
    "product": lambda: product_subject(Product(y=Gaussian((1,)), c=Masking(3, (1,))), "product"),
}


def inverted_ratio(patch):
    """R_t(x_t, y) q(x_t)/q(y) in place of q(y)/q(x_t)."""

    original = FiniteProcess.reverse_local_from_ratio
    patch.setattr(FiniteProcess, "reverse_local_from_ratio", lambda self, x_t, ratio, t: original(self, x_t, -ratio, t))


def conditioning_on_the_target(patch):
    """R_t(x_t, y) becomes the rate x_t -> y: the print's reading of eq:seq-reverse-posterior."""
    patch.setattr(FiniteProcess, "log_rates_into", RankOne.log_rates_from)
    patch.setattr(RankOne, "log_rates_into", RankOne.log_rates_from)


def wrong_product_order(patch):
    """alpha_{t|s} = alpha_s / alpha_t: the factors of Q_{t|s} the wrong way round."""
    patch.setattr(Schedule, "step_alpha", lambda self, s, t: self.alpha(s) / self.alpha(t).clamp_min(1e-300))


def missing_prior_term(patch):
    patch.setattr(Terms, "total", property(lambda self: self.diffusion + self.reconstruction))


def dropped_constant(patch):
    """Score entropy without its network-free terms, reported as the bound's rate."""
    from unnoise.spaces import jumping

    def without(log_true, log_model):
        return (log_model.exp() - log_true.exp() * log_model).sum(-1)

    patch.setattr(jumping, "jump_divergence", without)


def alpha_for_alpha_squared(patch):
    """-SNR' with alpha in place of alpha^2."""
    original = closed_forms.squared_error_weight

    def weight(kind, schedule, t):
        value = original(kind, schedule, t)
        return value / schedule.alpha(t) if kind.__name__ == "Clean" else value

    patch.setattr(closed_forms, "squared_error_weight", weight)


def raw_posterior_for_leave_one_out(patch):
    """The evidence counted twice: a raw posterior passed off as leave-one-out."""

    def log_theta(self):
        evidence = self.process.log_evidence(self.x_t, None, self.t)[..., : self.process.space.size]
        return (self._log_softmax(self._logits()) + evidence).log_softmax(-1)

    patch.setattr(Posterior, "log_theta", log_theta)


def branch_on_mask_missing(patch):
    """Zheng's form without the branch on x_t = MASK: a token that is not masked may be masked again."""
    original = FiniteProcess.reverse_step

    def reverse_step(self, x_t, log_theta, s, t):
        law = original(self, x_t, log_theta, s, t)
        keep = 0.9 * law.probs
        keep[..., -1] += 0.1
        return type(law)(keep.clamp_min(1e-300).log())

    patch.setattr(Masking, "reverse_step", reverse_step)


def wrong_sign_in_the_reverse_drift(patch):
    def reverse_local(self, x_t, score, t):
        forward = self.local(x_t, t)
        return Local(forward.drift + forward.diffusion * score, forward.diffusion)

    patch.setattr(Gaussian, "reverse_local", reverse_local)


def score_sign_in_the_reverse_drift(patch):
    original = Gaussian.reverse_local
    patch.setattr(Gaussian, "reverse_local", lambda self, x_t, score, t: original(self, x_t, -score, t))


def plug_in_kernel_for_marginalised(patch):
    patch.setattr(RawPosterior, "log_theta", RawPosterior.log_probs)


def posterior_variance_for_optimal(patch):
    from unnoise.predictions import variances

    patch.setattr(variances.OptimalVariance, "of", variances.PosteriorVariance.of)


def transposed_root(patch):
    """Draws by L^T in place of L: their covariance is L^T L."""
    patch.setattr(Covariance, "colour", lambda self, z: torch.einsum("...k,ki->...i", z.double(), self.root).to(z))


def score_without_the_covariance(patch):
    """-f + g^2 s in place of -f + g^2 C s."""
    patch.setattr(Score, "to_linear", staticmethod(lambda process, value: value))
    patch.setattr(Score, "from_linear", staticmethod(lambda process, linear: linear))


def error_not_whitened(patch):
    patch.setattr(Gaussian, "whiten", lambda self, x: x)


def dropped_jacobian(patch):
    """A density without |det L|."""
    original = Normal.log_prob

    def log_prob(self, x):
        value = original(self, x)
        return value if self.covariance is None else value + self.covariance.log_det_root

    patch.setattr(Normal, "log_prob", log_prob)


def flipped_energy(patch):
    """-log q in place of log q."""
    original = Energy.__init__

    def flipped(self, function, *arguments, **options):
        original(self, lambda x, rows: -function(x, rows), *arguments, **options)

    patch.setattr(Energy, "__init__", flipped)


def energy_at_the_wrong_rows(patch):
    """The neighbours of a state at the time of another row."""
    original = Energy.__init__

    def turned(self, function, *arguments, **options):
        original(self, lambda x, rows: function(x, None if rows is None else rows.flip(0)), *arguments, **options)

    patch.setattr(Energy, "__init__", turned)


def without_the_slope_of_the_noise_law(patch):
    """-(alpha'/alpha) p_t alone: eq:Rate-matrix-expression with p_t put in."""
    patch.setattr(Mixture, "jump_shares", lambda self, t: -self.schedule.d_alpha(t).unsqueeze(-1) * self.shares(t))


def noise_of_the_earlier_time(patch):
    """f_{t|s} = (1 - alpha_{t|s}) p_t, as if the noise law had always been what it is at t."""
    original = Mixture.fresh_shares

    def fresh(self, like, s, t):
        renew = self.keep_and_renew(like, s, t)[1].unsqueeze(-1)
        return original(self, like, None, t) if s is None else renew * self.shares(self.times(t, like))

    patch.setattr(Mixture, "fresh_shares", fresh)


def transposed_rates(patch):
    """R(x, y) for R(y, x)."""
    into, out = TimeScaled.log_rates_into, TimeScaled.log_rates_from
    patch.setattr(TimeScaled, "log_rates_into", out)
    patch.setattr(TimeScaled, "log_rates_from", into)


def clock_of_alpha_squared(patch):
    """gamma = -log alpha^2."""
    original = TimeScaled.clock
    patch.setattr(TimeScaled, "clock", lambda self, s, t: 2 * original(self, s, t))


def births_for_deaths(patch):
    """The units that are absent counted as present."""
    original = BirthDeath.factors
    patch.setattr(BirthDeath, "factors", lambda self, s, t: [f.flip(1, 2) for f in original(self, s, t)])


def survivors_for_the_dead(patch):
    """The bridge by Binomial(x_0 - x_t, 1 - p) in place of p: evidence of the units that died between s and t."""
    original = FiniteProcess.reverse_step

    def reverse_step(self, x_t, log_theta, s, t):
        law = original(self, x_t, log_theta, s, t)
        turned = torch.zeros_like(law.probs)
        for row, (x, probs) in enumerate(zip(x_t[:, 0].tolist(), law.probs[:, 0], strict=True)):
            top = x + int((probs[x:] > 0).nonzero().max())
            turned[row, 0, x : top + 1] = probs[x : top + 1].flip(0)
        return type(law)(turned.clamp_min(1e-300).log())

    patch.setattr(BirthDeath, "reverse_step", reverse_step)


def uniform_prior_for_any_noise(patch):
    """Sampling starts from uniform categories, whatever the noise law."""
    original = FixedNoise.prior

    def prior(self, rows, dtype=None, device=None):
        law = original(self, rows, dtype, device)
        return Categorical(torch.zeros_like(law.log_probs).log_softmax(-1))

    patch.setattr(FixedNoise, "prior", prior)


MUTANTS = [
    (without_the_slope_of_the_noise_law, "mixture", kernel_checks, "forward equation"),
    (without_the_slope_of_the_noise_law, "mixture", identity_checks, "bound(x)"),
    (noise_of_the_earlier_time, "mixture", kernel_checks, "marginal = transition of marginal"),
    (transposed_rates, "rates", kernel_checks, "forward equation"),
    (transposed_rates, "rates", identity_checks, "bound(x)"),
    (transposed_rates, "birth-death", identity_checks, "bound(x)"),
    (clock_of_alpha_squared, "rates", kernel_checks, "forward equation"),
    (births_for_deaths, "birth-death", kernel_checks, "forward equation"),
    (survivors_for_the_dead, "pure death", kernel_checks, "posterior = Bayes"),
    (uniform_prior_for_any_noise, "interpolation", identity_checks, "bound(x)"),
    (flipped_energy, "energy", kernel_checks, "reverse rates"),
    (flipped_energy, "energy", identity_checks, "bound(x)"),
    (flipped_energy, "energy of a product", kernel_checks, "reverse drift"),
    (flipped_energy, "energy of a product", kernel_checks, "reverse rates"),
    (energy_at_the_wrong_rows, "energy", identity_checks, "bound(x)"),
    (transposed_root, "correlated", kernel_checks, "covariance of draws"),
    (score_without_the_covariance, "correlated", kernel_checks, "gradient of the log-marginal"),
    (error_not_whitened, "correlated", fast_path_checks, "closed form"),
    (dropped_jacobian, "correlated", kernel_checks, "integrates to 1"),
    (inverted_ratio, "uniform", kernel_checks, "reverse rates"),
    (conditioning_on_the_target, "masking", kernel_checks, "reverse rates"),
    (wrong_product_order, "uniform", kernel_checks, "transition"),
    (missing_prior_term, "beta", identity_checks, "bound(x)"),
    (missing_prior_term, "gaussian-beta", identity_checks, "bound(x)"),
    (dropped_constant, "uniform", fast_path_checks, "closed form"),
    (dropped_constant, "uniform", identity_checks, "bound(x)"),
    (alpha_for_alpha_squared, "gaussian", fast_path_checks, "closed form"),
    (alpha_for_alpha_squared, "gaussian", identity_checks, "bound(x)"),
    (raw_posterior_for_leave_one_out, "uniform", kernel_checks, "reverse kernel"),
    (branch_on_mask_missing, "masking", kernel_checks, "reverse kernel"),
    (branch_on_mask_missing, "masking", kernel_checks, "posterior = Bayes"),
    (wrong_sign_in_the_reverse_drift, "product", kernel_checks, "reverse drift"),
    (score_sign_in_the_reverse_drift, "product", kernel_checks, "reverse drift"),
    (plug_in_kernel_for_marginalised, "uniform", kernel_checks, "reverse kernel"),
    (posterior_variance_for_optimal, "gaussian", variance_checks, "optimal variance"),
]


def failures(subject, check, quantity):
    rows = [row for row in check(subject) if quantity in row.quantity]
    assert rows, f"no row of {check.__name__} speaks of {quantity!r}"
    return [row for row in rows if not row.ok]


@pytest.mark.parametrize(
    ("mutant", "name", "check", "quantity"), MUTANTS, ids=[f"{m[0].__name__}-{m[1]}-{m[3]}" for m in MUTANTS]
)
def test_mutant_is_caught(mutant, name, check, quantity, monkeypatch):
    subject = SUBJECTS[name]()
    assert not failures(subject, check, quantity)
    mutant(monkeypatch)
    assert failures(subject, check, quantity)


def test_a_bound_without_its_prior_is_no_bound(monkeypatch):
    """With alpha_1 = 0.36 the prior's share is large, and without it the "bound" falls below the truth."""
    subject = finite_subject(Uniform(3, (2,), schedules.LinearBeta(0.1, 4.0)), "weak")
    assert not failures(subject, inequality_checks, "model's own law")
    missing_prior_term(monkeypatch)
    assert failures(subject, inequality_checks, "model's own law") and failures(subject, inequality_checks, "<= 1")


def test_an_infinite_bound_does_not_pass(monkeypatch):
    subject = SUBJECTS["masking"]()
    monkeypatch.setattr(Terms, "total", property(lambda self: self.diffusion + torch.inf))
    assert failures(subject, inequality_checks, "> 0.1")
