"""Mistakes that people make with weights; each makes a check of the other files fail by far."""

import pytest
import torch
from enumerated import weighted_law
from test_targets import PROCESS, TARGETS, P, groups, model, total_variation

import unnoise as un
from unnoise.samplers import particles, proposals


def gap(name):
    """(total variation of the weighted law, relative error of its normaliser)."""
    target, wanted = TARGETS[name]
    law, z = weighted_law(target)
    return total_variation(law, wanted), abs(z / float(wanted.sum()) - 1)


def z_in_errors(name):
    target, wanted = TARGETS[name]
    _, info = groups(target, 1000, 8, share=1.0)
    z = info.particles.log_normaliser.exp() / float(wanted.sum())
    return abs(float(z.mean()) - 1) / (float(z.std()) / 1000**0.5)


def test_a_weight_is_forgotten(monkeypatch):
    right = proposals.Reveals.move

    def off_by_one(self, said, x, memory, k, noise):
        move = right(self, said, x, memory, k, noise)
        return move if k else proposals.Move(move.x, torch.zeros_like(move.log_weight))

    monkeypatch.setattr(proposals.Reveals, "move", off_by_one)
    assert max(gap("geometric 2")) > 0.01


def test_the_proposal_is_not_divided_by(monkeypatch):
    def unnormalised(self, parts, own):
        return torch.stack([g * part for g, part in zip(self.exponents, parts, strict=True)]).sum(0)

    monkeypatch.setattr(proposals.Proposal, "weigh", unnormalised)
    assert min(gap("geometric 2")) > 0.01


def test_the_factor_of_the_last_state_is_not_taken_back(monkeypatch):
    right = un.targets.Twisted.said

    def doubled(self, x_t, t, /, **condition):
        said = right(self, x_t, t, **condition)
        return un.samplers.Said(said.parts, said.prediction, None if said.log_twist is None else said.log_twist * 2)

    monkeypatch.setattr(un.targets.Twisted, "said", doubled)
    target, wanted = TARGETS["reward"]
    assert total_variation(weighted_law(target)[0], wanted) < 1e-12  # whatever is said on the way is taken back
    monkeypatch.setattr(un.targets.Twisted, "log_factor", lambda self, x0, condition: None)
    assert total_variation(weighted_law(target)[0], wanted) > 0.01  # but what is said at the end counts


def test_ancestors_without_weights(monkeypatch):
    assert z_in_errors("product 3, -2") < 4

    def any_row(weights, u):
        return particles_systematic(torch.zeros_like(weights), u)

    particles_systematic = particles.systematic
    monkeypatch.setattr(particles, "systematic", any_row)
    assert z_in_errors("product 3, -2") > 4


def test_weights_are_kept_after_resampling(monkeypatch):
    """A normaliser that is not multiplied up."""
    monkeypatch.setattr(particles, "log_mean", lambda weights: weights.logsumexp(1) * 0)
    assert z_in_errors("geometric 2") > 4


class Broken(un.guidance.Twist):
    """A rule that stops short of an answer where it is not met."""

    def at_the_end(self, x0, condition):
        return torch.where(x0[:, 0] == 0, 0.0, float("nan")).double()


def test_numbers_that_are_none_are_not_zero(monkeypatch):
    """log h = NaN counted as 0 would let in all that the rule is to keep out."""
    states = PROCESS.space.states()
    target, wanted = un.targets.restricted(model(P), Broken()), P * (states[:, 0] == 0)
    with pytest.raises(ValueError, match="factor is nan"):
        groups(target, 4, 4)
    right = un.targets.Twisted.log_factor
    monkeypatch.setattr(un.targets.Twisted, "log_factor", lambda *told: right(*told).nan_to_num(0.0))
    assert total_variation(weighted_law(target)[0], wanted) > 0.1
