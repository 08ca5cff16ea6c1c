"""The example of a circle: a space and a process of one's own through bound, training, sampling and verification."""

import json
from math import log, pi

import pytest
import torch
from examples_path import FOLDER, example

import unnoise as un

circle = example("circle")


def harmonics(x):
    return torch.stack([f(n * x[:, 0]) for n in (1, 2) for f in (torch.cos, torch.sin)], 1)


def exact_harmonics(oracle, t):
    """E cos(n x_t), E sin(n x_t) of wrapped normal laws."""
    n = torch.tensor([1.0, 1.0, 2.0, 2.0], dtype=torch.float64)
    shrink = torch.exp(-0.5 * n.square() * (oracle.std**2 + circle.SPEED * t))
    angle = n * oracle.means.unsqueeze(1)
    waves = torch.where(torch.arange(4) % 2 == 0, torch.cos(angle), torch.sin(angle))
    return shrink * (oracle.weights @ waves)


def test_a_step_wraps_around():
    space = circle.Circle((1,))
    x = torch.tensor([[3.1], [-3.1]], dtype=torch.float64)
    frozen = space.freeze(un.Local(drift=torch.full_like(x, 2.0)), x)
    moved = space.move(frozen, un.Local(), x, torch.tensor(0.5, dtype=torch.float64), un.NoiseSource(0, 2))
    torch.testing.assert_close(moved[:, 0], torch.tensor([4.1 - 2 * pi, -2.1], dtype=torch.float64))
    with pytest.raises(ValueError, match=r"angle 4 outside \[-pi, pi\]"):
        space.check(torch.tensor([[4.0]]))


@pytest.mark.parametrize("cutoff", [1e-2, 0.1])
def test_the_bound_of_the_exact_model_is_minus_the_log_density(cutoff):
    """bound(x) = -log q(x) + E log(q_1/p_1), with the exact decoder, whatever the cut-off."""
    process = circle.Brownian()
    oracle = circle.Mixture(process)
    x = oracle.draw(un.NoiseSource(1, 4))
    ours = un.bound(oracle, x, exact=True, times=un.Quadrature(48), cutoff=cutoff, decoder=oracle.decoder).total
    nodes, log_weight = process.support(x, 1.0)
    gap = torch.stack([oracle.log_marginal(node, 1.0) for node in nodes]) + log(2 * pi)
    torch.testing.assert_close(ours, -oracle.log_prob(x) + (log_weight.exp() * gap).sum(0), rtol=0, atol=1e-8)
    default = un.bound(oracle, x, exact=True, times=un.Quadrature(48), cutoff=cutoff).total
    mean = (default + oracle.log_prob(x)).mean()
    assert float(mean) > 0  # a decoder that does not know the data can only be above


@pytest.mark.conformance
def test_a_network_learns_the_reverse_drift_and_samples_have_the_law_of_the_data():
    """Trained on the bound, a small network comes within 0.05 nats of the exact model; its samples have the harmonics of the
    data within 5 standard errors and 0.04 (false alarm below 1e-5); before training they do not."""
    torch.manual_seed(0)
    process = circle.Brownian()
    oracle, denoiser = circle.Mixture(process), un.Denoiser(circle.Network(), process)
    objective, source = un.Objective(denoiser), un.NoiseSource(5, 256)
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=3e-3)
    untrained, _ = un.sample(denoiser, n=1000, steps=64, seed=3)
    for step in range(300):
        loss = objective(oracle.draw(source.at(step)).float(), source.at("noise", step)).loss.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x = oracle.draw(un.NoiseSource(9, 64))
    with torch.no_grad():
        ours, exact = (un.bound(model, y, seed=7).total.double().mean() for model, y in ((denoiser, x.float()), (oracle, x)))
    assert float(ours - exact) < 0.05
    drawn, info = un.sample(denoiser, n=1000, seed=3)
    assert info.calls == 256 and float(drawn.abs().max()) <= pi
    expected = exact_harmonics(oracle, 0.0)
    assert float((harmonics(drawn.double()).mean(0) - expected).abs().max()) < 5 / (2 * 1000) ** 0.5 + 0.04
    assert float((harmonics(untrained.double()).mean(0) - expected).abs().max()) > 0.3


@pytest.mark.conformance
def test_the_command_verifies_it(monkeypatch, capsys):
    from unnoise.cli import main

    monkeypatch.chdir(FOLDER)
    monkeypatch.setattr("sys.argv", ["unnoise", "verify", "--process", "circle:process", "--json"])
    with pytest.raises(SystemExit) as ended:
        main()
    rows = json.loads(capsys.readouterr().out)
    assert not ended.value.code and all(row["verdict"] in ("ok", "not checked") for row in rows)
    assert sum(row["verdict"] == "ok" for row in rows) >= 6
    assert any("bound(x) with the exact model" in row["quantity"] for row in rows)
