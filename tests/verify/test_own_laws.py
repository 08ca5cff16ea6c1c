"""The law of a model's own reverse process: the data law where the denoiser is exact, below every bound where it is not."""

import pytest
import torch

import unnoise as un
from unnoise.objectives import Quadrature, bound, default_decoder
from unnoise.verify import subject_of
from unnoise.verify.own_laws import OwnLaw, above_own_law, exact_law
from unnoise.verify.rows import Place
from unnoise.verify.wrong import Perturbed

PROCESSES = {
    "circle": un.WrappedNormal(()),
    "S1": un.SphereHeat(1),
    "vertices": un.WrightFisher([1.0, 2.5], vertices=True),
    "inside": un.WrightFisher([1.5, 2.0], un.schedules.VE(0.15, 2.2)),
}
slow = [pytest.param(name, marks=pytest.mark.conformance) for name in ("S1", "vertices", "inside")]
EPS = 0.1


def compared(name, own, scale, times=40):
    subject = subject_of(PROCESSES[name], name)
    model, decoder = Perturbed(subject.oracle.predicting(subject.kinds[0]), scale, 100), default_decoder(subject.process)
    x0 = subject.points[:4]
    ours = bound(model, x0, exact=True, times=Quadrature(times), cutoff=EPS, decoder=decoder).total
    return above_own_law(own, model, Place(name), "here", x0, EPS, decoder, ours)


@pytest.mark.parametrize("name", ["circle", *slow])
def test_the_exact_denoiser_has_the_data_law_and_bounds_lie_above_others(name, monkeypatch):
    """1e-5 of quadrature in x and t; without the factor 1/2 a bound falls below."""
    own, subject = OwnLaw(PROCESSES[name]), subject_of(PROCESSES[name], name)
    assert all(row.error < 1e-5 for row in exact_law(own, subject, Place(name)))
    assert compared(name, own, 0.1).ok and compared(name, own, 1.0).ok
    space = type(PROCESSES[name].space)
    whole = space.divergence
    monkeypatch.setattr(space, "divergence", lambda self, true, model, x: 0.5 * whole(self, true, model, x))
    assert not compared(name, own, 0.1).ok


def test_another_speed_of_the_reverse_is_another_law(monkeypatch):
    """A mutant: the reverse process turned by 0.8 of the score has not the data law."""
    subject = subject_of(PROCESSES["circle"], "circle")
    back = un.WrappedNormal.reverse_local
    monkeypatch.setattr(un.WrappedNormal, "reverse_local", lambda self, x, score, t: back(self, x, 0.8 * score, t))
    assert not any(row.ok for row in exact_law(OwnLaw(PROCESSES["circle"]), subject, Place("circle")))


@pytest.mark.conformance
def test_on_the_globe(monkeypatch):
    """By 144 spherical harmonics, down to the time 0.5: the exact denoiser's law is the data's, bounds lie above others'."""
    import unnoise.processes.sphere_heat as module

    monkeypatch.setattr(module, "RINGS", 16)
    monkeypatch.setattr(module, "AROUND", 16)
    process = un.SphereHeat(2)
    own, eps = OwnLaw(process), 0.5
    poles = un.Sphere(2).project(torch.tensor([[0.2, -0.9, 0.4], [0.5, 0.5, 0.7]], dtype=torch.float64))
    truth = un.oracles.heat_mixture(process, torch.tensor([0.4, 0.6]), poles, torch.tensor([0.5, 0.7]))
    x0 = un.Sphere(2).project(torch.tensor([[0.1, -0.8, 0.6], [-0.7, 0.2, 0.1]], dtype=torch.float64))
    exact = own.log_prob(truth, x0, eps, truth.decoder)
    assert torch.allclose(exact, truth.log_prob(x0), atol=1e-4)
    decoder = default_decoder(process)
    for scale in (0.1, 1.0):
        model = Perturbed(truth, scale, 100)
        ours = un.bound(model, x0, exact=True, times=Quadrature(12), cutoff=eps, decoder=decoder).total
        assert above_own_law(own, model, Place("globe"), "here", x0, eps, decoder, ours).ok


def test_what_has_no_functions_is_told():
    with pytest.raises(NotImplementedError, match="no functions are known on Euclidean"):
        OwnLaw(un.Gaussian((1,)))
    with pytest.raises(NotImplementedError, match="takes too long here"):
        OwnLaw(un.WrappedNormal((2,)))
