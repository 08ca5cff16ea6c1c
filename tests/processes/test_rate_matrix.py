"""Rate matrices with a time scale against closed forms: cosines, binomials, uniform noise, absorption."""

from copy import deepcopy
from io import BytesIO
from math import cos, pi

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.weak import WeakTensorKeyDictionary

import unnoise as un
from unnoise import rate_matrices, schedules
from unnoise.generators.semigroup import stationary
from unnoise.noise import NoiseSource

F64 = torch.float64
PAIRS = ((0.1, 0.6), (0.0, 1e-6), (0.5, 1.0), (1 - 1e-3, 1 - 1e-5))


def close(a, b, limit=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=limit)


def dense(process, s, t):
    """Q_{t|s} of one coordinate."""
    return process.transition(torch.arange(process.state_space.size), s, t).probs.T


def clock(process, s, t):
    """log(alpha_s/alpha_t)."""
    alpha_s, alpha_t = process.schedule.alpha(s).item(), process.schedule.alpha(t).item()
    return torch.tensor(alpha_s / max(alpha_t, 1e-300), dtype=F64).log().item()


class Table(torch.nn.Module):
    """Arbitrary logits for one coordinate."""

    def __init__(self, states, size):
        super().__init__()
        self.table = torch.randn(states, size, dtype=F64, generator=torch.Generator().manual_seed(2))

    def forward(self, x, t):
        return self.table[x] * (1 + t).unsqueeze(-1)


def one_process(ours, theirs, limit=1e-12):
    """The same kernels, posteriors, rates and bounds."""
    points, data = ours.state_space.states(), ours.space.states()
    x_t, x0 = points.repeat_interleave(len(data), 0), data.repeat(len(points), *[1] * (data.ndim - 1))
    close(ours.prior(3).probs, theirs.prior(3).probs, limit)
    for s, t in PAIRS:
        close(ours.marginal(data, t).probs, theirs.marginal(data, t).probs, limit)
        close(ours.transition(points, s, t).probs, theirs.transition(points, s, t).probs, limit)
        likely = theirs.marginal(x0, t).log_prob(x_t) > -40
        pairs = x_t[likely], x0[likely]
        close(ours.posterior(*pairs, s, t).probs, theirs.posterior(*pairs, s, t).probs, 100 * limit)
        if t < 1:
            torch.testing.assert_close(ours.local(points, t).rates, theirs.local(points, t).rates, rtol=1e-12, atol=0)
            reverse = [p.reverse(*pairs, t).local().rates for p in (ours, theirs)]
            torch.testing.assert_close(*reverse, rtol=1e-10, atol=1e-10)
    network = Table(ours.state_space.size, ours.space.size)
    bounds = [un.bound(un.Denoiser(network, p), data, exact=True, times=un.Quadrature(16)).total for p in (ours, theirs)]
    torch.testing.assert_close(*bounds, rtol=1e-11, atol=1e-11)


# -- processes that have a class or a formula of their own --------------------------------------------------------------


@pytest.mark.parametrize("method", ["uniformization", "eigen"])
@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.LinearBeta()], ids=["Linear", "LinearBeta"])
def test_equal_rates_are_uniform_noise(schedule, method):
    one_process(un.RateMatrix(rate_matrices.banded(5, 4), (), schedule, method=method), un.Uniform(5, (), schedule))


def test_rates_to_mask_alone_are_masking():
    """Every category at the same rate to MASK, and nowhere else."""
    off = torch.zeros(4, 4)
    off[3, :3] = 7.0
    one_process(un.RateMatrix(rate_matrices.relaxed(off), (), size=3), un.Masking(3, ()))


def test_any_law_as_a_rate_matrix():
    p = torch.tensor([0.5, 0.2, 0.2, 0.1], dtype=F64)
    ours = un.RateMatrix(p.unsqueeze(1).expand(4, 4).clone().fill_diagonal_(0), (), schedules.LinearBeta(), size=3, prior=p)
    one_process(ours, un.Interpolation(3, (), p, schedules.LinearBeta()))


@pytest.mark.parametrize("occupancy", [0.0, 0.3])
def test_birth_and_death_of_units(occupancy):
    """Births rho (N - x), deaths (1 - rho) x relax at rate 1 already, so `relaxed` leaves their time scale alone."""
    most = 6
    x = torch.arange(most + 1, dtype=F64)
    base = rate_matrices.birth_death(occupancy * (most - x), (1 - occupancy) * x)
    assert float(base[0, 1]) == pytest.approx(1 - occupancy, rel=1e-9)
    scaled = rate_matrices.birth_death(5 * occupancy * (most - x), 5 * (1 - occupancy) * x)  # five times as fast: the same
    torch.testing.assert_close(base, scaled, rtol=1e-9, atol=0)
    theirs = un.BirthDeath(most, (), occupancy=occupancy)
    exact = (base * theirs.rate_table.table.exp()[0, 1] / base[0, 1]).fill_diagonal_(0)  # without the gap's rounding
    one_process(un.RateMatrix(exact, ()), theirs)


@pytest.mark.parametrize("size", [2, 7, 32])
@pytest.mark.parametrize("method", ["uniformization", "eigen"])
def test_nearest_neighbours_by_their_cosines(size, method):
    """Eigenvectors cos(pi j (x + 1/2)/K) with eigenvalues (cos(pi j/K) - 1)/(1 - cos(pi/K))."""
    process = un.RateMatrix(rate_matrices.nearest_neighbour(size), method=method)
    x = torch.arange(size, dtype=F64)
    vectors = torch.stack([torch.cos(pi * j * (x + 0.5) / size) for j in range(size)], 1)
    vectors = vectors / vectors.norm(dim=0)
    values = torch.tensor([(cos(pi * j / size) - 1) / (1 - cos(pi / size)) for j in range(size)], dtype=F64)
    for s, t in ((0.0, 0.01), (0.2, 0.9), (0.5, 1.0)):
        exact = vectors * (clock(process, s, t) * values).exp() @ vectors.T
        close(dense(process, s, t), exact)
    close(dense(process, 0.0, 1.0), torch.full((size, size), 1 / size, dtype=F64))


@pytest.mark.parametrize("size", [3, 8])
def test_a_ring_by_its_waves(size):
    process = un.RateMatrix(rate_matrices.nearest_neighbour(size, periodic=True))
    x = torch.arange(size, dtype=F64)
    gap = 1 - cos(2 * pi / size)
    for s, t in ((0.0, 0.01), (0.2, 0.9)):
        g = clock(process, s, t)
        waves = [
            torch.cos(2 * pi * j * x / size) * torch.tensor(g * (cos(2 * pi * j / size) - 1) / gap, dtype=F64).exp()
            for j in range(size)
        ]
        column = sum(waves) / size
        exact = torch.stack([column.roll(i) for i in range(size)], 1)
        close(dense(process, s, t), exact)


@pytest.mark.parametrize("absorption", [0.5, 1.0, 20.0])
def test_absorption_beside_another_motion(absorption):
    """MASK takes 1 - alpha of the mass whatever the rest does; the rest moves by exp(g R/absorption)."""
    base = rate_matrices.discretised_gaussian(4, 1.0)
    process = un.RateMatrix(rate_matrices.with_mask(base, absorption), (), schedules.Cosine(), size=4)
    assert process.space.size == 4 and process.state_space.size == 5
    for s, t in ((0.0, 0.3), (0.4, 0.8)):
        keep = float(process.schedule.step_alpha(s, t))
        exact = torch.zeros(5, 5, dtype=F64)
        exact[:4, :4] = keep * torch.linalg.matrix_exp(clock(process, s, t) * base / absorption)
        exact[4, :4], exact[4, 4] = 1 - keep, 1
        close(dense(process, s, t), exact, 1e-11)  # the gap is found to 1e-12 of the fastest mode
    assert process.prior(1).probs[0].tolist() == pytest.approx([0, 0, 0, 0, 1], abs=1e-12)
    assert process.movable(torch.arange(5)).all()  # a category is entered by its neighbours
    only = un.RateMatrix(rate_matrices.with_mask(1e-9 * base, 1.0), (), size=4)
    x = torch.arange(4)
    close(only.marginal(x, 0.6).probs, un.Masking(4, ()).marginal(x, 0.6).probs, 1e-8)


# -- the builders ---------------------------------------------------------------------------------------------------------

LAW = torch.tensor([0.05, 0.3, 0.25, 0.3, 0.1], dtype=F64)
EMBEDDINGS = torch.randn(12, 3, dtype=F64, generator=torch.Generator().manual_seed(1))
BUILDERS = {
    "nearest": lambda: rate_matrices.nearest_neighbour(9),
    "ring": lambda: rate_matrices.nearest_neighbour(9, periodic=True),
    "gaussian": lambda: rate_matrices.discretised_gaussian(9, 2.0),
    "gaussian to a law": lambda: rate_matrices.discretised_gaussian(5, 2.0, LAW),
    "banded": lambda: rate_matrices.banded(9, 3),
    "birth and death": lambda: rate_matrices.birth_death(torch.rand(6) + 0.1, torch.rand(6) + 0.1),
    "similarity": lambda: rate_matrices.similarity(EMBEDDINGS, 4, 0.5),
    "with MASK": lambda: rate_matrices.with_mask(rate_matrices.banded(5, 1), 0.7),
    "cycle": lambda: rate_matrices.relaxed(torch.eye(4).roll(1, 0)),
}


@pytest.mark.parametrize("name", BUILDERS)
def test_builders_are_generators_with_gap_one(name):
    base = BUILDERS[name]()
    off = base - torch.diag(base.diagonal())
    assert base.dtype == F64 and bool((off >= 0).all())
    assert float(base.sum(0).abs().max()) < 1e-12 * float(off.max())
    decay = (-torch.linalg.eigvals(base).real).sort().values
    assert float(decay[0]) == pytest.approx(0, abs=1e-9) and float(decay[1]) == pytest.approx(1, rel=1e-9)
    torch.testing.assert_close(rate_matrices.relaxed(3.7 * base), base, rtol=1e-9, atol=1e-12)


def test_slowest_mode_decays_like_alpha():
    """The coarsest wave of ordered categories keeps alpha_{t|s} of its height, as every wave does under uniform noise."""
    process = un.RateMatrix(rate_matrices.nearest_neighbour(10), (), schedules.Cosine())
    wave = torch.cos(pi * (torch.arange(10, dtype=F64) + 0.5) / 10)
    for s, t in ((0.0, 0.4), (0.3, 0.99)):
        close(dense(process, s, t) @ wave, process.schedule.step_alpha(s, t) * wave, 1e-13)


def test_discretised_gaussian_to_a_law():
    base = rate_matrices.discretised_gaussian(5, 1.3, 7 * LAW)  # normalised by the builder
    close(stationary(base), LAW)
    flow = base * LAW
    close(flow, flow.T, 1e-13)
    x = torch.arange(5, dtype=F64)
    weight = (-0.5 * ((x[:, None] - x[None]) / 1.3).square()).exp() * LAW[:, None]
    ratio = (base / weight)[~torch.eye(5, dtype=torch.bool)]
    close(ratio, ratio[0].expand_as(ratio), 1e-12)
    process = un.RateMatrix(base)
    close(process.prior(1).probs[0], LAW)
    close(process.push(LAW.log().unsqueeze(0), 0.2, 0.7)[0].exp(), LAW)
    close(stationary(rate_matrices.discretised_gaussian(9, 2.0)), torch.full((9,), 1 / 9, dtype=F64))


def test_similarity_is_between_neighbours():
    k, temperature = 3, 0.4
    base = rate_matrices.similarity(EMBEDDINGS, k, temperature)
    close(base, base.T, 1e-14)
    e = EMBEDDINGS / EMBEDDINGS.norm(dim=1, keepdim=True)
    cosine = (e @ e.T).fill_diagonal_(-2)
    near = torch.zeros(12, 12, dtype=torch.bool).scatter(1, cosine.topk(k, 1).indices, True)
    weight = ((cosine - 1) / temperature).exp() * (near.double() + near.T.double())
    off = base - torch.diag(base.diagonal())
    assert torch.equal(off > 0, near | near.T)
    ratio = (off / weight)[weight > 0]
    close(ratio / ratio[0], torch.ones_like(ratio), 1e-12)
    sparse = rate_matrices.similarity(EMBEDDINGS, k, temperature, sparse=True)
    assert sparse.is_sparse and float(sparse.to_dense().sum(0).max()) == pytest.approx(1, rel=1e-14)
    close(sparse.to_dense() / sparse.to_dense()[0].max(), off / off[0].max(), 1e-13)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_is_dense():
    sparse = rate_matrices.similarity(EMBEDDINGS, 3, 0.4, sparse=True)
    for schedule in (schedules.Linear(), schedules.LinearBeta(1.0, 5.0)):
        ours, theirs = un.RateMatrix(sparse, (2,), schedule), un.RateMatrix(sparse.to_dense(), (2,), schedule)
        x = torch.randint(12, (20, 2))
        for s, t in ((0.0, 1e-4), (0.1, 0.7), (0.3, 1.0)):
            close(ours.transition(x, s, t).probs, theirs.transition(x, s, t).probs, 1e-13)
            close(ours.posterior(x, x.flip(0), s, t).probs, theirs.posterior(x, x.flip(0), s, t).probs, 1e-10)
        close(ours.local(x, 0.4).rates, theirs.local(x, 0.4).rates, 1e-15)
        close(ours.log_evidence(x, 0.2, 0.5).exp(), theirs.log_evidence(x, 0.2, 0.5).exp(), 1e-14)
    rows = un.RateMatrix(sparse.to_dense().to_sparse_csr(), (2,))
    close(rows.marginal(x, 0.5).probs, un.RateMatrix(sparse, (2,)).marginal(x, 0.5).probs, 1e-14)


def test_a_sparse_matrix_over_too_long_a_clock_is_refused():
    sparse = 50 * rate_matrices.similarity(EMBEDDINGS, 3, 0.4, sparse=True)
    with pytest.raises(
        ValueError, match=r"over a clock of 690.* use a schedule with a larger alpha_1, smaller rates, or a dense"
    ):
        un.RateMatrix(sparse)
    un.RateMatrix(sparse, schedule=schedules.LinearBeta())
    un.RateMatrix(sparse.to_dense())


# -- paths that must agree ------------------------------------------------------------------------------------------------

NOT_REVERSIBLE = torch.tensor([[0.0, 0.1, 0.9], [1.2, 0.0, 0.2], [0.1, 0.7, 0.0]], dtype=F64)


def test_many_coordinates_share_a_kernel():
    """With more coordinates than states the kernel of a row is formed once; with fewer it acts on each."""
    for base in (NOT_REVERSIBLE, rate_matrices.with_mask(NOT_REVERSIBLE)):
        process = un.RateMatrix(base, (3, 4))
        assert process._shares_kernel()
        size = process.state_space.size
        t = torch.tensor([0.3, 0.9, 1e-5, 0.999], dtype=F64)
        s = t * torch.tensor([0.1, 0.9, 0.0, 0.5], dtype=F64)
        x_t, x0 = torch.randint(size, (4, 3, 4)), torch.randint(3, (4, 3, 4))

        def answers(process=process, x_t=x_t, x0=x0, s=s, t=t):
            theta = torch.randn(4, 3, 4, process.space.size, generator=torch.Generator().manual_seed(0)).double()
            return [
                process.marginal(x0, t).probs,
                process.transition(x_t, s, t).probs,
                process.log_evidence(x_t, s, t).exp(),
                process.log_push(process.widen(theta.log_softmax(-1)), s, t).exp(),
            ]

        shared = answers()
        process._shares_kernel = lambda: False
        for a, b in zip(shared, answers(), strict=True):
            close(a, b, 1e-13)


def test_the_kernel_kept_is_that_of_the_times_asked_for():
    base, fresh = rate_matrices.nearest_neighbour(3), lambda: un.RateMatrix(rate_matrices.nearest_neighbour(3), (4,))
    process, x, t = un.RateMatrix(base, (4,)), torch.randint(3, (2, 4)), torch.tensor([0.3, 0.8], dtype=F64)
    assert process._shares_kernel() and process.kernel(None, t) is process.kernel(None, t)
    close(process.log_evidence(x, None, t), fresh().log_evidence(x, None, t), 1e-14)
    t[0] = 0.5
    close(process.marginal(x, t).probs, fresh().marginal(x, t).probs, 1e-14)
    close(process.log_evidence(x, t / 2, t), fresh().log_evidence(x, t / 2, t), 1e-14)
    learned = un.RateMatrix(base, (4,), schedules.Learned())
    before = learned.marginal(x, t).probs.detach()
    with torch.no_grad():
        for p in learned.parameters():
            p.add_(1.0)
    assert float((learned.marginal(x, t).probs.detach() - before).abs().max()) > 1e-3


@pytest.mark.parametrize("method", ["eigen", "uniformization"])
@pytest.mark.parametrize("dimension", [2, 9])  # fewer coordinates than states, and more
def test_one_time_for_all_rows_is_that_time_in_each(dimension, method):
    """As a number, as a view of one number, and in full; s and t each."""
    process = un.RateMatrix(rate_matrices.nearest_neighbour(5), (dimension,), method=method)
    noise = NoiseSource(0, 6)
    x = (5 * noise.uniform((dimension,))).long()
    theta, full = noise.at("theta").normal((dimension, 5)).log_softmax(-1), torch.full((6,), 0.7, dtype=F64)

    def answers(s, t):
        return [
            process.marginal(x, t).log_probs,
            process.transition(x, s, t).log_probs,
            process.log_evidence(x, s, t),
            process.log_push(theta, s, t),
            process.reverse_step(x, theta, s, t).log_probs,
            process.inverse(process.log_push(theta, s, t).exp(), s, t),
            *(process.marginal(x, t).draw(noise.at("x_t")), process.transition(x, s, t).draw(noise.at("x_t"))),
        ]

    exact = answers(full / 2, full)
    view = torch.tensor(0.7, dtype=F64).expand(6)
    for s, t in ((0.35, 0.7), ((view / 2)[:1].expand(6), view), (full / 2, view), (0.35, full)):
        for ours, theirs in zip(answers(s, t), exact, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def shared():
    """A process whose coordinates share a kernel, states of it, and times."""
    process = un.RateMatrix(rate_matrices.nearest_neighbour(3), (4,))
    return process, torch.arange(8).reshape(2, 4) % 3, torch.tensor([0.3, 0.8], dtype=F64)


class Flat(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(3))

    def forward(self, x, t):
        return self.logits.expand(*x.shape, 3)


def test_an_update_makes_the_kernel_of_its_times_once(monkeypatch):
    process, x, _ = shared()
    objective, made = un.Objective(un.Denoiser(Flat(), process)), []
    original = un.RateMatrix._kernel
    monkeypatch.setattr(un.RateMatrix, "_kernel", lambda *given: made.append(given[2]) or original(*given))
    for seed in range(3):
        made.clear()
        objective(x, un.NoiseSource(seed, 2)).loss.mean().backward()
        assert sum(bool((t < 1).all()) for t in made) == 1, made  # the others are those of the prior


def test_inference_mode_gives_the_same_numbers():
    process, x, t = shared()
    denoiser = un.Denoiser(Flat(), process)

    def answers():
        drawn = un.sample(denoiser, n=2, steps=3, seed=0)[0]
        return process.marginal(x, t).probs, un.bound(denoiser, x, seed=0).total.detach(), drawn

    with torch.inference_mode():
        told = process.marginal(x, t.clone()).probs.clone(), *answers()
    plain = process.marginal(x, t).probs, *answers()
    for a, b in zip(told, plain, strict=True):
        close(a.clone(), b, 0)
    evidence = process.log_evidence(x, None, t) * torch.ones(3, dtype=F64, requires_grad=True)
    evidence.sum().backward()  # what was made in inference mode could not be saved for it


def test_gradients_in_the_times_pass_however_often_they_are_asked_for():
    process, x, t = shared()
    step = 1e-6
    late, early = (process.log_evidence(x, None, t + by).sum((1, 2)) for by in (step, -step))
    expected = (late - early) / (2 * step)
    process.kernel(None, t)
    t.requires_grad_()
    with torch.no_grad():
        process.marginal(x, t)
    for _ in range(2):
        (gradient,) = torch.autograd.grad(process.log_evidence(x, None, t).sum(), t)
        torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=0)
    close(deepcopy(process).kernel(None, t), process.kernel(None, t), 0)
    forward = torch.func.jacfwd(lambda u: process.log_evidence(x, None, u).sum())(t.detach())
    torch.testing.assert_close(forward, expected, rtol=1e-7, atol=0)
    deepcopy(process)


def test_tangents_of_the_times_pass_after_a_kernel_without():
    process, x, t = shared()
    (expected,) = torch.autograd.grad(process.log_evidence(x, None, t.requires_grad_()).sum(), t)
    with forward_ad.dual_level():
        u = forward_ad.make_dual(t.detach(), torch.ones_like(t))
        with forward_ad._set_fwd_grad_enabled(False):
            process.kernel(None, u)
        tangent = forward_ad.unpack_dual(process.log_evidence(x, None, u).sum((1, 2))).tangent
    torch.testing.assert_close(tangent, expected)


def test_no_kernel_is_kept_inside_of_a_transform():
    process, x, t = shared()
    for transform in (torch.func.jacfwd, torch.func.jacrev, torch.func.vmap):
        transform(lambda u: process.kernel(None, u.reshape(-1)))(t)
        assert process._last is None


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_gradients_in_the_rates_pass_after_a_kernel_without():
    """exp(g R) of two states that change at rate r stays with probability (1 + exp(-2 g r))/2, so it has the slope
    -g exp(-2 g r) in r."""
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=F64, requires_grad=True)
    process, t = un.RateMatrix(rows, (4,)), torch.tensor([0.3], dtype=F64)
    with torch.no_grad():
        process.kernel(None, t)
    (gradient,) = torch.autograd.grad(process.kernel(None, t)[0, 0, 0], rows)
    g = clock(process, 0.0, 0.3)
    assert float(gradient.sum()) == pytest.approx(-g * 0.7**2, rel=1e-10)


def test_no_kernel_outlives_what_it_was_made_of():
    process, x, t = shared()
    process.marginal(x, t)
    process.schedule = schedules.Cosine()
    cosine = un.RateMatrix(rate_matrices.nearest_neighbour(3), (4,), schedules.Cosine())
    close(process.marginal(x, t).probs, cosine.marginal(x, t).probs, 0)
    own = process.kernel(None, t)
    own.mul_(2)
    close(process.kernel(None, t).sum(1), torch.ones(2, 3, dtype=F64), 1e-14)
    array = t.numpy()
    array[:] = 0.5
    close(process.marginal(x, t).probs, cosine.marginal(x, t.clone()).probs, 0)


def test_another_thread_may_ask_for_other_times_meanwhile():
    process, _, t = shared()
    right = process.kernel(None, t).clone()
    other = 1 - t

    class Interrupted(WeakTensorKeyDictionary):
        def get(self, key, default=None):
            process._last = None
            process.kernel(None, other)
            return super().get(key, default)

    last = Interrupted()
    last[t] = process._last[t]
    process._last = last
    close(process.kernel(None, t), right, 0)
    assert process._last[other].kernel is process.kernel(None, other)


def test_the_kernel_goes_with_its_times_and_not_into_files():
    process, x, t = shared()

    def size():
        torch.save(process, file := BytesIO())
        return file.tell()

    empty = size()
    process.marginal(x.repeat(100, 1), t.repeat(100))
    assert len(process._last) == 0
    t = t.repeat(100)
    process.marginal(x.repeat(100, 1), t)
    assert len(process._last) == 1 and abs(size() - empty) < 100


def prior_of(schedule):
    return un.RateMatrix(NOT_REVERSIBLE, (2,), schedule).prior(1).log_probs[0, 0]


def test_the_prior_is_that_of_the_schedule_as_it_is():
    process = un.RateMatrix(NOT_REVERSIBLE, (2,), schedules.LinearBeta(0.1, 6.0))
    before = process.prior(1).log_probs[0, 0]
    assert process.prior(1).log_probs.data_ptr() == before.data_ptr()  # computed once
    process.schedule = schedules.LinearBeta(0.1, 4.0)
    close(process.prior(1).log_probs[0, 0], prior_of(schedules.LinearBeta(0.1, 4.0)), 0)
    learned = schedules.Learned(low=-2.0, high=5.0)
    process = un.RateMatrix(NOT_REVERSIBLE, (2,), learned)
    first = process.prior(1).log_probs[0, 0]
    (slope,) = torch.autograd.grad(first[0], learned.below)
    step = 1e-5
    with torch.no_grad():
        learned.below.add_(step)
        moved = process.prior(1).log_probs[0, 0]
        close(moved, prior_of(learned), 0)
    assert abs(float(slope)) > 1e-3
    assert float(moved[0] - first[0].detach()) / step == pytest.approx(float(slope), rel=1e-3)


@pytest.mark.parametrize("name", ["nearest", "gaussian to a law", "banded", "similarity"])
def test_eigenvectors_are_uniformization(name):
    base = BUILDERS[name]()
    ours, theirs = (un.RateMatrix(base, (2,), method=method) for method in ("eigen", "uniformization"))
    x = torch.randint(len(base), (30, 2))
    for s, t in ((0.0, 1e-4), (0.1, 0.7), (0.3, 1.0)):
        close(ours.transition(x, s, t).probs, theirs.transition(x, s, t).probs)
        close(ours.log_evidence(x, s, t).exp(), theirs.log_evidence(x, s, t).exp())


def test_eigen_is_refused_by_name_without_detailed_balance():
    with pytest.raises(ValueError, match=r"not reversible: the flow \d -> \d is .* and back .*method='uniformization'"):
        un.RateMatrix(NOT_REVERSIBLE, method="eigen")


def test_each_coordinate_by_its_own_schedule():
    own = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
    both = un.RateMatrix(NOT_REVERSIBLE, (2,), own)
    x, v = torch.randint(3, (5, 2)), torch.rand(5, 2, 3, dtype=F64)
    for k, schedule in enumerate(own.schedules):
        alone = un.RateMatrix(NOT_REVERSIBLE, (), schedule)
        close(both.transition(x, 0.2, 0.7).probs[:, k], alone.transition(x[:, k], 0.2, 0.7).probs, 1e-15)
        close(both.local(x, 0.4).rates[:, k], alone.local(x[:, k], 0.4).rates, 1e-14)
        close(both.inverse(v, 0.2, 0.7)[:, k], alone.inverse(v[:, k], 0.2, 0.7), 1e-10)
        close(both.prior(2).probs[:, k], alone.prior(2).probs, 1e-14)


@pytest.mark.parametrize(
    "base", [NOT_REVERSIBLE, rate_matrices.similarity(EMBEDDINGS, 3, 0.4, sparse=True)], ids=["dense", "sparse"]
)
def test_float32_times(base):
    """Times of float32 give laws of float32, rounded once."""
    process = un.RateMatrix(base, (2,))
    x = torch.randint(process.space.size, (3, 2))
    s, t = torch.tensor([0.1, 0.0, 0.5]), torch.tensor([0.3, 1e-4, 1.0])
    for ours, exact in (
        (process.marginal(x, t), process.marginal(x, t.double())),
        (process.transition(x, s, t), process.transition(x, s.double(), t.double())),
        (process.posterior(x, x, s, t), process.posterior(x, x, s.double(), t.double())),
    ):
        assert ours.log_probs.dtype == torch.float32 and exact.log_probs.dtype == F64
        close(ours.probs.double(), exact.probs, 3e-7)
    assert process.local(x, t).rates.dtype == torch.float32


def test_a_matrix_in_float32():
    """Its own diagonal sums to 1e-7 of its rates only; the process takes the rates and sums them itself."""
    base = rate_matrices.discretised_gaussian(16, 2.0)
    x = torch.arange(16)
    close(un.RateMatrix(base.float()).marginal(x, 0.6).probs, un.RateMatrix(base).marginal(x, 0.6).probs, 1e-6)


def test_prior():
    """By default the law of x_1 from a uniform x_0; with alpha_1 > 0 not the stationary one."""
    weak = un.RateMatrix(NOT_REVERSIBLE, (2,), schedules.LinearBeta(0.1, 4.0))
    exact = torch.linalg.matrix_exp(clock(weak, 0.0, 1.0) * (NOT_REVERSIBLE - torch.diag(NOT_REVERSIBLE.sum(0)))).mean(1)
    close(weak.prior(4).probs, exact.expand(4, 2, 3))
    assert float((exact - stationary(NOT_REVERSIBLE)).abs().max()) > 1e-3
    given = un.RateMatrix(NOT_REVERSIBLE, (2,), prior=LAW[:3] / LAW[:3].sum())
    close(given.prior(1).probs[0, 0], LAW[:3] / LAW[:3].sum())
    assert float(given.prior_kl(torch.zeros(1, 2, dtype=torch.int64))) > 0.01


def test_a_state_that_nothing_leads_to_gives_the_data_away():
    """Pure death from the top: it is never entered, so who is there was there from the start."""
    x = torch.arange(4, dtype=F64)
    process = un.RateMatrix(rate_matrices.birth_death(0 * x, x), (2,))
    assert process.movable(torch.arange(4)).tolist() == [True, True, True, False]
    prediction = un.Posterior(torch.randn(1, 2, 4, dtype=F64), process, torch.tensor([[3, 0]]), 0.5)
    assert prediction.log_theta()[0, 0].exp().tolist() == [0, 0, 0, 1]
    assert prediction.step(0.2).probs[0, 0].tolist() == [0, 0, 0, 1]


def test_inverse_beyond_its_digits_is_refused():
    process = un.RateMatrix(rate_matrices.nearest_neighbour(9))
    q = torch.full((1, 9), 1 / 9, dtype=F64)
    with pytest.raises(
        ValueError, match=r"would magnify rounding by .*: nothing of x_s is left at t; ask for a shorter step"
    ):
        process.inverse(q, 0.0, 0.9)
    close(process.inverse(process.push(q.log(), 0.3, 0.35).exp(), 0.3, 0.35), q)
