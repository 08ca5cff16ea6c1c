"""What holds on an accelerator: skipped where there is none."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import unnoise as un
from unnoise.kernels import pushed, pushed_fused, raised, raised_fused
from unnoise.kernels.head import head_terms, plain_terms
from unnoise.kernels.head_chunks import ChunkPlan
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig
from unnoise.networks.precision import in_precision
from unnoise.noise import NoiseSource
from unnoise.samplers import (
    DDIM,
    DEIS,
    AdaptiveODE,
    Ancestral,
    CapturedRun,
    CategoricalDDIM,
    DetailedBalance,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    FirstHitting,
    FromGenerator,
    Frozen,
    Gillespie,
    Heun,
    Langevin,
    Leaves,
    OneByOne,
    PredictorCorrector,
    Remasking,
    Reveal,
    Routed,
    TauLeaping,
    ThetaTrapezoidal,
    Uniformization,
    UniPC,
    captured,
    remasking,
    sample,
)

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]
WIDTH, SIZE = 8, 11


class Numbers(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(WIDTH + 1, 32), torch.nn.SiLU(), torch.nn.Linear(32, WIDTH))

    def forward(self, x, t):
        return self.body(torch.cat([x, t.unsqueeze(1)], 1))


class Categories(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = torch.nn.Embedding(SIZE + 1, 16), torch.nn.Linear(16, 16), torch.nn.Linear(16, SIZE)

    def features(self, x, t):
        h = self.embed(x)
        return torch.tanh(self.mix(h + h.mean(1, keepdim=True)))

    def head(self, h):
        return self.out(h)

    def forward(self, x, t):
        return self.head(self.features(x, t))


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.numbers, self.categories = Numbers(), Categories()

    def forward(self, x, t):
        own = t if isinstance(t, dict) else {"x": t, "c": t}  # leaves that are held have a time of their own
        return {"x": self.numbers(x["x"], own["x"]), "c": self.categories(x["c"], own["c"])}


def denoiser_of(kind: str) -> un.Denoiser:
    torch.manual_seed(0)
    beta = un.schedules.LinearBeta()
    if kind == "masking":
        return un.Denoiser(Categories(), un.Masking(SIZE, (24,)))
    if kind == "uniform":
        return un.Denoiser(Categories(), un.Uniform(SIZE, (24,), beta))
    if kind == "ordinal":
        rates = un.rate_matrices.nearest_neighbour(SIZE)
        return un.Denoiser(Categories(), un.RateMatrix(rates, (24,), un.schedules.Cosine(), method="eigen"))
    if kind == "mixed":
        product = un.Product(x=un.Gaussian((WIDTH,), beta), c=un.Uniform(SIZE, (24,), beta))
        return un.Denoiser(Both(), product, {"x": un.Clean})
    if kind == "table":
        product = un.Product(x=un.Gaussian((WIDTH,)), c=un.Masking(SIZE, (24,), un.schedules.Polynomial(3.0)))
        return un.Denoiser(Both(), product)
    return un.Denoiser(Numbers(), un.Gaussian((WIDTH,), beta), predicts=getattr(un, kind))


GRID = {
    "ddim": ("Clean", DDIM()),
    "ddim velocity": ("Velocity", DDIM()),
    "ddim eta 1": ("Clean", DDIM(1.0)),
    "euler-maruyama": ("Clean", EulerMaruyama()),
    "2m": ("Velocity", DPMSolverPP(2)),
    "3m": ("Clean", DPMSolverPP(3)),
    "2m sde": ("Clean", DPMSolverPP(2, sde=True)),
    "unipc": ("Velocity", UniPC()),
    "deis": ("Clean", DEIS()),
    "heun": ("Clean", Heun()),
    "heun churn": ("Clean", Heun(churn=10.0)),
    "langevin": ("Clean", PredictorCorrector(DDIM(), Langevin())),
    "ancestral": ("Clean", Ancestral()),
    "generic": ("Clean", FromGenerator()),
    "reveal": ("masking", Reveal()),
    "ancestral masking": ("masking", Ancestral()),
    "ancestral uniform": ("uniform", Ancestral()),
    "ancestral ordinal": ("ordinal", Ancestral()),
    "remasking": ("masking", Remasking(remasking.Rate(2.0))),
    "routed": ("masking", Routed()),
    "euler": ("uniform", Euler()),
    "tau": ("uniform", TauLeaping()),
    "trapezoidal": ("uniform", ThetaTrapezoidal()),
    "categorical ddim": ("uniform", CategoricalDDIM()),
    "balance": ("uniform", PredictorCorrector(Euler(), DetailedBalance())),
    "leaves": ("mixed", Leaves(x=DDIM(), c=Euler())),
    "trapezoidal mixed": ("mixed", FromGenerator(theta=0.5)),
    "one by one, mixed": ("table", OneByOne(x=DPMSolverPP(2))),
    "one by one, mixed, ancestral": ("table", OneByOne(Ancestral())),
    "one by one, mixed, held": ("table", OneByOne(x=Frozen(0.3))),
}
EVENTS = {
    "adaptive": ("Velocity", AdaptiveODE()),
    "confidence": ("masking", Reveal(by="confidence")),
    "first hitting": ("masking", FirstHitting()),
    "thinning": ("masking", Gillespie()),
    "uniformization": ("uniform", Uniformization()),
}
CASES = {**GRID, **EVENTS}
OPTIONS = {"n": 20, "steps": 12, "end": 0.05, "seed": 3}


def leaves(x):
    return list(x.values()) if isinstance(x, dict) else [x]


def close(x, y, share: float = 0.02, tolerance: float = 2e-4) -> None:
    """Numbers agree up to rounding; a category may differ where a draw falls on the rounded edge of another."""
    for a, b in zip(leaves(x), leaves(y), strict=True):
        a, b = a.cpu(), b.cpu()
        if a.dtype.is_floating_point:
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        else:
            assert float((a != b).float().mean()) <= share


def test_numbers_are_the_same_on_both_devices():
    for shape in ((), (7,), (3, 500)):
        here, there = NoiseSource(5, 33).at("a", 2), NoiseSource(5, 33, "cuda").at("a", 2)
        assert torch.equal(here.uniform(shape), there.uniform(shape).cpu())
        torch.testing.assert_close(here.normal(shape), there.normal(shape).cpu(), rtol=1e-13, atol=1e-15)
        single = there.normal(shape, torch.float32).cpu()
        torch.testing.assert_close(here.normal(shape).float(), single, rtol=1e-6, atol=1e-7)
    negative = NoiseSource(2**61 + 12345, torch.tensor([5, -9]))
    assert torch.equal(negative.uniform((4,)), NoiseSource(2**61 + 12345, torch.tensor([5, -9]), "cuda").uniform((4,)).cpu())


def test_rows_may_lie_anyhow_in_memory():
    """Every second row, a column of a table, one row many times: numbers as of rows in a piece, and as on the host."""
    rows = torch.arange(40, device="cuda")
    for some in (rows[::2], rows.reshape(8, 5).T[0], rows.reshape(8, 5)[:, 3], rows[7].expand(6)):
        for held in (False, True):
            base = un.NoiseSource(5, some).at("a")
            source = un.NoiseSource.keyed(torch.tensor(base.key, device="cuda"), some) if held else base
            own = source.uniform((3,))
            assert torch.equal(own, un.NoiseSource(5, some.clone()).at("a").uniform((3,)))
            assert torch.equal(own.cpu(), un.NoiseSource(5, some.cpu()).at("a").uniform((3,)))


def test_one_kernel_writes_numbers_of_a_kind_whatever_their_key_and_shape():
    """A launcher that compiled anew for every class of values would do so some fourteen times in one run."""
    from unnoise.kernels import noise as kernels

    shapes = ((), (1,), (7,), (16,), (3, 500))
    tiles = len({kernels.tile(33, math.prod(shape))[0] for shape in shapes})
    kinds = {kernels._numbers: 3 * tiles, kernels._numbers_of_held_key: tiles, kernels._under: 1}
    before = {kernel: _variants(kernel) for kernel in kinds}
    for shape in shapes:
        for step in range(64):
            source = NoiseSource(step, 33, "cuda").at("step", step)
            source.uniform(shape), source.normal(shape), source.normal(shape, torch.float32)
            held = NoiseSource.keyed(torch.tensor(source.key, device="cuda"), source.rows[step % 2 :])
            held.at("again", step).uniform(shape)
    for kernel, most in kinds.items():
        assert _variants(kernel) - before[kernel] <= most


def _variants(kernel) -> int:
    return sum(len(cache[0]) for cache in kernel.device_caches.values())


LAST = {
    "euler": un.samplers.Euler(),
    "tau": un.samplers.TauLeaping(),
    "trapezoidal": un.samplers.ThetaTrapezoidal(),
    "rk2": un.samplers.ThetaRK2(),
    "generator": un.samplers.FromGenerator(),
    "ancestral": un.samplers.Ancestral(),
    "reveal": un.samplers.Reveal(),
    "first hitting": un.samplers.FirstHitting(),
    "entropy bounded": un.samplers.EntropyBounded(0.5),
    "ddim": un.samplers.CategoricalDDIM(),
    "remasking": un.samplers.Remasking(un.samplers.remasking.Cap(0.1)),
    "routed": un.samplers.Routed(),
    "corrected": un.samplers.PredictorCorrector(un.samplers.Euler(), un.samplers.DetailedBalance()),
}


@pytest.mark.parametrize("name", LAST)
def test_every_last_step_ends_on_data(name):
    """Samples hold no MASK, and the last draw is that of the host; what a run leaves masked it leaves so on request only."""
    options = {"n": 64, "steps": 6, "sampler": LAST[name], "seed": 3}
    denoiser = denoiser_of("masking")
    here, _ = sample(denoiser, **options)
    there, _ = sample(denoiser.cuda(), **options)
    size = denoiser.process.space.size
    assert int(there.max()) < size and int(here.max()) < size
    close(here, there)
    left = bool((sample(denoiser, **options, finish=False)[0] == size).any())
    assert left == (not LAST[name].complete)


@pytest.mark.parametrize("name", CASES)
def test_samples_are_the_same_on_both_devices(name):
    kind, sampler = CASES[name]
    here, _ = sample(denoiser_of(kind), sampler=sampler, **OPTIONS)
    there, info = sample(denoiser_of(kind).cuda(), sampler=sampler, **OPTIONS)
    if name == "leaves" or "mixed" in name:  # one category that differs moves the numbers beside it
        same = [(a == b.cpu()).flatten(1).all(1) for a, b in zip(leaves(here), leaves(there), strict=True)][1]
        assert float(same.float().mean()) >= 0.8
        here, there = ({k: v.cpu()[same] for k, v in x.items()} for x in (here, there))
    close(here, there)
    assert info.calls > 0


WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "aten::item")


def waits_of(run) -> tuple[int, list[str]]:
    """Calls of the network in a trace of the run, and the waits from the first of them to the last, by the host's clock (the
    device is behind it, and on a busy one what the host does after its last call would count)."""
    try:
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
            run()
            torch.cuda.set_sync_debug_mode("default")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    events = trace.events()
    calls = [e.time_range for e in events if e.name == "network" and e.device_type == torch.autograd.DeviceType.CPU]
    start, end = min(c.start for c in calls), max(c.end for c in calls)
    return len(calls), [e.name for e in events if start <= e.time_range.start <= end and e.name in WAITS]


@pytest.mark.parametrize("name", GRID)
def test_no_step_waits_for_the_device(name):
    """From the first call of the network to the last, in the trace of a second run, the host waits for nothing."""
    kind, sampler = GRID[name]
    denoiser = denoiser_of(kind).cuda()
    sample(denoiser, sampler=sampler, **OPTIONS)  # kernels are compiled
    forward = "features" if kind in ("masking", "uniform", "ordinal") else "forward"
    inner = getattr(denoiser.network, forward)

    def watched(*arguments, **more):
        torch.cuda.set_sync_debug_mode("error")
        with torch.profiler.record_function("network"):
            return inner(*arguments, **more)

    setattr(denoiser.network, forward, watched)
    calls, waits = waits_of(lambda: sample(denoiser, sampler=sampler, **OPTIONS))
    if waits:  # the profiler itself waits once in many traces; a sampler that does, does so again
        calls, waits = waits_of(lambda: sample(denoiser, sampler=sampler, **OPTIONS))
    assert calls >= 12 and not waits, waits


@pytest.mark.parametrize(
    "name", ["ddim", "ddim eta 1", "2m", "3m", "unipc", "heun", "adaptive", "reveal", "euler", "leaves", "one by one, mixed"]
)
def test_a_captured_network_gives_the_same_samples(name):
    kind, sampler = CASES[name]
    denoiser = denoiser_of(kind).cuda()
    plain, _ = sample(denoiser, sampler=sampler, **OPTIONS)
    recorded = captured(denoiser)
    for _ in range(2):
        again, info = sample(recorded, sampler=sampler, **OPTIONS)
        close(plain, again)
    other, _ = sample(recorded, sampler=sampler, **{**OPTIONS, "n": 7})
    close({k: v[:7] for k, v in plain.items()} if isinstance(plain, dict) else plain[:7], other)


@pytest.mark.parametrize("name", [n for n in GRID if n not in ("reveal", "remasking")])
def test_a_captured_run_draws_the_same_samples(name):
    kind, sampler = GRID[name]
    denoiser = denoiser_of(kind).cuda()
    draw = CapturedRun(denoiser, 20, 12, sampler, seed=3, end=0.05)
    for first in (0, 20, 0):
        again, info = draw(first)
        plain, told = sample(denoiser, first=first, sampler=sampler, **OPTIONS)
        close(plain, again)
        assert info.calls == told.calls


def tables_of(groups: int, states: int, size: int) -> pushed.PushedTables:
    push, evidence = (
        torch.rand(groups, states, n, dtype=torch.float64).pow(8) + torch.eye(states, n) for n in (size, states)
    )
    evidence = torch.where(evidence < 0.01, 0.0, evidence)
    return pushed.PushedTables(push / push.sum(1, keepdim=True), evidence / evidence.sum(1, keepdim=True))


def share_that_differs(here: torch.Tensor, there: torch.Tensor) -> float:
    return float((here != there.cpu()).double().mean())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("groups, rows, states, size", [(1, 50_000, 256, 256), (1, 9_999, 33, 32), (20, 333, 17, 17)])
def test_pushed_draws_are_those_of_the_host(groups, rows, states, size, dtype):
    """Up to numbers at rounded edges, 1 in 10^4 at most; of some rows float32 does not hold the weights."""
    tables, x, u = tables_of(groups, states, size), torch.randint(states, (groups, rows)), torch.rand(groups, rows).double()
    tables.push[:, 1:, 0] = 0.0
    tables.evidence[:, :, 0] = 0.0
    logits = (3 * torch.randn(groups, rows, size)).to(dtype)
    logits[:, ::97, 0] = 120.0
    there = pushed.PushedTables(tables.push.cuda(), tables.evidence.cuda())
    assert pushed_fused.available(logits.cuda(), there.evidence)
    found = pushed.draw(there, logits.cuda(), x.cuda(), u.cuda(), readable=False)
    assert share_that_differs(pushed.draw(tables, logits, x, u), found) <= 1e-4
    assert share_that_differs(pushed.draw(tables, logits.double(), x, u), found) <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("rows, size, states, laws", [(20_000, 27, 27, 1), (2_000, 3001, 3002, 3), (200, 50_257, 50_257, 1)])
def test_raised_draws_are_those_of_the_host(rows, size, states, laws, dtype):
    fresh = torch.rand(laws, states, dtype=torch.float64)
    alpha, u, which = torch.rand(rows).double(), torch.rand(rows).double(), torch.randint(laws, (rows,))
    x, fresh, gain = (
        torch.randint(states, (rows,)),
        fresh / fresh.sum(-1, keepdim=True),
        5 * states * torch.rand(rows).double(),
    )
    noised = (1 - alpha) * fresh[which, x]
    known = raised.Raised(x, alpha, 1 - alpha, gain, (1 - noised) / (1 + gain * noised), u, which, fresh)
    there = raised.Raised(**{name: value.cuda() for name, value in vars(known).items()})
    logits = (3 * torch.randn(rows, size)).to(dtype)
    assert raised_fused.available(logits.cuda())
    found = torch.where(there.may_move(), raised.draw(logits.cuda(), there), there.x)
    assert share_that_differs(raised.draw(logits, known), found) <= 1e-4
    assert share_that_differs(raised.draw(logits.double(), known), found) <= 1e-4


def test_a_uniform_step_needs_little_memory():
    """4096 tokens of 50,257 categories: their logits in float32 alone would be 0.8 GB, in float64 1.6."""
    process, head = un.Uniform(50_257, (1024,)), torch.nn.Linear(64, 50_257).cuda()
    x, features = torch.randint(50_257, (4, 1024), device="cuda"), torch.randn(4, 1024, 64, device="cuda")
    noise = NoiseSource(0, 4, "cuda")
    with torch.no_grad():
        un.Posterior.of_features(features, head, process, x, 0.5).step(0.49).draw(noise)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        un.Posterior.of_features(features, head, process, x, 0.5).step(0.49).draw(noise)
    assert torch.cuda.max_memory_allocated() - before < 0.7e9


@pytest.mark.parametrize("kind", ["ordinal", "uniform", "Velocity"])
def test_half_precision_is_recorded_like_any_network(kind):
    denoiser = in_precision(denoiser_of(kind).cuda(), "bf16")
    plain, _ = sample(denoiser, **OPTIONS)
    for _ in range(2):
        again, _ = sample(captured(denoiser), **OPTIONS)
        close(plain, again)


def numbers_of(name: str) -> un.Denoiser:
    """Ways in which a step on numbers differs: noise that is correlated, schedules per coordinate, variances, precision."""
    torch.manual_seed(0)
    per_coordinate = un.schedules.PerCoordinate([un.schedules.LinearBeta(0.1, 10.0 + k) for k in range(WIDTH)])
    process = {
        "correlated": lambda: un.Gaussian((WIDTH,), covariance=torch.eye(WIDTH) + 0.3),
        "per coordinate": lambda: un.Gaussian((WIDTH,), per_coordinate),
    }.get(name, lambda: un.Gaussian((WIDTH,)))()
    variance = {"forward": un.variances.ForwardVariance(), "learned": un.variances.LearnedVariance()}.get(name)
    network = Numbers()
    if name == "learned":
        network.register_forward_hook(lambda part, given, out: (out, out.sigmoid()))
    denoiser = un.Denoiser(network, process, un.Noise if name == "noise" else un.Velocity, variance=variance)
    return (denoiser.double() if name == "double" else denoiser).cuda()


NUMBERS = ["velocity", "noise", "correlated", "per coordinate", "forward", "learned", "double"]
FUSED = [DDIM(), DDIM(1.0), DPMSolverPP(2), DPMSolverPP(3), DPMSolverPP(2, sde=True), UniPC(), UniPC(4), DEIS(), Heun()]
FUSED += [Ancestral(), Ancestral(2), Ancestral(2, fast=False)]


@pytest.mark.parametrize("sampler", FUSED, ids=lambda s: f"{type(s).__name__} {s.order} {s.draws}")
@pytest.mark.parametrize("name", NUMBERS)
def test_steps_in_one_kernel_are_the_plain_ones(name, sampler, monkeypatch):
    """By the kernel and without it, and recorded; the last with tables that lie on the device."""
    denoiser, options = numbers_of(name), {"start": 0.98, "end": 0.05}
    fused, _ = sample(denoiser, 20, 12, sampler, seed=3, **options)
    recorded, _ = CapturedRun(denoiser, 20, 12, sampler, seed=3, **options)(0)
    monkeypatch.setattr(un.samplers.combinations.fused, "available", lambda device: False)
    plain, _ = sample(denoiser, 20, 12, sampler, seed=3, **options)
    scale, tolerance = float(plain.abs().max()), 1e-11 if name == "double" else 2e-5
    torch.testing.assert_close(fused / scale, plain / scale, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(recorded / scale, fused / scale, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", NUMBERS)
def test_ancestral_steps_by_the_table_are_those_of_the_kernel(name):
    denoiser, options = numbers_of(name), {"n": 20, "steps": 12, "seed": 3, "start": 0.98, "end": 0.05}
    for rounds in (1, 2):
        fast, plain = (sample(denoiser, sampler=Ancestral(rounds, fast=fast), **options)[0] for fast in (True, False))
        scale, tolerance = float(plain.abs().max()), 1e-11 if name == "double" else 2e-5
        torch.testing.assert_close(fast / scale, plain / scale, rtol=tolerance, atol=tolerance)


def launched(run) -> int:
    """The kernels that a run starts."""
    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as trace:
        run()
        torch.cuda.synchronize()
    return sum(event.device_type.name == "CUDA" for event in trace.events())


@pytest.mark.parametrize(
    "sampler", [DDIM(), DDIM(1.0), DPMSolverPP(2), UniPC(), Ancestral()], ids=lambda s: type(s).__name__
)
@pytest.mark.parametrize("kind", [un.Clean, un.Noise])
def test_a_step_is_one_kernel_beside_the_network(sampler, kind):
    denoiser = un.Denoiser(Numbers().cuda(), un.Gaussian((WIDTH,), un.schedules.LinearBeta()), kind)
    x, t = torch.randn(20, WIDTH, device="cuda"), torch.rand(20, device="cuda")
    with torch.no_grad():
        network = launched(lambda: denoiser.network(x, t))
    options = {"seed": 0, "start": 0.98, "end": 0.05}
    many, few = (launched(lambda n=n: sample(denoiser, 20, n, sampler, **options)) for n in (40, 20))
    assert (many - few) / 20 == network + 1


def test_likelihoods_are_the_same_on_both_devices():
    numbers, x = denoiser_of("Velocity"), NoiseSource(4, 9).normal((WIDTH,)).float()
    for method in (un.ProbabilityFlow(rtol=1e-4, atol=1e-4), un.ProbabilityFlow("hutchinson", 3), un.PathWeighted(4, 8)):
        here, _ = un.likelihood(numbers.cpu(), x, method, seed=0)
        there, _ = un.likelihood(numbers.cuda(), x.cuda(), method, seed=0)
        torch.testing.assert_close(here, there.cpu(), rtol=1e-2, atol=1e-2)
    small = un.Denoiser(Categories(), un.Masking(SIZE, (2,)))
    states = small.process.space.states()
    here, _ = un.likelihood(small, states, un.Enumeration(steps=5), seed=0)
    there, _ = un.likelihood(small.cuda(), states.cuda(), un.Enumeration(steps=5), seed=0)
    torch.testing.assert_close(here, there.cpu(), rtol=1e-4, atol=1e-4)


class Zipf(torch.nn.Module):
    """The same law of 50,257 tokens everywhere."""

    def __init__(self):
        super().__init__()
        self.logits = torch.nn.Parameter(-torch.arange(1, 50_258, dtype=torch.float64).log().float())

    def features(self, x, t):
        return torch.zeros(*x.shape, 1, device=x.device)

    def head(self, h):
        return self.logits.expand(*h.shape[:-1], -1)


def plug_in_entropy(n: int, probs: torch.Tensor) -> float:
    """The expected entropy of the shares of n tokens: each count is nearly Poisson."""
    total, mean = 0.0, n * probs
    for part in mean.split(2000):
        reach = 8 * float(part.max()) ** 0.5 + 40
        k = (part.unsqueeze(1) - reach).clamp_min(0).floor() + torch.arange(int(2 * reach) + 1, device=probs.device)
        chance = (k * part.unsqueeze(1).log() - part.unsqueeze(1) - torch.lgamma(k + 1)).exp()
        total += float((chance * torch.special.entr(k / n)).sum())
    return total


@pytest.mark.parametrize("steps", [128, 1024])
def test_zipf(steps):
    """409,600 tokens in float32: reveal rate within 2 %, entropy within 0.02 nats of its expectation (4 standard errors),
    tails within 4 standard errors."""
    denoiser = un.Denoiser(Zipf().cuda(), un.Masking(50_257, (1024,)))
    left: list[torch.Tensor] = []
    x, _ = sample(
        denoiser, 400, steps, Reveal(), callback=lambda i, t, state: left.append((state.x == 50_257).double().mean()), seed=0
    )
    exact = torch.linspace(1, 0, steps + 1, dtype=torch.float64)[1:]
    assert float((torch.stack(left).cpu() - exact).abs().max()) < 0.02
    n, probs = x.numel(), denoiser.network.logits.detach().double().softmax(-1)
    counts = x.flatten().bincount(minlength=50_257).double()
    assert abs(float(torch.special.entr(counts / n).sum()) - plug_in_entropy(n, probs)) < 0.02
    for share in (0.5, 0.9, 0.99):
        tail = slice(int(share * 50_257), None)
        mass = float(probs[tail].sum())
        assert abs(float(counts[tail].sum()) - n * mass) < 4 * (n * mass * (1 - mass)) ** 0.5


@pytest.mark.parametrize("labels", [(), ("step", 3), (2, "leaf", 1)])
def test_a_key_on_the_device_gives_the_same_noise(labels):
    rows = torch.tensor([5, 0, 2**40], device="cuda")
    base = un.NoiseSource(11, rows).at("epoch", 4)
    one, other = base.at(*labels), un.NoiseSource.keyed(torch.tensor(base.key, device="cuda"), rows).at(*labels)
    assert torch.equal(one.uniform((7,)), other.uniform((7,))) and torch.equal(one.normal((7,)), other.normal((7,)))
    assert torch.equal(one.shared_uniform(), other.shared_uniform())


TRAINED = {
    "masking": lambda: un.Masking(5, (16,)),
    "uniform": lambda: un.Uniform(5, (16,)),
    "masking of many": lambda: un.Masking(2003, (16,)),
    "uniform of many": lambda: un.Uniform(2003, (16,)),
    "numbers": lambda: un.Gaussian((3,)),
    "images": lambda: un.Gaussian((8, 8)),
    "masked images": lambda: un.Masking(4, (8, 8)),
    "ordinal images": lambda: un.RateMatrix(
        un.rate_matrices.nearest_neighbour(4), (8, 8), un.schedules.Cosine(), method="eigen"
    ),
    "table": lambda: un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3], (2,))),
}


def weights_of(module):
    return torch.cat([p.detach().cpu().reshape(-1) for p in module.parameters()])  # channels last have no view of one axis


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("precision", ["no", "bf16"])
def test_recorded_updates_are_the_plain_ones(name, optimiser, precision):
    from unnoise.networks.presets import default_network
    from unnoise.training.config import TrainConfig
    from unnoise.training.learner import Learner, accelerator_for

    process = TRAINED[name]()
    data = process.prior(64, torch.float32).draw(un.NoiseSource(0, 64))
    data = un.tree.map_leaves(lambda leaf: (leaf if leaf.dtype.is_floating_point else leaf % 2).cuda(), data)
    found = []
    for capture in (False, True):
        torch.manual_seed(0)
        denoiser = un.Denoiser(default_network(process, "tiny"), process, un.predictions.default_kind(process))
        first = weights_of(denoiser)
        weighting = "cross_entropy" if name == "ordinal images" else "bound"
        how = {"optimiser": optimiser, "precision": precision, "weighting": weighting}
        config = TrainConfig(steps=9, capture=capture, device="auto", **how)
        learner = Learner(denoiser, config, accelerator_for(config))
        for step in range(12):
            rows = torch.arange(32, device="cuda") + step
            part = un.tree.map_leaves(lambda leaf, rows=rows: leaf[rows], data)
            learner.update([(part, un.NoiseSource(7, rows).at("batch", step))], 1, step + 1, 1e-3)
        if capture:
            assert learner.captured is not None and learner.captured.recorded and not learner.captured.refused
        sums, good, bad = learner.read()
        assert good == 12 and not bad
        found.append((sums["loss"], sums["grad_norm"], weights_of(denoiser)))
    (loss, norm, plain), (other_loss, other_norm, recorded) = found
    tolerance = 1e-4 if precision == "no" else 2e-2
    assert other_loss == pytest.approx(loss, rel=tolerance) and other_norm == pytest.approx(norm, rel=5 * tolerance)
    # sums in an order that is not fixed differ by rounding, which the optimisers' division enlarges where gradients are
    # small: seen on an H200, 0.000 to 0.0024 of the way (AdamW), 0.000 to 0.0235 (Muon)
    assert (plain - recorded).norm() < {"adamw": 0.01, "muon": 0.05}[optimiser] * (plain - first).norm()


# -- linear heads of many categories ----------------------------------------------------------------------------------

# of a norm: the rounding of logits, of their gradients and of what is multiplied
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2**-8, torch.bfloat16: 2**-6}


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("share", [None, 0.0, 0.3, 0.5, 0.9, 1.0])
@pytest.mark.parametrize(("indices", "scaled"), [(1, False), (2, True)])
@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_head_in_chunks(dtype, share, indices, scaled, bias):
    """Against all logits at once in float64, from the same rounded features and weights."""
    rows, size, depth = 1500, 5003, 96
    make = torch.Generator("cuda").manual_seed(0)
    options = {"generator": make, "device": "cuda"}
    values = [torch.randn(rows, depth, **options), 0.2 * torch.randn(size, depth, **options)]
    values += [torch.randn(size, **options)] if bias else []
    given = [value.to(dtype).requires_grad_() for value in values]
    exact = [value.detach().double().requires_grad_() for value in given]
    index = torch.randint(size, (rows, indices), **options)
    scale = 10 ** (8 * torch.rand(rows, dtype=torch.float64, **options) - 4) if scaled else None
    chosen = None if share is None else torch.rand(rows, **options) < share
    by = torch.randn(rows, indices, **options), torch.randn(rows, **options)

    def graded(terms, inputs):
        loss = (terms[0] * by[0]).sum() + (terms[1] * by[1]).sum()
        return [*terms, *torch.autograd.grad(loss, inputs)]

    b, exact_b = (given[2], exact[2]) if bias else (None, None)
    found = graded(head_terms(*given[:2], b, index, scale, chosen, ChunkPlan(held=300 * 5056)), given)
    wanted = graded(plain_terms(*exact[:2], exact_b, index, scale, chosen), exact)
    for ours, theirs in zip(found, wanted, strict=True):
        gap, size = (ours.double() - theirs).detach().norm(), theirs.detach().norm()
        assert float(gap) <= ROUNDING[dtype] * float(size)
    if chosen is not None:
        assert not found[0][~chosen].any() and not found[2][~chosen].any()


def test_small_scales_to_the_last_digits():
    """sum_y log(1 + c theta_y) = c (1 - O(c)): as log(1 + x) by itself it would be lost."""
    h, weight = torch.randn(64, 32, device="cuda"), 0.1 * torch.randn(3001, 32, device="cuda")
    c = torch.logspace(-9, -5, 64, device="cuda")
    _, total = head_terms(h, weight, None, torch.zeros(64, 1, dtype=torch.int64, device="cuda"), c)
    torch.testing.assert_close(total, c, rtol=1e-5, atol=0)


def test_a_row_that_is_no_category_is_not_a_number():
    h, weight = torch.randn(2, 32, device="cuda"), torch.randn(3001, 32, device="cuda")
    picked, _ = head_terms(h, weight, None, torch.tensor([[3001], [3000]], device="cuda"))
    assert picked.isnan().flatten().tolist() == [True, False]


def many_tokens(make, layers=1, size=5003):
    torch.manual_seed(0)
    network = SequenceTransformer(SequenceTransformerConfig(size=size, width=64, layers=layers, heads=2))
    torch.nn.init.normal_(network.out.weight, std=0.1)
    return un.Objective(un.Denoiser(network, make(size, (64,)))), torch.randint(size, (8, 64))


@pytest.mark.parametrize("make", [un.Masking, un.Uniform])
def test_losses_of_many_tokens_are_those_of_the_host(make):
    objective, x0 = many_tokens(make)
    parameters = list(objective.parameters())
    here = objective(x0, NoiseSource(3, 8)).loss
    wanted = torch.autograd.grad(here.mean(), parameters)
    objective.cuda()
    there = objective(x0.cuda(), NoiseSource(3, 8, "cuda")).loss
    found = torch.autograd.grad(there.mean(), list(objective.parameters()))
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-4)
    for ours, theirs in zip(found, wanted, strict=True):
        assert float((ours.cpu() - theirs).norm()) <= 1e-3 * float(theirs.norm()) + 1e-6


@pytest.mark.parametrize("make", [un.Masking, un.Uniform])
@pytest.mark.parametrize("half", [False, True])
def test_a_step_of_many_tokens_waits_for_nothing(make, half):
    objective, x0 = many_tokens(make)
    objective, x0 = objective.cuda(), x0.cuda()

    def step(noise):
        with torch.autocast("cuda", torch.bfloat16, enabled=half):
            loss = objective(x0, noise).loss.mean()
        loss.backward()

    noises = [NoiseSource(i, 8, "cuda") for i in range(4)]
    for noise in noises[:3]:  # kernels are compiled
        step(noise)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        step(noises[3])
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(
    "row", ["masking", "numbers", "multistep", "masked-training", "uniform-training", "bound", "digits"]
)
def test_rows_of_the_speed_table(row):
    """Each is measured with its memory; call by call and recorded where both are."""
    from unnoise.bench import BenchSetting, chosen

    figures = chosen([row])[0].figures(BenchSetting.of("cuda", "tiny"))
    assert [figure.error for figure in figures] == [None] * len(figures)
    assert len(figures) == {"masking": 2, "numbers": 2, "multistep": 3, "bound": 2}.get(row, 1)
    assert all(figure.ours.memory is not None and figure.ratio > 0 for figure in figures)


def test_memory_of_a_call_is_what_it_asks_for():
    from unnoise.bench import taken

    held = []

    def call():
        held[:] = [torch.empty(2**20, device="cuda")]  # 4 MiB that stay
        torch.empty(2**21, device="cuda")  # and 8 MiB that do not

    found = taken({"call": call}, torch.device("cuda"), rounds=1)["call"]
    assert 12 * 2**20 <= found.memory <= 16 * 2**20  # rounded up


def test_a_recorded_call_is_played_again():
    from unnoise.bench import recorded

    x = torch.zeros(4, device="cuda")
    replay = recorded(lambda: x.add_(1), torch.device("cuda"))
    before = x.clone()
    replay()
    assert torch.equal(x, before + 1)


MANY = {
    "leaves": ("mixed", Leaves(x=DDIM(), c=Euler())),
    "2m": ("Velocity", DPMSolverPP(2)),
    "ancestral": ("Clean", Ancestral()),
    "ancestral masking": ("masking", Ancestral()),
    "tau": ("uniform", TauLeaping()),
}


def plainly(monkeypatch, *arguments, **options):
    from unnoise.samplers import many

    with monkeypatch.context() as patch:
        patch.setattr(many, "RECORDED_ON", ())
        return many.sample_many(*arguments, **options)


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize(
    ("n", "batch", "way"), [(75, 20, "recorded run"), (20, 20, "recorded network"), (35, 20, "recorded network")]
)
def test_recorded_draws_are_the_plain_ones(name, n, batch, way, monkeypatch):
    """All batches of a run, the last one filled up and cut: replays of the run, or of the network alone."""
    from unnoise.samplers.many import sample_many

    kind, sampler = MANY[name]
    denoiser = denoiser_of(kind).cuda()
    options = {"sampler": sampler, "steps": 24, "seed": 3}
    plain, told = plainly(monkeypatch, denoiser, n, batch, **options)
    drawn, info = sample_many(denoiser, n, batch, **options)
    assert info.way == way and told.way == "plain" and info.batch == batch
    close(plain, drawn)


@pytest.mark.parametrize("n", [75, 20])
def test_recorded_draws_start_from_given_states(n, monkeypatch):
    """Numbers that are held, letters that start from other states than the prior's."""
    from unnoise.samplers.many import sample_many

    denoiser = denoiser_of("mixed").cuda()

    def begin(first, count):
        rows = torch.arange(first, first + count, device="cuda")
        prior = denoiser.process.prior(count, torch.float32, torch.device("cuda"))
        return {"x": prior.draw(NoiseSource(9, rows)), "rows": rows * 7}

    options = {"sampler": Leaves(x=un.samplers.Frozen(), c=Euler()), "steps": 24, "seed": 3}
    plain, _ = plainly(monkeypatch, denoiser, n, 20, begin, **options)
    drawn, info = sample_many(denoiser, n, 20, begin, **options)
    assert info.way.startswith("recorded")
    close(plain, drawn)
    assert torch.equal(drawn["x"], torch.cat([begin(i, 20)["x"]["x"].cpu() for i in range(0, n, 20)])[:n])


class Asks(Numbers):
    """A network that waits for the device, as no recording may."""

    def forward(self, x, t):
        return super().forward(x, t) * (2.0 if float(x.abs().sum()) < 0 else 1.0)


@pytest.mark.parametrize("n", [75, 20])
def test_what_cannot_be_recorded_is_drawn_plainly(n, monkeypatch):
    from unnoise.samplers.many import sample_many

    torch.manual_seed(0)
    denoiser = un.Denoiser(Asks(), un.Gaussian((WIDTH,)), un.Velocity).cuda()
    options = {"sampler": DDIM(), "steps": 24, "seed": 3}
    plain, _ = plainly(monkeypatch, denoiser, n, 20, **options)
    stream = torch.cuda.current_stream()
    drawn, info = sample_many(denoiser, n, 20, **options)
    assert info.way.startswith("plain: ") and torch.cuda.current_stream() == stream
    close(plain, drawn)
    events, info = sample_many(denoiser_of("masking").cuda(), 75, 20, sampler=FirstHitting(), steps=1, seed=3)
    assert info.way == "plain: FirstHitting asks the device what to do next"


MEGABYTES = 4


class Wide(Numbers):
    """A network that holds four megabytes for each row."""

    def forward(self, x, t):
        wide = torch.zeros(len(x), MEGABYTES * 2**18, device=x.device)
        return super().forward(x, t) + wide[:, :1]


@pytest.fixture
def wide():
    torch.manual_seed(0)
    return un.Denoiser(Wide(), un.Gaussian((WIDTH,)), un.Velocity).cuda().requires_grad_(False)


def test_batches_are_sized_to_the_device(wide):
    from unnoise.batch_sizes import GIB, CudaMemory
    from unnoise.samplers.many import Batches, from_prior

    batches = Batches(wide, 10**6, None, from_prior, {"sampler": DDIM(), "steps": 8, "seed": 0})
    room = min(CudaMemory.busy, 0.5 * CudaMemory(wide.device).free())
    assert 0.8 < batches.size * MEGABYTES * 2**20 / room < 1.1
    assert batches.way == "plain: a batch keeps the device busy"
    small = Batches(denoiser_of("Velocity").cuda(), 10**6, None, from_prior, {"sampler": DDIM(), "steps": 8, "seed": 0})
    assert small.size <= 2**16 and CudaMemory.busy == 4 * GIB


def test_memory_that_runs_out_halves_the_batch(wide):
    """In a process that may use no more than what is there and 640 MiB: 160 rows do not fit, 80 do."""
    from unnoise.samplers.many import sample_many

    options = {"sampler": DDIM(1.0), "steps": 4, "seed": 3}
    whole, _ = sample_many(wide, 160, 20, **options)
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 500 * 2**20) / total)
    try:
        with pytest.warns(UserWarning, match="memory ran out with 160 rows at a time: going on with [48]0") as told:
            parts, info = sample_many(wide, 160, 160, **options)
        assert len(told) == 1 and info.batch in (40, 80)
        close(whole, parts)
        with pytest.warns(UserWarning, match="memory ran out with 160 rows at a time"):
            again, _ = sample(wide, 160, 4, DDIM(1.0), seed=3)
        close(whole, again)
        with torch.no_grad(), pytest.warns(UserWarning, match="memory ran out with 160 rows at a time"):
            un.bound(wide, whole.cuda(), seed=0)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@pytest.mark.parametrize("name", ["table", "text", "array"])
@pytest.mark.parametrize("precision", ["no", "tf32", "bf16"])
def test_saved_runs_are_drawn_from_in_any_precision(name, precision):
    from unnoise.training import Run
    from unnoise.training.drawing import draw

    run = Run.open(Path(__file__).parent / "training" / "saved_runs" / name)
    here, _ = draw(run.denoiser(which="best"), run.format(), 64, steps=8, seed=0, device="cpu")
    there, info = draw(run.for_drawing(run.denoiser(which="best"), precision), run.format(), 64, steps=8, seed=0)
    close(here, there, *{"no": (0.02, 1e-3), "tf32": (0.05, 0.05), "bf16": (0.2, 0.5)}[precision])
    assert info.way is not None and all(leaf.dtype in (torch.float32, torch.int64) for leaf in leaves(there))


COMPILED = """
import torch
import unnoise as un
from unnoise.networks.presets import default_network
from unnoise.samplers import many
from unnoise.training import Run
from unnoise.training.drawing import draw

form = Run.open(FOLDER).format()  # nothing is given of it
torch.manual_seed(0)
process = un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3], (2,)))
denoiser = un.Denoiser(default_network(process, "tiny"), process, un.predictions.default_kind(process))
denoiser.eval().requires_grad_(False)
plain, _ = draw(denoiser, form, 100, steps=24, seed=0, batch=40)
many.COMPILED_FROM = 0
found, info = draw(denoiser, form, 100, steps=24, seed=0, batch=40)
torch.testing.assert_close(plain["a"], found["a"], rtol=1e-3, atol=1e-3)
assert float((plain["c"] != found["c"]).float().mean()) <= 0.02
assert not any(part._compiled_call_impl is not None for part in denoiser.modules())
"""


def test_a_compiled_network_draws_nearly_the_same():
    """As for draws of minutes: its kernels round otherwise.  In a process whose shapes are not checked: no compiler can
    follow that."""
    folder = Path(__file__).parent / "training" / "saved_runs" / "array"
    done = subprocess.run(
        [sys.executable, "-c", COMPILED.replace("FOLDER", repr(str(folder)))], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
