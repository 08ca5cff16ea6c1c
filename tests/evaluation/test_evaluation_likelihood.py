"""Exact values beside the bound: they are the truth where the truth is known, and say why where there are none."""

import json
from math import log, sqrt

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data import read
from unnoise.data.arrays import Array
from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.evaluation import likelihood
from unnoise.evaluation.report import evaluate
from unnoise.evaluation.scores import chosen
from unnoise.evaluation.shown import shown
from unnoise.likelihoods import Dequantised, UniformDequantisation
from unnoise.networks.presets import default_network
from unnoise.training.data_order import split
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

LETTERS = Sequences(form="fasta", symbols="characters", alphabet=["A", "C", "G"], length=3, padded=False)


def untrained(process: un.Process) -> un.Denoiser:
    return un.Denoiser(default_network(process, "tiny", seed=0), process, un.predictions.default_kind(process)).eval()


def test_few_categories_are_enumerated():
    process = LETTERS.process()
    x = process.space.states()
    law = torch.where((x == x[:, :1]).all(1), 8.0, 1.0).double()
    law = law / law.sum()
    rows = torch.arange(27).repeat_interleave((law * law.sum() / law.min()).round().long())
    found, why = likelihood.exact_on(un.oracles.table(process, law), LETTERS, x[rows], seed=0)
    assert why is None and found["nats"] == pytest.approx(-float((law * law.log()).sum()), abs=1e-5)
    assert abs(found["bound_minus_exact"]) < 4 * found["its_standard_error"] + 1e-9  # the bound of a true model is tight
    assert found["bits_per_dim"] == pytest.approx(found["nats"] / 3 / log(2)) and found["examples"] == len(rows)
    uniform, _ = likelihood.exact_on(untrained(process), LETTERS, x, seed=0)
    assert uniform["nats"] == pytest.approx(3 * log(3), abs=1e-5) and uniform["bound_minus_exact"] > -1e-5


def test_numbers_go_through_the_flow():
    format = Array(shape=[2], dtype="float64", mean=[0.0, 0.0], scale=[1.0, 1.0])
    covariance = torch.tensor([[0.5, 0.2], [0.2, 0.4]]).double()
    oracle = un.oracles.normal(format.process(), torch.tensor([0.3, -0.2]).double(), covariance)
    x = oracle.draw(un.NoiseSource(0, 50))
    found, why = likelihood.exact_on(oracle, format, x, seed=0)
    assert why is None and found["nats"] == pytest.approx(-float(oracle.log_prob(x).mean()), abs=2e-3)
    assert abs(found["bound_minus_exact"]) < 4 * found["its_standard_error"] + 1e-3


def test_levels_have_a_probability():
    """A law on four levels, two coordinates: 16 points in the middles of bins, which a uniform place in the bin misses."""
    format = Array(shape=[2], dtype="uint8", levels=4)
    level = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    law = torch.arange(1, 17).double() / 136
    points = ((level + 0.5) * format.width - 1).double()
    tight = 1e-8 * torch.eye(2).double().expand(16, 2, 2)
    oracle = un.oracles.mixture(format.process(), law, points, tight)
    found, _ = likelihood.exact_on(oracle, format, points.float(), seed=0)
    truth = -float(law.log().mean())
    assert found["nats"] == pytest.approx(truth, abs=0.02) and "over bins of width 0.5" in found["of"]
    method = likelihood.exact_method(oracle, format)
    assert isinstance(method, Dequantised)
    plain = Dequantised(method.method, format.width, -1.0, UniformDequantisation())
    log_p, _ = un.likelihood(oracle, level, plain, seed=0)
    assert -float(log_p.mean()) > truth + 0.5


def test_the_law_of_the_place_in_a_bin():
    """log q is that of u: du/dv = 1/q, and u stays in the bin with the spread of the noise."""
    v = un.NoiseSource(0, 20000).uniform((1,)).requires_grad_()
    u, log_q = likelihood.NoiseDequantisation(1 / 6)(torch.zeros(20000, 1, dtype=torch.int64), v)
    (slope,) = torch.autograd.grad(u.sum(), v)
    u, log_q = u.detach(), log_q.detach()
    assert torch.allclose(-slope.log().squeeze(1), log_q, atol=1e-6)
    assert float(u.min()) > 0 and float(u.max()) < 1
    assert float(u.mean()) == pytest.approx(0.5, abs=0.005) and float(u.std()) == pytest.approx(1 / 6, rel=0.03)


def test_why_there_is_none(tmp_path):
    long = Sequences(form="text", symbols="characters", alphabet=list("abc"), length=64, padded=False)
    found, why = likelihood.exact_on(untrained(long.process()), long, torch.zeros(2, 64, dtype=torch.int64), seed=0)
    assert found is None and "about 10^38 states" in why and "4096" in why
    for numbers, words in ((True, "numbers beside categories"), (False, "different numbers of categories")):
        values = [f"{i * i * 0.37:.3f}" if numbers else "pqr"[i % 3] for i in range(300)]
        path = tmp_path / f"{numbers}.csv"
        path.write_text("x,y\n" + "".join(f"{value},{'ab'[i % 2]}\n" for i, value in enumerate(values)))
        table, x = Table.fit(path)
        found, why = likelihood.exact_on(untrained(table.process()), table, x, seed=0)
        assert found is None and words in why


def test_the_two_errors_of_the_bound():
    """Rows 0 and 2 in turn, and draws that differ by -1 and 1 in each row, neighbours alike: what a common move of the times
    does to all rows is no error of these draws.  With signs in turn the draws have var 2, so 2/(2 x 8) in the mean."""
    terms = torch.zeros(2, 8, 3).double()
    terms[:, ::2, 1] = 2.0
    rows = 8 / 7  # the variance of 0 and 2 in turn
    terms[0, :, 2], terms[1, :, 2] = -1.0, 1.0
    found = likelihood.bound_figures(terms, 4)
    assert found["bound"] == pytest.approx(1.0) and found["bits_per_dim"] == pytest.approx(1.0 / 4 / log(2))
    assert found["draw_se"] == 0 and found["standard_error"] == pytest.approx(sqrt(max(0, rows - 2 / 2) / 8))
    sign = torch.tensor([1.0, 1, -1, -1]).repeat(2)
    terms[0, :, 2], terms[1, :, 2] = sign, -sign
    part = likelihood.bound_figures(terms, 4)
    assert part["draw_se"] == pytest.approx(sqrt(2 * 12 / 14 / 16))  # of seven pairs three differ, by 2 at both draws
    assert part["standard_error"] == pytest.approx(sqrt((rows - 1) / 8 + 2 * 12 / 14 / 16))
    low, high = part["interval_95"]
    assert (high - low) / 2 == pytest.approx(2.3646 * part["standard_error"], rel=1e-3)  # Student's t of seven
    single = likelihood.bound_figures(terms[:1, :1], 4)
    assert single["standard_error"] is None and single["draw_se"] is None and single["interval_95"] is None
    assert "1 rows are too few" in single["standard_error_why"]
    assert likelihood.bound_figures(terms[:, :7], 4)["standard_error"] is None


def test_a_run_of_numbers_has_an_exact_value(tmp_path):
    np.save(tmp_path / "p.npy", np.random.default_rng(0).normal(size=(200, 2)) * [1.0, 5.0])
    form, x0 = read(tmp_path / "p.npy")
    run = Run.create(tmp_path / "run", recipe(form, len(x0), "tiny", steps=40))
    (run.folder / "data.json").write_text(json.dumps({"path": str(tmp_path / "p.npy")}) + "\n")
    train(run, x0)
    result = evaluate(run, draws=2, exact_rows=8, device="cpu")
    exact = result["exact"]
    assert exact["examples"] == 8 and result["examples"] == 20 and "exact_why" not in result
    assert result["quality"] is None and "no score of samples is known for data of the kind 'array'" in result["quality_why"]
    assert exact["bound_minus_exact"] == pytest.approx(exact["bound_on_these_rows"] - exact["nats"])
    denoiser = run.denoiser(which="best")
    held = form.encode(tmp_path / "p.npy")[split(200, run.config.train.validation, run.config.train.seed)[1]]
    log_p, _ = un.likelihood(denoiser, held[chosen(20, 4096, 0)[:8]], seed=0)  # with tighter tolerances
    assert exact["nats"] == pytest.approx(-float(log_p.mean()), abs=5e-3)
    assert "  nats" in shown(result) and f"{exact['nats']:.5g}" in shown(result)
