"""Planted mutants: each is a mistake that people make, and each is caught by a named check of `unnoise verify`.

A mutant is planted by replacing a method for the length of the test; the check named beside it must then fail, and must pass
without it (so it is the mutant that it catches).
"""

import pytest
import torch

from unnoise import schedules
from unnoise.generators.local import Local
from unnoise.objectives import closed_forms
from unnoise.objectives.bound import Bound
from unnoise.predictions.finite import Posterior, RawPosterior
from unnoise.processes import Gaussian, Masking, Product, Uniform
from unnoise.processes.categorical import RankOne
from unnoise.processes.finite import FiniteProcess
from unnoise.schedules import Schedule
from unnoise.verify.bounds import fast_path_checks, identity_checks, inequality_checks, variance_checks
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.subjects import finite_subject, gaussian_subject, product_subject

SUBJECTS = {
    "masking": lambda: finite_subject(Masking(3, (2,)), "masking"),
    "uniform": lambda: finite_subject(Uniform(3, (2,)), "uniform"),
    "beta": lambda: finite_subject(Uniform(3, (2,), schedules.LinearBeta()), "beta"),
    "gaussian": lambda: gaussian_subject(Gaussian((1,)), "gaussian", 3),
    "gaussian-beta": lambda: gaussian_subject(Gaussian((1,), schedules.LinearBeta()), "gaussian", 3),
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
    patch.setattr(Bound, "total", property(lambda self: self.diffusion + self.reconstruction))


def dropped_constant(patch):
    """Score entropy without its network-free terms, reported as the bound's rate."""
    from unnoise.generators import local

    def without(log_true, log_model):
        return (log_model.exp() - log_true.exp() * log_model).sum(-1)

    patch.setattr(local, "jump_divergence", without)


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

    patch.setattr(variances.Optimal, "of", variances.Posterior.of)


MUTANTS = [
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
    monkeypatch.setattr(Bound, "total", property(lambda self: self.diffusion + torch.inf))
    assert failures(subject, inequality_checks, "> 0.1")
