"""A picture of noising and exact denoising, in a continuous and a finite space side by side."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.oracles import MarkovChain, Oracle, mixture
from unnoise.processes import Gaussian, Masking, Process
from unnoise.schedules import Linear

STEPS = 200
LETTERS = "noise "


def noising(process: Process, x0: Any, grid: Tensor, noise: NoiseSource) -> list[Tensor]:
    """A path of the forward process at the grid's times, by its transitions."""
    path: list[Any] = [process.marginal(x0, grid[0]).draw(noise.at("first"))]
    for i in range(len(grid) - 1):
        path.append(process.transition(path[-1], grid[i], grid[i + 1]).draw(noise.at("up", i)))
    return path


def denoising(oracle: Oracle, rows: int, grid: Tensor, noise: NoiseSource) -> list[Tensor]:
    """A path of the reverse process from the prior, by the exact denoiser's kernels."""
    path: list[Any] = [oracle.process.prior(rows, torch.float64).draw(noise.at("prior"))]
    for i in range(len(grid) - 1, 0, -1):
        path.append(oracle(path[-1], grid[i]).step(grid[i - 1]).draw(noise.at("down", i)))
    return path[::-1]


def draw(out: Path, seed: int) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(13, 7), constrained_layout=True)
    figure.suptitle("Noising and exact denoising: one theory, two spaces", fontsize=14)
    _continuous(axes[0], seed)
    _finite(axes[1], seed)
    for axis in axes[1]:
        axis.set_xlabel("time t   (0 is data, 1 is noise)")
    axes[0][0].set_title("noising, t from 0 to 1")
    axes[0][1].set_title("denoising with the exact denoiser, t from 1 to 0")
    figure.savefig(out, dpi=110)
    plt.close(figure)


def _continuous(axes, seed: int) -> None:
    process = Gaussian((1,), Linear())
    means, covariances = torch.tensor([[-1.5], [1.0]]), torch.tensor([[[0.03]], [[0.12]]])
    oracle = mixture(process, torch.tensor([0.4, 0.6]), means, covariances)
    grid = torch.linspace(1e-3, 1, STEPS + 1, dtype=torch.float64)
    rows, noise = 48, NoiseSource(seed, 48)
    x0 = oracle.draw(noise.at("data"))
    y = torch.linspace(-3.2, 3.2, 241, dtype=torch.float64)
    density = torch.stack([oracle.log_marginal(y.unsqueeze(-1), t).exp() for t in grid], 1)
    shown = density / density.max(0).values
    for axis, path in ((axes[0], noising(process, x0, grid, noise)), (axes[1], denoising(oracle, rows, grid, noise))):
        axis.imshow(shown.numpy(), origin="lower", aspect="auto", extent=(0, 1, -3.2, 3.2), cmap="Greys", vmax=2.2)
        lines = torch.stack(path).squeeze(-1)
        axis.plot(grid.numpy(), lines.numpy(), lw=0.6, alpha=0.7)
        axis.set_ylim(-3.2, 3.2)
    axes[0].set_ylabel("a Gaussian mixture on the line\n(grey: exact marginal density)")


def _finite(axes, seed: int) -> None:
    """A cyclic chain of letters that mostly spells one word."""
    size, length, rows = len(LETTERS), 7, 8
    successor = dict(zip(LETTERS, LETTERS[1:] + LETTERS[0], strict=True))
    columns = torch.full((size, size), 0.01, dtype=torch.float64)
    for letter, following in successor.items():
        columns[LETTERS.index(following), LETTERS.index(letter)] = 1.0
    columns = columns / columns.sum(0)
    process = Masking(size, (length,))
    initial = torch.full((size,), 0.01, dtype=torch.float64)
    initial[0] = 1.0
    oracle = MarkovChain(process, initial / initial.sum(), columns)
    times = torch.linspace(0, 1, 9, dtype=torch.float64)
    noise = NoiseSource(seed + 1, rows)
    fine = torch.linspace(0, 1, STEPS + 1, dtype=torch.float64)
    forward = noising(process, oracle.draw(noise.at("data")), fine, noise)
    backward = denoising(oracle, rows, fine, noise)
    for axis, path in ((axes[0], forward), (axes[1], backward)):
        for t in times:
            state = path[round(float(t) * STEPS)]
            for row in range(rows):
                text = "".join("▒" if c == process.mask else LETTERS[c].replace(" ", "_") for c in state[row].tolist())
                axis.text(float(t), row, text, family="monospace", fontsize=9, va="center", ha="center")
        axis.set_ylim(rows - 0.4, -0.6)
        axis.set_yticks([])
        axis.set_xlim(-0.07, 1.07)
        axis.set_xticks(times.tolist())
    axes[0].set_ylabel("a Markov chain of letters under masking\n(▒: masked; _: space)")
