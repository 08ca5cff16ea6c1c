"""Angles drawn by inversion, against the integrals of their densities, and the same in any batch."""

import pytest
import torch

from unnoise import rotation_laws
from unnoise.angle_draws import share_on_globe
from unnoise.noise import NoiseSource
from unnoise.sphere_laws import draw_angle, log_angle_density, rule


def test_drawn_angles_of_the_globe_invert_it_to_nine_digits(monkeypatch):
    """On both sides of the switch to a plane's law, which with its first correction alone is 1e-7 off."""
    place, weight = rule(80, torch.empty(0))

    def worst(v):
        u = torch.tensor([1e-9, 1e-4, 0.2, 0.5, 0.9, 0.999, 1 - 1e-9], dtype=torch.float64)
        w, v = draw_angle(u, torch.full((7,), v).double(), 2), torch.full((7, 1), v).double()
        share = w * (weight * log_angle_density(w.unsqueeze(1) * place, v, 2).exp()).sum(1)
        return float((share - u).abs().max())

    assert max(worst(v) for v in (0.00501, 0.02, 0.2, 1.0, 6.0)) < 1e-11
    assert max(worst(v) for v in (1e-9, 1e-3, 0.00499)) < 2e-9
    w, v = torch.tensor([0.02, 0.06]).double(), torch.tensor([1e-3, 0.02]).double()
    assert torch.allclose(share_on_globe(w, v)[1], log_angle_density(w, v, 2).exp(), rtol=1e-8)
    monkeypatch.setattr("unnoise.angle_draws.NARROW", 0.3)
    assert worst(0.29) > 1e-5


@pytest.mark.parametrize("draw", [lambda u, v: draw_angle(u, v, 2), rotation_laws.draw_angle], ids=["globe", "rotations"])
def test_a_rows_draw_is_the_same_in_any_batch(draw):
    """But for the last digit of a cosine in another place."""
    u, v = (NoiseSource(3, 400).at(name).uniform() for name in "uv")
    v = 0.002 + 2 * v.square()
    alone = torch.cat([draw(u[i : i + 8], v[i : i + 8]) for i in range(0, 400, 8)])
    assert torch.allclose(draw(u, v), alone, rtol=1e-14, atol=0)
