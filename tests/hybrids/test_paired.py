"""Paired tokens: the whole sum is a bound and the tokens' part is none; exact logits give the entropy; what samples are."""

from math import log, sqrt

import pytest
import torch
from known_pairs import KnownPaired, Wrong, law, paired

import unnoise as un
from unnoise import hybrids
from unnoise.objectives.weightings import Bound
from unnoise.samplers import Ancestral, OneByOne


def bound(denoiser, x, nodes=48):
    return un.bound(denoiser, x, times=un.Quadrature(nodes), exact=True)


def model(network, code, process):
    return un.Denoiser(network, process, code=code)


@pytest.fixture
def tokens_alone(monkeypatch):
    """The mutant: the rate of the vectors is left out."""

    def rate(self, prediction, process, x0, *rest):
        return whole(self, prediction.leaves["tokens"], process.leaves["tokens"], x0["tokens"], *rest)

    whole = Bound.rate
    monkeypatch.setattr(Bound, "rate", rate)


@pytest.fixture
def no_evidence(monkeypatch):
    """The mutant: what the vector says of its own token is forgotten."""
    monkeypatch.setattr(un.codes.Codebook, "evidence", lambda self, z, t, process: 0.0)


@pytest.mark.parametrize("cutoff", [1e-3, 0.3])
@pytest.mark.parametrize("size, length, everywhere", [(2, 1, False), (3, 1, False), (3, 1, True)])
def test_the_bound_of_a_wrong_network_is_a_bound(size, length, everywhere, cutoff):
    code, process = paired(size, length, [[-1.0], [1.0], [0.4]][:size], cutoff)
    code.everywhere = everywhere
    total = bound(model(Wrong(code), code, process), code.space.states()).total
    assert 0.1 < float((-total).exp().sum()) <= 1 + 1e-7


@pytest.mark.conformance
def test_the_bound_of_a_wrong_network_is_a_bound_for_two_tokens():
    code, process = paired(2, 2, cutoff=1e-2)
    total = bound(model(Wrong(code, spread=0.5), code, process), code.space.states(), nodes=20).total
    assert 0.1 < float((-total).exp().sum()) <= 1 + 1e-5


@pytest.mark.parametrize("schedule, alone", [(un.schedules.Cosine(), 0.33619), (un.schedules.Linear(), 0.33652)])
def test_the_term_of_the_tokens_alone_is_no_bound(schedule, alone, request):
    """A fair bit: 0.336 nats by tokens alone, so that exp(-0.336) summed over the bit is 1.429; with the vectors log 2."""
    code, process = paired(2, 1, vectors=schedule)
    denoiser = model(KnownPaired(code, process, torch.full((2,), 0.5).double()), code, process)
    assert torch.allclose(bound(denoiser, code.space.states()).total, torch.tensor(log(2)).double(), atol=1e-9)
    request.getfixturevalue("tokens_alone")
    total = bound(denoiser, code.space.states()).total
    assert total.tolist() == pytest.approx([alone] * 2, abs=1e-5)
    assert float((-total).exp().sum()) == pytest.approx(2 * torch.tensor(-alone).exp().item(), abs=1e-4) and alone < log(2)


@pytest.mark.parametrize("cutoff", [1e-2, 0.3])
def test_exact_logits_of_one_token_give_the_entropy(cutoff):
    code, process = paired(3, 1, [[-1.0], [1.0], [0.4]], cutoff)
    q = law(3, 1)
    total = bound(model(KnownPaired(code, process, q), code, process), code.space.states(), nodes=64).total
    assert float((total + q.log()).abs().max()) < 1e-6


def test_a_prior_that_is_not_the_law_of_the_noise_is_paid_for():
    """alpha_1 > 0: bound(x) = -log q(x) + E_{z ~ q(z_1 | x)} log q_1(z)/p_1(z), the last by quadrature."""
    schedule = un.schedules.LinearBeta(beta_max=4.0)
    code, process = paired(2, 1, cutoff=1e-2, vectors=schedule)
    q = torch.tensor([0.3, 0.7], dtype=torch.float64)
    total = bound(model(KnownPaired(code, process, q), code, process), code.space.states(), nodes=64).total
    one = torch.ones(1, dtype=torch.float64)
    alpha, sigma = float(schedule.alpha(one)), float(schedule.sigma(one))
    noise = torch.linspace(-9, 9, 1801, dtype=torch.float64)
    weight = torch.exp(-noise.square() / 2) * 0.01 / sqrt(2 * torch.pi)
    for i, e in enumerate((-1.0, 1.0)):
        z = alpha * e + sigma * noise
        normal = [-(z - alpha * mean).square() / (2 * sigma**2) for mean in (-1.0, 1.0)]
        mixed = torch.logaddexp(q[0].log() + normal[0], q[1].log() + normal[1])
        mismatch = float((weight * (mixed + z.square() / (2 * sigma**2))).sum())
        assert abs(mismatch) > 0.01
        assert float(total[i] + q[i].log()) == pytest.approx(mismatch, abs=1e-6)


@pytest.mark.conformance
def test_exact_logits_of_two_tokens_give_the_entropy():
    code, process = paired(2, 2, cutoff=1e-2)
    q = law(2, 2, seed=1)
    denoiser = model(KnownPaired(code, process, q), code, process)
    total = bound(denoiser, code.space.states(), nodes=24).total
    assert float((total + q.log()).abs().max()) < 2e-5


def test_the_bound_is_the_divergence_of_the_generators():
    """The closed forms of both leaves against currents and kernels, and a revealed position counts nothing."""
    code, process = paired(3, 2, [[-1.0], [1.0], [0.4]])
    denoiser, x0 = model(Wrong(code), code, process), torch.tensor([[0, 2], [1, 1], [2, 0]])
    states = code.encode(x0, un.NoiseSource(0, 3), {})[0]
    x_t = {"tokens": torch.tensor([[3, 2], [3, 3], [2, 0]]), "vectors": torch.randn(3, 2, 1, dtype=torch.float64)}
    t = torch.tensor([0.3, 0.6, 0.5], dtype=torch.float64)
    prediction = denoiser(x_t, t)
    slow = un.divergence(process.reverse(x_t, states, t), prediction)
    fast = Bound().rate(prediction, process, states)
    assert torch.allclose(slow, fast, rtol=1e-9)
    assert float(fast[2]) == 0 and torch.equal(prediction["vectors"].value[2], states["vectors"][2])


def test_the_network_is_shown_no_vector_beside_a_token():
    code, process = paired(2, 2)
    x_t = {"tokens": torch.tensor([[2, 1]]), "vectors": torch.tensor([[[0.3], [0.4]]], dtype=torch.float64)}
    assert code.seen(x_t)["vectors"].tolist() == [[[0.3], [0.0]]]
    changed = {**x_t, "vectors": torch.tensor([[[0.3], [9.0]]], dtype=torch.float64)}
    denoiser = model(Wrong(code), code, process)
    one, other = (denoiser(x, 0.5) for x in (x_t, changed))
    assert torch.equal(one["tokens"].value[:, 0], other["tokens"].value[:, 0])
    code.everywhere = True
    one, other = (denoiser(x, 0.5) for x in (x_t, changed))
    assert not torch.equal(one["tokens"].value[:, 0], other["tokens"].value[:, 0])


def chain_law(denoiser, times, hard=False):
    """The law of `Ancestral` for one token with one number: the kernels written out, on a fine grid of z."""
    code, process = denoiser.code, denoiser.process
    masking, gaussian = process.leaves["tokens"].schedule, process.leaves["vectors"].schedule
    h, e = 0.02, code.table.vectors[:, 0]
    z = torch.arange(-7, 7 + h / 2, h, dtype=torch.float64)
    x = {"tokens": torch.full((len(z), 1), code.space.size), "vectors": z.reshape(-1, 1, 1)}
    mass = torch.exp(-z.square() / 2) * h / sqrt(2 * torch.pi)  # masked, with this z
    out = torch.zeros(code.space.size, dtype=torch.float64)
    for t, s in zip(times[:-1], times[1:], strict=True):
        t, s = (torch.tensor([value], dtype=torch.float64) for value in (t, s))
        a_t, s_t, a_s, s_s = gaussian.alpha(t), gaussian.sigma(t), gaussian.alpha(s), gaussian.sigma(s)
        logits = denoiser.network(x, t.expand(len(z)))[:, 0]
        p = (logits - (z[:, None] - a_t * e).square() / (2 * s_t.square())).softmax(1)
        clean = e[p.argmax(1)] if hard else p @ e
        hidden = (1 - masking.alpha(s)) / (1 - masking.alpha(t))
        out = out + (1 - hidden) * (mass @ p)
        ratio = a_t / a_s
        var = s_t.square() - ratio.square() * s_s.square()
        mean = (ratio * s_s.square() * z + a_s * var * clean) / s_t.square()
        std = s_s * var.sqrt() / s_t
        kernel = torch.exp(-((z - mean[:, None]) / std).square() / 2)
        mass = hidden * (mass @ (kernel / kernel.sum(1, keepdim=True)))
    t = torch.tensor([times[-1]], dtype=torch.float64)
    logits = denoiser.network(x, t.expand(len(z)))[:, 0]
    p = (logits - (z[:, None] - gaussian.alpha(t) * e).square() / (2 * gaussian.sigma(t).square())).softmax(1)
    return out + mass @ p


def distance(denoiser, wanted, times, n=40_000):
    """The largest deviation of a share, in standard errors."""
    x, _ = un.sample(denoiser, n=n, grid=times, sampler=Ancestral(), seed=3)
    share = torch.bincount(x[:, 0], minlength=len(wanted)) / n
    return float(((share - wanted) / (wanted * (1 - wanted) / n).sqrt()).abs().max())


TIMES = [1.0, 0.7, 0.45, 0.2]


def test_samples_have_the_law_of_the_model(request):
    """Three steps and the reading of one of three tokens, 40,000 draws, five standard errors (false alarm below 2e-6); the
    law of hard vectors and that without evidence are far from it."""
    code, process = paired(3, 1, [[-1.0], [1.0], [0.4]], cutoff=0.2)
    denoiser = model(Wrong(code, seed=4), code, process)
    soft, hard = chain_law(denoiser, TIMES), chain_law(denoiser, TIMES, hard=True)
    assert float(soft.sum()) == pytest.approx(1, abs=1e-9)
    assert distance(denoiser, soft, TIMES) < 5
    assert distance(hybrids.Hardened(denoiser), hard, TIMES) < 5
    assert distance(hybrids.Hardened(denoiser), soft, TIMES) > 8
    request.getfixturevalue("no_evidence")
    assert distance(denoiser, soft, TIMES) > 8


@pytest.mark.parametrize(
    "sampler, steps", [pytest.param(Ancestral(), 64, marks=pytest.mark.conformance), (OneByOne(Ancestral()), 24)]
)
def test_samples_of_the_exact_model_have_the_law_of_the_data(sampler, steps):
    """Two tokens that depend on each other: 10,000 draws, total variation below 0.025 (by chance alone less than once in
    1e6; that of independent tokens is 0.2)."""
    code, process = paired(2, 2, cutoff=1e-2)
    q = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)
    x, _ = un.sample(model(KnownPaired(code, process, q), code, process), n=10_000, steps=steps, sampler=sampler, seed=0)
    share = torch.bincount(2 * x[:, 0] + x[:, 1], minlength=4) / 10_000
    assert float((share - q).abs().sum() / 2) < 0.025


def test_learned_vectors_have_gradients_and_one_length():
    space = un.Finite(3, (2,))
    code = hybrids.Paired.learned(space, 2, seed=0, cutoff=1e-2).double()
    denoiser = model(Wrong(code), code, hybrids.beside(space, 2))
    un.Objective(denoiser)(torch.tensor([[0, 1], [2, 2]])).loss.sum().backward()
    assert float(code.table.raw.grad.abs().sum()) > 0
    assert torch.allclose(code.table.vectors.norm(dim=1), torch.tensor(2.0).double().sqrt())


def test_half_precision_around_it_changes_nothing():
    """Under autocast the rate of a revealed token is 0 still, and the evidence is that of float32."""
    code, process = paired(3, 2, [[-1.0], [1.0], [0.4]])
    code = code.float()
    x_t = {"tokens": torch.tensor([[3, 2]]), "vectors": torch.tensor([[[0.3], [0.4]]])}
    logits, t = torch.randn(1, 2, 3).bfloat16(), torch.full((1,), 0.4, dtype=torch.float64)
    plain = code.prediction(logits, process, x_t, t)
    with torch.autocast("cpu", torch.bfloat16):
        said = code.prediction(logits, process, x_t, t)
    assert torch.equal(said["vectors"].value[0, 1], code.table.vectors[2])
    assert torch.equal(said["vectors"].value, plain["vectors"].value)
    assert torch.equal(said["tokens"].value, plain["tokens"].value)


def test_what_does_not_fit_is_refused():
    code, process = paired(2, 2)
    with pytest.raises(ValueError, match="it returns logits"):
        un.bound(model(Wrong(code, answers=True), code, process), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="is no category"):
        un.bound(model(Wrong(code), code, process), torch.full((1, 2), 2))
