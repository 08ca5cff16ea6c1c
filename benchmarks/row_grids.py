"""What mixed tables cost: the error of their law against calls of the network, in common steps and one by one.

    python benchmarks/row_grids.py [--rows 50000] [--calls 32 64 96 192 480] [--json]

The denoiser is exact, so all error is the sampler's: the oracle of the law, written out for masking (and compared with it).
Two laws:

    table     rows of 8 kinds: 9 columns of 4 categories that mostly follow the kind, 4 numbers that are normal given it
    columns   4 columns of 3 categories with strong dependence, and 2 numbers that are normal given all of them

At the same number of calls: `Leaves`, all leaves in common steps (DPM-Solver++ 2M for numbers, the kernel for categories),
and `OneByOne`, with a call for each column and the rest as steps of the numbers.  What is printed, first of true rows:

    excess    mean -log q of the samples less that of the law, in nats, with its standard error: rows that cannot be
    pairs     total variation of the joint of two columns, mean over pairs; of law `columns` that of all columns together
    numbers   E[x 1(c = a)] and E[x^2 1(c = a)] for each number x, column c and category a: root mean square error
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

import unnoise as un
from unnoise.samplers import Ancestral, DPMSolverPP, Leaves, OneByOne

KINDS, COLUMNS, SIZE, NUMBERS, FOLLOWS = 8, 9, 4, 4, 0.97


def table() -> un.oracles.Components:
    """Rows of several kinds, each with columns and numbers that are independent given the kind."""
    generator = torch.Generator().manual_seed(0)
    usual = torch.randint(SIZE, (KINDS, COLUMNS), generator=generator)
    probs = torch.full((KINDS, COLUMNS, SIZE), (1 - FOLLOWS) / (SIZE - 1)).scatter(2, usual.unsqueeze(-1), FOLLOWS)
    means = torch.randn(KINDS, NUMBERS, generator=generator)
    spread = 0.35 * (0.6 + 0.8 * torch.rand(KINDS, NUMBERS, generator=generator))
    process = un.Product(x=un.Gaussian((NUMBERS,)), c=un.Masking(SIZE, (COLUMNS,)))
    leaves = {
        "x": un.oracles.GaussianLeaf(means, torch.diag_embed(spread.square())),
        "c": un.oracles.CategoricalLeaf(probs.log()),
    }
    return un.oracles.Components(process, torch.full((KINDS,), 1 / KINDS), leaves)


def columns() -> un.oracles.Components:
    """Columns by a table of all their states."""
    generator = torch.Generator().manual_seed(1)
    process = un.Product(x=un.Gaussian((2,)), c=un.Masking(3, (4,)))
    states = process.leaves["c"].space.states()
    energy = torch.zeros(len(states))
    for i, j in combinations(range(4), 2):
        energy += 2.0 * torch.randn(3, 3, generator=generator)[states[:, i], states[:, j]]
    effects = torch.randn(4, 3, 2, generator=generator)
    means = sum(effects[i][states[:, i]] for i in range(4))
    covariances = torch.tensor([[0.08, 0.03], [0.03, 0.05]]).expand(len(states), 2, 2)
    return un.oracles.conditional_gaussian(process, energy.softmax(0), means, covariances)


def drawn(oracle: un.oracles.Components, rows: int, seed: int = 9) -> dict[str, Tensor]:
    return oracle.draw(un.NoiseSource(seed, rows))


def joint(c: Tensor, size: int) -> Tensor:
    """The law of some columns, flat."""
    code = torch.zeros(len(c), dtype=torch.long)
    for column in c.T:
        code = code * size + column
    return torch.bincount(code, minlength=size ** c.shape[1]).double() / len(c)


class Written(un.denoiser.AnyDenoiser):
    """An oracle of numbers "x", whose covariances have the same axes, and masked columns "c", in a few products of matrices.

    Under masking a column says log theta(its value) of each component, or nothing; so the components' weights given x_t are
    a softmax, and what is predicted are means over them.
    """

    def __init__(self, oracle: un.oracles.Components):
        super().__init__()
        self.process, numbers = oracle.process, oracle.leaves["x"]
        self.log_weights, self.axes = oracle.log_weights, numbers.axes[0]
        self.means = numbers.means @ self.axes
        self.variances = (self.axes.T @ numbers.covariances @ self.axes).diagonal(dim1=-2, dim2=-1)
        probs = oracle.leaves["c"].log_probs.exp()  # [components, columns, size]
        self.probs = probs
        seen = probs.clamp_min(1e-300).log().permute(1, 2, 0)
        self.seen = torch.cat([seen, torch.zeros_like(seen[:, :1])], 1)  # [columns, size + 1, components]

    def forward(self, x_t, t, **condition):
        x, c, leaves = x_t["x"] @ self.axes, x_t["c"], self.process.leaves
        alpha, sigma = (f(t).unsqueeze(1) for f in (leaves["x"].schedule.alpha, leaves["x"].schedule.sigma))
        evidence, gains = self.log_weights.expand(len(x), -1), []
        for j in range(x.shape[1]):
            spread = alpha.square() * self.variances[:, j] + sigma.square()
            gap = x[:, j : j + 1] - alpha * self.means[:, j]
            evidence = evidence - 0.5 * (gap.square() / spread + spread.log())
            gains.append(self.means[:, j] + alpha * self.variances[:, j] / spread * gap)
        for k in range(c.shape[1]):
            evidence = evidence + self.seen[k][c[:, k]]
        weight = evidence.softmax(-1)
        clean = torch.stack([(weight * gain).sum(1) for gain in gains], 1) @ self.axes.T
        logits = (weight @ self.probs.flatten(1)).clamp_min(1e-300).log().reshape(*c.shape, -1)
        parts = {"x": un.Clean(clean, leaves["x"], x_t["x"], t), "c": un.Posterior(logits, leaves["c"], c, t)}
        return un.predictions.ProductPrediction(parts, self.process, x_t, t)

    def agrees(self, oracle: un.oracles.Components) -> bool:
        """With the oracle, where it is asked in a run."""
        t = torch.linspace(0.02, 0.98, 64, dtype=torch.float64)
        x_t = self.process.marginal(drawn(oracle, 64), t).draw(un.NoiseSource(3, 64))
        ours, theirs, masked = self(x_t, t).leaves, oracle(x_t, t).leaves, x_t["c"] == self.process.leaves["c"].mask
        numbers = (ours["x"].value - theirs["x"].to(un.Clean).value).abs().max()
        labels = (ours["c"].clean() - theirs["c"].clean())[masked].abs().max()
        return float(numbers) < 1e-8 and float(labels) < 1e-8


class Truth:
    """Expectations under the law itself, by its components."""

    def __init__(self, oracle: un.oracles.Components):
        self.oracle, self.size = oracle, oracle.process.leaves["c"].space.size
        self.weights, numbers = oracle.log_weights.exp(), oracle.leaves["x"]
        self.probs = oracle.leaves["c"].log_probs.exp()  # [components, columns, size]
        self.first = numbers.means
        self.second = numbers.means.square() + numbers.covariances.diagonal(dim1=-2, dim2=-1)
        rows = drawn(oracle, 200_000, 1)
        values = -oracle.log_prob(rows)
        self.entropy, self.entropy_error = float(values.mean()), float(values.std() / len(values) ** 0.5)

    def groups(self) -> list[tuple[int, ...]]:
        width = self.probs.shape[1]
        return [tuple(range(width))] if width < 6 else list(combinations(range(width), 2))

    def law(self, group: tuple[int, ...]) -> Tensor:
        out = self.weights.unsqueeze(1)
        for k in group:
            out = (out.unsqueeze(-1) * self.probs[:, k].unsqueeze(1)).flatten(1)
        return out.sum(0)

    def scores(self, x: dict[str, Tensor]) -> dict[str, float]:
        values = -self.oracle.log_prob(x)
        gaps = []
        for k in range(self.probs.shape[1]):
            here = torch.nn.functional.one_hot(x["c"][:, k], self.size).double() / len(values)
            share = (self.weights.unsqueeze(1) * self.probs[:, k]).T
            gaps += [here.T @ x["x"] - share @ self.first, here.T @ x["x"].square() - share @ self.second]
        apart = [0.5 * (joint(x["c"][:, list(g)], self.size) - self.law(g)).abs().sum() for g in self.groups()]
        return {
            "excess": float(values.mean()) - self.entropy,
            "error": (float(values.var() / len(values)) + self.entropy_error**2) ** 0.5,
            "pairs": float(torch.stack(apart).mean()),
            "numbers": float(torch.cat([gap.flatten() for gap in gaps]).square().mean().sqrt()),
        }


def methods(calls: int, width: int) -> Iterator[tuple[str, un.samplers.Sampler, int]]:
    yield "common steps", Leaves(x=DPMSolverPP(2), c=Ancestral()), calls
    if calls > width + 2:
        yield "one by one", OneByOne(x=DPMSolverPP(2)), calls - width


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--calls", type=int, nargs="+", default=[16, 24, 32, 48, 73, 96, 192, 480])
    parser.add_argument("--law", choices=["table", "columns"])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = []
    for name, build in (("table", table), ("columns", columns)):
        if options.law not in (None, name):
            continue
        oracle = build()
        denoiser = Written(oracle)
        assert denoiser.agrees(oracle)
        truth, width = Truth(oracle), oracle.process.leaves["c"].space.dimension
        tell = print if not options.json else lambda *words, **more: None
        tell(
            f"{name}: {options.rows} rows\n{'calls':>6}  {'method':14}{'excess, nats':>18}{'pairs':>9}{'numbers':>9}{'s':>7}"
        )
        for calls in (0, *options.calls):
            for method, sampler, steps in [("true rows", None, 0)] if not calls else methods(calls, width):
                began = time.perf_counter()
                if sampler is None:
                    x = drawn(oracle, options.rows)
                else:
                    x, info = un.sample(denoiser, options.rows, steps, sampler, seed=0)
                    assert info.calls == calls, info.calls
                row = {"law": name, "calls": calls, "method": method, **truth.scores(x)}
                row["seconds"] = time.perf_counter() - began
                found.append(row)
                tell(
                    f"{calls or '':>6}  {method:14}{row['excess']:>9.4f} ± {row['error']:.4f}{row['pairs']:>9.4f}"
                    f"{row['numbers']:>9.4f}{row['seconds']:>7.0f}",
                    flush=True,
                )
    if options.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
