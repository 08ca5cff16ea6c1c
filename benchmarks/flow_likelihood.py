"""Row evaluations of the flow likelihood on a batch of mixed stiffness, against torchdiffeq's dopri5, at equal error.

    python benchmarks/flow_likelihood.py [--rows 64] [--json]

The data law is a mixture of one very narrow and one wide component in two dimensions; a batch holds points of both (and, for
comparison, of the wide one alone).  A step size for the whole batch follows its hardest row, and all rows are asked for in
each of its steps; a step size per row costs an easy row what it needs.  Both methods have the same tableau, the same field
(velocity and exact trace) and the exact law of x_1 as prior; each is run over a ladder of tolerances, and the costs are
compared at the same achieved error, the largest |log p - exact| of the batch, by interpolation in logarithms.

A row evaluation is one row given to the network.  torchdiffeq is no dependency of unnoise; to install it beside it:

    pip install torchdiffeq
"""

import argparse
import json
from math import exp, log

import torch
from torch import Tensor

import unnoise as un
from unnoise.likelihoods.flow import ProbabilityFlow
from unnoise.noise import NoiseSource

try:
    from torchdiffeq import odeint
except ImportError:
    odeint = None

TOLERANCES = [10.0**-k for k in range(2, 10)]


class Counted(un.denoiser.AnyDenoiser):
    """The oracle, counting the rows it is asked for."""

    def __init__(self, oracle):
        super().__init__()
        self.oracle, self.process, self.rows = oracle, oracle.process, 0

    def forward(self, x_t, t, **condition):
        self.rows += len(x_t)
        return self.oracle(x_t, t)


def data(narrow: float):
    process = un.Gaussian((2,), un.schedules.Cosine())
    means = torch.tensor([[1.5, 0.0], [-1.5, 0.5]], dtype=torch.float64)
    eye = torch.eye(2, dtype=torch.float64)
    return un.oracles.mixture(process, torch.tensor([0.5, 0.5]), means, torch.stack([narrow**2 * eye, 0.5 * eye]))


def batch(oracle, rows: int, hard: int) -> Tensor:
    """`hard` points of the narrow component, the rest of the wide one."""
    component = torch.tensor([0] * hard + [1] * (rows - hard))
    return oracle.leaves.draw(component, NoiseSource(0, rows))


def ours(oracle, x: Tensor, tolerance: float) -> tuple[Tensor, int]:
    denoiser = Counted(oracle)
    method = ProbabilityFlow(rtol=tolerance, atol=tolerance, prior=lambda x: oracle.log_marginal(x, 1.0))
    value, info = method.log_prob(denoiser, x, NoiseSource(0, len(x)), {})
    assert info.rows == denoiser.rows
    return value, denoiser.rows


def theirs(oracle, x: Tensor, tolerance: float) -> tuple[Tensor, int]:
    denoiser = Counted(oracle)

    def field(t: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            here = state[0].detach().requires_grad_()
            u = denoiser(here, t.clamp(0, 1)).to(un.Flow).value
            trace = sum(torch.autograd.grad(u[:, i].sum(), here, retain_graph=True)[0][:, i] for i in range(x.shape[1]))
        return u.detach(), trace

    ends = torch.tensor([oracle.process.cutoff, 1.0], dtype=torch.float64)
    last, integral = odeint(field, (x, torch.zeros(len(x), dtype=x.dtype)), ends, rtol=tolerance, atol=tolerance)
    return oracle.log_marginal(last[-1], 1.0) + integral[-1], denoiser.rows


def ladder(method, oracle, x: Tensor) -> list[tuple[float, int]]:
    """(largest error, row evaluations) for each tolerance."""
    told, out = oracle.log_marginal(x, oracle.process.cutoff), []
    for tolerance in TOLERANCES:
        value, rows = method(oracle, x, tolerance)
        out.append((float((value - told).abs().max()), rows))
    return out


def cost_at(runs: list[tuple[float, int]], error: float) -> float | None:
    """Row evaluations at an error, between the last run that is worse and the first from which all are at least as good."""
    good = next((i for i in range(len(runs)) if all(e <= error for e, _ in runs[i:])), None)
    if not good:
        return None if good is None else float(runs[0][1])
    (e_0, n_0), (e_1, n_1) = runs[good - 1], runs[good]
    share = (log(e_0) - log(error)) / (log(e_0) - log(e_1))
    return exp(log(n_0) + share * (log(n_1) - log(n_0)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--narrow", type=float, default=1e-3, help="standard deviation of the narrow component")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if odeint is None:
        raise SystemExit("torchdiffeq is not installed here: pip install torchdiffeq, then run this again")
    oracle, table = data(options.narrow), []
    for hard in (0, options.rows // 8, options.rows // 2):
        x = batch(oracle, options.rows, hard)
        runs = {name: ladder(method, oracle, x) for name, method in (("unnoise", ours), ("torchdiffeq", theirs))}
        for error in (1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
            mine, other = (cost_at(runs[name], error) for name in ("unnoise", "torchdiffeq"))
            if mine and other:
                row = {"hard rows": hard, "error": error, "unnoise": round(mine), "torchdiffeq": round(other)}
                table.append({**row, "ratio": other / mine})
        if not options.json:
            for name, ran in runs.items():
                print(f"{hard} hard rows, {name}: " + ", ".join(f"{e:.0e} at {n}" for e, n in ran))
    if options.json:
        print(json.dumps(table))
        return
    print(f"{'hard rows':>10}{'error':>10}{'unnoise':>12}{'torchdiffeq':>14}{'ratio':>8}")
    for row in table:
        print("{hard rows:>10}{error:>10.0e}{unnoise:>12}{torchdiffeq:>14}{ratio:>8.2f}".format(**row))


if __name__ == "__main__":
    main()
