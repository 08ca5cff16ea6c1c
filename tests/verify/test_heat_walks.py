"""Geodesic random walks have their order on closed spaces; without the curvature in the operator they have none."""

import pytest
import torch

import unnoise as un
from unnoise.spaces.sphere import Sphere
from unnoise.verify.generator_moves import move_checks
from unnoise.verify.generators import wave
from unnoise.verify.rows import Place

TESTS = [wave(0)]


def failed(process):
    points = process.uniform(torch.zeros(6, *process.space.shape, dtype=torch.float64)).draw(un.NoiseSource(0, 6))
    leaning = process.generator(0.5).tilted(wave(5, 0.3))
    return [row.quantity for row in move_checks(leaning, points, Place("walk"), TESTS) if not row.ok]


@pytest.mark.parametrize(
    "process",
    [un.WrappedNormal((2,)), un.SphereHeat(1), un.SphereHeat(2), un.SphereHeat(3)],
    ids=["torus", "circle", "globe", "quaternions"],
)
def test_a_geodesic_walk_has_its_order(process):
    assert failed(process) == []


def test_the_curvature_is_seen(monkeypatch):
    """The mutant: tr(P H) for the Laplacian, without - d x . D phi."""
    surface = Sphere.surface

    def flat(self, phi, x, second=True):
        gradient, laplacian = surface(self, phi, x, second)
        if not second:
            return gradient, laplacian
        leaf = x.detach().clone().requires_grad_()
        with torch.enable_grad():
            slope = torch.autograd.grad(phi(leaf).sum(), leaf)[0]
        return gradient, laplacian + self.d * (leaf * slope).sum(1).detach()

    monkeypatch.setattr(Sphere, "surface", flat)
    assert failed(un.SphereHeat(2))
