"""Every case of drawn laws by name, and how many there are.

Steps are chosen so that the law of each method, as computed, is nearer to its target than the draws can see (`gap` < 1): of
order-1 methods on coordinates that depend on each other only mildly, since that is what their error comes from.
"""

import torch
from sampled_cases import DRAWS, Case, Counted, Mixed, Number, Table

import unnoise as un
from unnoise.samplers import (
    DDIM,
    DEIS,
    AdaptiveODE,
    Ancestral,
    CategoricalDDIM,
    DetailedBalance,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    FirstHitting,
    FromGenerator,
    Gillespie,
    Heun,
    Langevin,
    Leaves,
    PredictorCorrector,
    Psi,
    Remasking,
    Reveal,
    Routed,
    TauLeaping,
    ThetaRK2,
    ThetaTrapezoidal,
    Uniformization,
    UniPC,
    grids,
    remasking,
)

FALSE_ALARMS, TESTS = 2e-5, 78  # of the whole suite; the cases below and one comparison of three methods
LEVEL = FALSE_ALARMS / TESTS

STEADY = un.schedules.LinearBeta(2.0, 2.0)
COSINE, VP, VE, LINEAR = un.schedules.Cosine(), un.schedules.LinearBeta(), un.schedules.VE(0.01, 10.0), un.schedules.Linear()


def law_of_two() -> torch.Tensor:
    """On 3^2 states: a third of a law with strong dependence, two thirds its independent coordinates."""
    strong = torch.tensor([[0.19, 0.05, 0.12], [0.21, 0.07, 0.04], [0.03, 0.16, 0.13]], dtype=torch.float64)
    return (strong / 3 + 2 / 3 * torch.outer(strong.sum(1), strong.sum(0))).flatten()


LAW = law_of_two()
SKEW, BETAS = torch.tensor([0.5, 0.3, 0.2]), torch.linspace(0.05, 0.6, 8).double()
PAIRS = {
    "masking": un.Masking(3, (2,)),
    "uniform": un.Uniform(3, (2,)),
    "steady": un.Uniform(3, (2,), STEADY),
    "interpolation": un.Interpolation(3, (2,), SKEW),
    "rates": un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,), STEADY),
    "birth-death": un.BirthDeath(2, (2,), STEADY, occupancy=0.3),
    "mixture": un.Mixture.uniform_and_mask(3, (2,)),
    "matrices": un.MatrixChain(un.d3pm.uniform(3, torch.linspace(0.01, 0.1, 90).double()), (2,)),
}
ONES = {
    "masking": un.Masking(3, (1,), COSINE),
    "uniform": un.Uniform(3, (1,)),
    "interpolation": un.Interpolation(3, (1,), SKEW),
    "rates": un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (1,), STEADY),
    "birth-death": un.BirthDeath(2, (1,), STEADY, occupancy=0.3),
    "mixture": un.Mixture.uniform_and_mask(3, (1,)),
    "matrices": un.MatrixChain(un.d3pm.gaussian(3, BETAS), (1,)),
    "absorbing": un.MatrixChain(un.d3pm.absorbing(3, [*BETAS[:-1].tolist(), 1.0]), (1,), size=3),
    "chain": un.Chain(un.Uniform(3, (1,)), torch.linspace(0, 1, 9).double()),
}
RARE = torch.cat([torch.tensor([1 - 255 * 6e-6]), torch.full((255,), 6e-6)]).double()


def table(process, law: torch.Tensor, kind=None):
    """The oracle of a law; that of a chain is its process's, at the chain's times."""
    return un.oracles.table(process.base, law).predicting(kind, process)


def pair(process: str, sampler, steps: int = 1, **options) -> Table:
    """Two coordinates; by default from the prior, or from noised data where `start` is given."""
    options.setdefault("prior", "start" not in options and process != "matrices")
    return Table(table(PAIRS[process], LAW), sampler, steps, **options)


def one(process: str, sampler, steps: int, **options) -> Table:
    """One coordinate, where the kernel is exact; the posterior of x_0 given x_t, which depends on t."""
    oracle = table(ONES[process], torch.tensor([0.6, 0.1, 0.3]), un.RawPosterior)
    return Table(oracle, sampler, steps, exact=True, **options)


MEAN, COVARIANCE = torch.tensor([0.7, -0.3]).double(), torch.tensor([[0.9, 0.3], [0.3, 0.7]]).double()


def normal(schedule, sampler, steps: int | None, **options) -> Number:
    """From the prior where alpha_1 = 0 and the run starts there."""
    options.setdefault("prior", schedule in (COSINE, LINEAR) and "start" not in options)
    return Number(un.oracles.normal(un.Gaussian((2,), schedule), MEAN, COVARIANCE), sampler, steps, **options)


def bumps(schedule, sampler, steps: int, **options) -> Number:
    means, variances = torch.tensor([[1.0], [-1.0]]).double(), torch.tensor([[[0.3]], [[0.5]]]).double()
    oracle = un.oracles.mixture(un.Gaussian((1,), schedule), torch.tensor([0.4, 0.6]), means, variances)
    return Number(oracle, sampler, steps, prior=False, **options)


def counted(immigration: float, sampler, steps: int, **options) -> Counted:
    process = un.Thinning((1,), un.schedules.LinearBeta(4.0, 4.0) if "start" in options else LINEAR, immigration)
    oracle = un.oracles.poisson_mixture(process, torch.tensor([0.4, 0.6]), torch.tensor([[1.5], [4.0]]).double())
    return Counted(oracle, sampler, steps, prior="start" not in options, **options)


def mixed(sampler, steps: int) -> Mixed:
    process = un.Product(x=un.Gaussian((1,), STEADY), c=un.Uniform(2, (1,), STEADY))
    means, variances = torch.tensor([[-0.2], [0.4]]).double(), torch.tensor([[[0.8]], [[1.0]]]).double()
    oracle = un.oracles.conditional_gaussian(process, torch.tensor([0.45, 0.55]), means, variances)
    return Mixed(oracle, sampler, steps, start=0.7, end=0.35, prior=False)


LATE, OWN = {"start": 0.9}, {"prior": False}
CASES: dict[str, Case] = {
    # --- categories, exact at any number of steps
    "masking, first hitting": pair("masking", FirstHitting()),
    "masking, thinning": pair("masking", Gillespie()),
    "masking, uniformization": pair("masking", Uniformization()),
    "uniform, thinning": pair("steady", Gillespie(intervals=8), **LATE),
    "uniform, uniformization": pair("steady", Uniformization(), **LATE),
    "birth-death, thinning": pair("birth-death", Gillespie(), **LATE),
    "one masking, ancestral": one("masking", Ancestral(), 3),
    "one masking, reveal": one("masking", Reveal(), 3, like=Ancestral()),
    "one masking, remasking": one("masking", Remasking(remasking.Rate(2.0)), 4),
    "one uniform, ancestral": one("uniform", Ancestral(), 4),
    "one uniform, DDIM": one("uniform", CategoricalDDIM(), 4),
    "one uniform, psi": one("uniform", Psi(0.7), 4),
    "one uniform, routed": one("uniform", Routed("random"), 4, like=Ancestral()),
    "one interpolation, ancestral": one("interpolation", Ancestral(), 4),
    "one interpolation, DDIM, stochastic": one("interpolation", CategoricalDDIM(eta=0.5), 4),
    "one rates, ancestral": one("rates", Ancestral(), 4, **OWN),
    "one birth-death, ancestral": one("birth-death", Ancestral(), 4, **OWN),
    "one mixture, ancestral": one("mixture", Ancestral(), 4),
    "one matrices, own steps": one("matrices", Ancestral(), 8, **OWN),
    "one matrices, sub-grid": one("matrices", Ancestral(), 3, rows=8 * DRAWS, **OWN),  # its last step does little
    "one absorbing, own steps": one("absorbing", Ancestral(), 8),
    "one absorbing, sub-grid": one("absorbing", Ancestral(), 3),
    "one chain, own steps": one("chain", Ancestral(), 8),
    "one chain, sub-grid": one("chain", Ancestral(), 3),
    "rare tokens, reveal": Table(table(un.Masking(256, (1,)), RARE), Reveal(), 2, exact=True, like=Ancestral()),
    # --- categories, by steps
    "masking, ancestral": pair("masking", Ancestral(), 44),
    "masking, reveal": pair("masking", Reveal(), 44, like=Ancestral()),
    "masking, euler": pair("masking", Euler(), 88, end=0.5),
    "masking, remasking": pair("masking", Remasking(remasking.Rate(1.0)), 54),
    "masking, DDIM": pair("masking", CategoricalDDIM(rate=0.5), 60),
    "uniform, ancestral": pair("uniform", Ancestral(), 54),
    "uniform, DDIM": pair("uniform", CategoricalDDIM(), 50),
    "uniform, routed": pair("uniform", Routed("random"), 54, like=Ancestral()),
    "uniform, euler": pair("steady", Euler(), 64, **LATE),
    "uniform, euler, linear": pair("steady", Euler(hold=False), 48, **LATE),
    "uniform, euler, minimal": pair("steady", Euler(minimal=True), 40, **LATE),
    "uniform, euler, gamma": pair("steady", Euler(gamma=0.5), 94, **LATE),
    "uniform, tau-leaping": pair("steady", TauLeaping(), 84, **LATE),
    "uniform, trapezoidal": pair("steady", ThetaTrapezoidal(), 10, draws=2, **LATE),
    "uniform, RK2": pair("steady", ThetaRK2(), 58, draws=2, **LATE),
    "uniform, generic": pair("steady", FromGenerator(), 64, **LATE),
    "uniform, corrected": pair("steady", PredictorCorrector(Euler(), DetailedBalance()), 56, draws=2, **LATE),
    "interpolation, euler": pair("interpolation", Euler(), 74, **LATE),
    "interpolation, routed": pair("interpolation", Routed("random"), 60, like=Ancestral()),
    "rates, trapezoidal": pair("rates", ThetaTrapezoidal(), 14, draws=2, **LATE),
    "birth-death, trapezoidal": pair("birth-death", ThetaTrapezoidal(), 14, draws=2, **LATE),
    "mixture, generic trapezoidal": pair("mixture", FromGenerator(0.5), 20, draws=2, end=0.3, **LATE),
    "matrices, ancestral": pair("matrices", Ancestral(), 90),
    # --- numbers
    "ancestral": normal(COSINE, Ancestral(), 510),
    "ancestral, forward variance": normal(COSINE, Ancestral(), 100, variance=un.variances.ForwardVariance()),
    "DDIM": normal(VP, DDIM(), 390, **OWN),
    "DDIM, half": normal(LINEAR, DDIM(0.5), 280),
    "DDIM, full": normal(VE, DDIM(1.0), 580, **OWN),
    "Euler-Maruyama": normal(VP, EulerMaruyama(), 180, end=0.02, grid=grids.Quadratic()),
    "DPM++ 2M": normal(COSINE, DPMSolverPP(2), 32),
    "DPM++ 3M": normal(VP, DPMSolverPP(3), 48, grid=grids.Quadratic()),
    "SDE-DPM++ 2M": normal(VE, DPMSolverPP(2, sde=True), 64, **OWN),
    "UniPC": normal(LINEAR, UniPC(3), 32),
    "UniPC, half-way": normal(VE, UniPC(3, rule="exact", lower_final=False), 12, end=0.5, **OWN),
    "DEIS": normal(COSINE, DEIS(3), 40),
    "Heun": normal(VE, Heun(), 40, **OWN),
    "Heun, churn": normal(COSINE, Heun(churn=10.0), 48),
    "adaptive flow": normal(VP, AdaptiveODE(), None, **OWN),
    "corrected by Langevin": normal(COSINE, PredictorCorrector(Ancestral(), Langevin(0.5)), 420),
    "generic": normal(VP, FromGenerator(), 180, end=0.02, grid=grids.Quadratic()),
    "bumps, DPM++ 3M": bumps(LINEAR, DPMSolverPP(3), 30, start=0.98, end=0.05),
    "bumps, Heun": bumps(VE, Heun(), 40),
    "bumps, ancestral": bumps(COSINE, Ancestral(), 180, start=0.9, end=0.3),
    "bumps, generic trapezoidal": bumps(VP, FromGenerator(0.5), 24, start=0.8, end=0.2),
    # --- counts, and a number with a category
    "counts, ancestral": counted(0.0, Ancestral(), 80),
    "counts with arrivals, ancestral": counted(2.0, Ancestral(), 90),
    "counts, generic": counted(0.0, FromGenerator(), 80),
    "counts with arrivals, generic trapezoidal": counted(2.0, FromGenerator(0.5), 50, draws=2, start=0.5),
    "mixed, ancestral": mixed(Ancestral(), 44),
    "mixed, DDIM and Euler": mixed(Leaves(x=DDIM(1.0), c=Euler()), 44),
    "mixed, Euler-Maruyama and tau-leaping": mixed(Leaves(x=EulerMaruyama(), c=TauLeaping()), 30),
    "mixed, generic trapezoidal": mixed(FromGenerator(0.5), 6),
}
