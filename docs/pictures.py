"""Draws every picture of the documentation into docs/pictures, each from the library's own exact laws.

    python docs/pictures.py             all of them
    python docs/pictures.py masking     those named

Nothing is trained: forward paths are drawn from the transitions, grey and blue backgrounds are exact marginals, and
reverse paths are those of an oracle, the exact denoiser of a known data law.  Draws are pure functions of a seed, so the
pictures are the same on every run.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

import unnoise as un
from unnoise.laws import Law
from unnoise.verify import cases
from unnoise.verify.order_picture import draw as draw_orders

FOLDER = Path(__file__).parent / "pictures"
WIDTH, DPI, SMALLER, LARGEST = 8.8, 120, 100, 55_000
COLOURS = ["#1f6fb4", "#d1495b", "#2e8b57", "#e08e1b", "#7a4fa3", "#00897b", "#8d6e63", "#c2185b", "#5b6770"]
LAW, PATHS = "Blues", "Greys"  # colour maps of laws alone, and of laws behind paths
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "figure.constrained_layout.use": True,
}
PICTURES: dict[str, Callable[[], Figure]] = {}


def picture(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    PICTURES[draw.__name__] = draw
    return draw


def save(name: str, figure: Figure) -> None:
    """As a PNG, of as few colours as keep it small; one with much text of fewer points as well."""
    file = FOLDER / f"{name}.png"
    image = rendered(figure, DPI)
    image.save(file, optimize=True)
    for colours in (256, 128, 64, 32):
        if file.stat().st_size > LARGEST:
            image.quantize(colours, dither=Image.Dither.NONE).save(file, optimize=True)
    if file.stat().st_size > LARGEST:
        smaller, rare = rendered(figure, SMALLER), Image.Quantize.MAXCOVERAGE  # keeps the colours of thin lines
        smaller.quantize(48, rare, dither=Image.Dither.NONE).save(file, optimize=True)
    plt.close(figure)


def rendered(figure: Figure, dpi: int) -> Image.Image:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi)
    return Image.open(buffer).convert("RGB")


def times(steps: int, first: float = 0.0) -> Tensor:
    return torch.linspace(first, 1, steps + 1, dtype=torch.float64)


def noising(process: un.Process, x0, grid: Tensor, seed: int) -> list:
    """A path of the forward process for each row of x0, by its transitions."""
    noise = un.NoiseSource(seed, rows(x0))
    path = [process.marginal(x0, grid[0]).draw(noise.at("first"))]
    for i in range(len(grid) - 1):
        path.append(process.transition(path[-1], grid[i], grid[i + 1]).draw(noise.at("up", i)))
    return path


def stepped(prediction: un.Prediction, t: Tensor, s: Tensor) -> Law:
    """The kernel to s; of a small step where there is no other."""
    if isinstance(prediction, un.SimplexScore | un.OrthantScore):
        return prediction.process.space.step_law(prediction.local(), prediction.x_t, t - s)
    return prediction.step(s)


def denoising(oracle: un.oracles.Oracle, count: int, grid: Tensor, seed: int) -> list:
    """Paths of the reverse process, from the prior down, by the exact denoiser's kernels; in the order of the grid."""
    noise = un.NoiseSource(seed, count)
    path = [oracle.process.prior(count, torch.float64).draw(noise.at("prior"))]
    for i in range(len(grid) - 1, 0, -1):
        path.append(stepped(oracle(path[-1], grid[i]), grid[i], grid[i - 1]).draw(noise.at("down", i)))
    return path[::-1]


def rows(x) -> int:
    return rows(next(iter(x.values()))) if isinstance(x, dict) else len(x)


def time_axis(axis: Axes) -> None:
    axis.set_xlim(0, 1)
    axis.set_xticks([0, 0.5, 1], ["0\ndata", "t", "1\nnoise"])


def states_axis(axis: Axes, labels: list[str] | None, size: int) -> None:
    axis.set_ylim(-0.5, size - 0.5)
    if labels is not None:
        axis.set_yticks(range(size), labels)


def stairs(axis: Axes, path: list[Tensor], grid: Tensor, spread: float) -> None:
    """Paths of categories as steps, each a little off its state so that all are seen."""
    lines = torch.stack(path).double()
    count = lines.shape[1]
    for i in range(count):
        shift = spread * (2 * (i + 0.5) / count - 1)
        axis.step(grid, lines[:, i] + shift, where="post", color=COLOURS[i % len(COLOURS)], lw=1.1)


def heat(axis: Axes, law: Tensor, low: float, high: float, top: float, colours: str = LAW):
    """A law [times, states] over (t, state), darkest at `top`; square roots, so that small probabilities show."""
    norm = PowerNorm(0.5, 0, top)
    where = {"origin": "lower", "aspect": "auto", "extent": (0, 1, low, high), "interpolation": "nearest"}
    return axis.imshow(law.T, cmap=colours, norm=norm, **where)


def scale(axis: Axes, shown, top: float) -> None:
    """The colours' probabilities; `top` and above look alike."""
    ticks = [tick for tick in (0, 0.02, 0.1, 0.3, 0.5, 1) if tick <= top and (tick > 0.05 or tick == 0 or top < 0.4)]
    bar = axis.figure.colorbar(shown, ax=axis, fraction=0.05, pad=0.02, ticks=ticks)
    bar.ax.set_yticklabels([f"{tick:g}" if tick < top or top == 1 else f"≥ {tick:g}" for tick in ticks])
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=7.5, length=2)


def bare(axis: Axes) -> None:
    """A margin of the panel on its right, opening to the left."""
    axis.invert_xaxis()
    axis.set_xticks([])
    axis.spines[["left", "bottom"]].set_visible(False)
    axis.tick_params(left=False, labelleft=False)
    axis.set_title(" ", fontsize=8)
    for height, colour, text in ((1.09, "0.5", "data"), (1.02, COLOURS[1], "ends")):
        axis.text(1, height, text, color=colour, transform=axis.transAxes, fontsize=8, ha="right")


def ends(axis: Axes, law: Tensor, drawn: Tensor) -> None:
    """The data's law as bars, and how often the reverse process ended in each state as dots."""
    share = torch.bincount(drawn, minlength=len(law)).double() / len(drawn)
    axis.barh(range(len(law)), law, color="0.8", height=0.8)
    axis.plot(share[: len(law)], range(len(law)), "o", color=COLOURS[1], ms=2.6)
    bare(axis)


def family(
    axes: list[Axes],
    oracle: un.oracles.Oracle,
    start: int,
    labels: list[str] | None = None,
    size: int | None = None,
    count: int = 9,
    top: float = 1.0,
    seed: int = 0,
) -> None:
    """The three panels of a process on one category or count: paths up, the exact law from one state, the exact reverse."""
    process, spread = oracle.process, 0.3
    size = process.state_space.size if size is None else size
    name = labels[start] if labels else start
    up, law, shares, down = axes
    fine, grid, states = times(400), times(100), torch.arange(size)
    stairs(up, noising(process, torch.full((count,), start), fine, seed), fine, spread)
    up.set_title(f"forward paths from {name}")
    here = torch.full((len(grid),), start)
    exact = torch.stack([process.marginal(here, grid).log_prob(torch.full_like(here, k)).exp() for k in states], 1)
    scale(law, heat(law, exact, -0.5, size - 0.5, top), top)
    law.set_title(f"$q(x_t \\mid x_0 = {name})$")
    marginal = torch.stack([oracle.log_marginal(states, t).exp() for t in grid])
    heat(down, marginal, -0.5, size - 0.5, 3 * float(marginal[:-5].max()), PATHS)
    stairs(down, denoising(oracle, count, fine, seed + 2), fine, spread)
    down.set_title("reverse paths, exact denoiser")
    for axis in (up, law, down):
        states_axis(axis, labels, size)
        time_axis(axis)
    finite = isinstance(process.space, un.Finite)  # then a step of any length is exact
    data = oracle.log_prob(states[: process.space.size] if finite else states).exp()
    ends(shares, data, denoising(oracle, 2000, times(8 if finite else 100), seed + 1)[0])
    shares.set_ylim(down.get_ylim())


def panels(figure, lines: int = 1) -> list[list[Axes]]:
    axes = figure.subplots(lines, 4, squeeze=False, gridspec_kw={"width_ratios": [3, 3.2, 0.7, 3]})
    return [list(line) for line in axes]


def sheet(height: float) -> Figure:
    return plt.figure(figsize=(WIDTH, height))


def titled(figure, text: str) -> None:
    figure.suptitle(text, x=0.01, ha="left", fontsize=10, fontweight="bold")


LETTERS = list("abcdefgh")
FEW = torch.tensor([0.02, 0.3, 0.03, 0.05, 0.35, 0.02, 0.2, 0.03], dtype=torch.float64)


@picture
def masking() -> Figure:
    figure = sheet(2.9)
    family(panels(figure)[0], un.oracles.table(un.Masking(8, ()), FEW), 4, [*LETTERS, "MASK"])
    return figure


@picture
def uniform() -> Figure:
    figure = sheet(2.9)
    family(panels(figure)[0], un.oracles.table(un.Uniform(8, ()), FEW), 4, LETTERS)
    return figure


@picture
def noise_laws() -> Figure:
    """The data's own frequencies, and masking with a share of uniform noise."""
    figure = sheet(5.8)
    top, bottom = figure.subfigures(2, 1)
    titled(top, "Interpolation with the data's frequencies")
    process = un.Interpolation(8, (), FEW)
    family(panels(top)[0], un.oracles.table(process, FEW), 3, LETTERS)
    titled(bottom, "Mixture.uniform_and_mask, a share of 0.4 uniform at t = 1/2")
    blend = un.Mixture.uniform_and_mask(8, (), uniform=0.4)
    family(panels(bottom)[0], un.oracles.table(blend, FEW), 4, [*LETTERS, "MASK"])
    return figure


def two_humps(size: int) -> Tensor:
    x = torch.arange(size, dtype=torch.float64) / (size - 1)
    weight = (-0.5 * ((x - 0.25) / 0.07) ** 2).exp() + 0.7 * (-0.5 * ((x - 0.7) / 0.1) ** 2).exp() + 0.01
    return weight / weight.sum()


@picture
def rate_matrices() -> Figure:
    """The builders as matrices, and the nearest-neighbour process on 24 ordered categories."""
    figure = sheet(4.9)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.75, 2.9])
    size = 16
    angle = torch.tensor([[k * 1.5 + 0.12 * i] for k in range(4) for i in range(4)], dtype=torch.float64)
    embeddings = torch.cat([angle.cos(), angle.sin()], 1)
    built = {
        "nearest_neighbour": un.rate_matrices.nearest_neighbour(size),
        "discretised_gaussian": un.rate_matrices.discretised_gaussian(size, 3.0),
        "banded": un.rate_matrices.banded(size, 3),
        "similarity": un.rate_matrices.similarity(embeddings, 4, 0.1),
        "with_mask(banded)": un.rate_matrices.with_mask(un.rate_matrices.banded(size - 1, 3)),
    }
    for axis, (name, matrix) in zip(top.subplots(1, len(built)), built.items(), strict=True):
        off = matrix - torch.diag(matrix.diagonal())
        axis.imshow(off, cmap=LAW, norm=PowerNorm(0.5, 0, float(off.max())), interpolation="nearest")
        axis.set_title(name, fontsize=8.5)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(True)
        axis.set_xlabel("from x", fontsize=8)
    top.axes[0].set_ylabel("to y", fontsize=8)
    process = un.RateMatrix(un.rate_matrices.nearest_neighbour(24))
    family(panels(bottom)[0], un.oracles.table(process, two_humps(24)), 6, count=5, top=0.3)
    return figure


@picture
def bounded_counts() -> Figure:
    figure = sheet(5.8)
    top, bottom = figure.subfigures(2, 1)
    most = 20
    for part, occupancy, text in ((top, 0.0, "pure death"), (bottom, 0.5, "birth and death")):
        titled(part, f"BirthDeath(20, occupancy={occupancy:g}): {text}")
        family(
            panels(part)[0], un.oracles.table(un.BirthDeath(most, (), occupancy=occupancy), two_humps(most + 1)), 14, top=0.3
        )
    return figure


@picture
def counts() -> Figure:
    figure = sheet(5.8)
    top, bottom = figure.subfigures(2, 1)
    weights, rates = torch.tensor([0.5, 0.5]), torch.tensor([3.0, 16.0])
    for part, immigration, text in ((top, 0.0, "units only die"), (bottom, 6.0, "units die and arrive")):
        titled(part, f"Thinning(immigration={immigration:g}): {text}")
        oracle = un.oracles.poisson_mixture(un.Thinning((), immigration=immigration), weights, rates)
        family(panels(part)[0], oracle, 18, size=31, top=0.3)
    return figure


@picture
def gaussian() -> Figure:
    figure = sheet(2.9)
    up, law, shares, down = panels(figure)[0]
    process = un.Gaussian((1,), un.schedules.Cosine())
    means, variances = torch.tensor([[-1.5], [1.0]]), torch.tensor([[[0.03]], [[0.12]]])
    oracle = un.oracles.mixture(process, torch.tensor([0.4, 0.6]), means, variances)
    one_number([up, law, shares, down], oracle, 3.2, last=times(200, 1e-3))
    return figure


@picture
def jumps() -> Figure:
    """Throws are seen as lines straight up or down."""
    figure = sheet(2.9)
    up, law, shares, down = panels(figure)[0]
    process = un.JumpDiffusion((1,), un.schedules.Cosine(), jumps=2.0, scale=2.0)
    means, variances = torch.tensor([[-1.5], [1.0]]), torch.tensor([0.03, 0.12])
    oracle = un.oracles.cloud_mixture(process, torch.tensor([0.4, 0.6]), means, variances)
    one_number([up, law, shares, down], oracle, 5.0, last=times(8, 1e-3))
    return figure


def one_number(axes: list[Axes], oracle: un.oracles.Oracle, far: float, last: Tensor) -> None:
    """The four panels of a process on one number; `last` are the times of the paths whose ends are counted."""
    (up, law, shares, down), process = axes, oracle.process
    fine, grid = times(300, 1e-3), times(60, 1e-3)
    y = torch.linspace(-far, far, 121, dtype=torch.float64).unsqueeze(-1)
    marginal = torch.stack([oracle.log_marginal(y, t).exp() for t in grid])
    x0 = oracle.draw(un.NoiseSource(0, 12))
    for axis, path, title in (
        (up, noising(process, x0, fine, 1), "forward paths"),
        (down, denoising(oracle, 12, fine, 2), "reverse paths, exact denoiser"),
    ):
        heat(axis, marginal / marginal.amax(1, keepdim=True), -far, far, 3.0, PATHS)
        lines(axis, fine, torch.stack(path).squeeze(-1))
        axis.set_title(title)
    start = torch.tensor([[1.0]], dtype=torch.float64)
    exact = torch.stack([process.marginal(start.expand(len(y), 1), t).log_prob(y).exp() for t in grid])
    heat(law, exact / exact.amax(1, keepdim=True), -far, far, 1.0)
    law.set_title(r"$q(x_t \mid x_0 = 1)$ over its peak")
    drawn = denoising(oracle, 3000, last, 3)[0].squeeze(-1)
    density_ends(shares, y.squeeze(-1), oracle.log_prob(y).exp(), drawn)
    for axis in (up, law, down, shares):
        axis.set_ylim(-far, far)
    for axis in (up, law, down):
        time_axis(axis)


@picture
def manifolds() -> Figure:
    """Angles: paths are broken where they go round, laws have the period 2 pi."""
    figure = sheet(2.9)
    up, law, shares, down = panels(figure)[0]
    process = un.WrappedNormal((1,))
    means, variances = torch.tensor([[-2.9], [0.8]]), torch.tensor([0.05, 0.3])
    oracle = un.oracles.heat_mixture(process, torch.tensor([0.6, 0.4]), means, variances)
    fine, grid = times(300), times(60)
    y = process.space.nodes(120)[0]
    marginal = torch.stack([oracle.log_marginal(y, t).exp() for t in grid])
    for axis, path, title in (
        (up, noising(process, oracle.draw(un.NoiseSource(0, 8)), fine, 1), "forward paths"),
        (down, denoising(oracle, 8, fine, 2), "reverse paths, exact denoiser"),
    ):
        heat(axis, marginal / marginal.amax(1, keepdim=True), -torch.pi, torch.pi, 3.0, PATHS)
        values = torch.stack(path).squeeze(-1)
        around = (values[1:] - values[:-1]).abs() > torch.pi
        values[1:][around] = torch.nan
        lines(axis, fine, values)
        axis.set_title(title)
    start = torch.tensor([[2.5]], dtype=torch.float64)
    exact = torch.stack([process.marginal(start.expand(len(y), 1), t).log_prob(y).exp() for t in grid])
    heat(law, exact / exact.amax(1, keepdim=True), -torch.pi, torch.pi, 1.0)
    law.set_title(r"$q(x_t \mid x_0 = 2.5)$ over its peak")
    drawn = denoising(oracle, 3000, times(128), 3)[0].squeeze(-1)
    density_ends(shares, y.squeeze(-1), oracle.log_prob(y).exp(), drawn)
    for axis in (up, law, down, shares):
        axis.set_ylim(-torch.pi, torch.pi)
    for axis in (up, law, down):
        time_axis(axis)
    return figure


@picture
def globe_and_rotations() -> Figure:
    """Reverse paths on the globe and their ends, and how far rotations end from two poses, beside the data's densities."""
    figure = plt.figure(figsize=(WIDTH, 3.4))
    globe, turns = un.SphereHeat(2), un.RotationHeat()
    places = globe.space.project(torch.tensor([[1.0, 0.5, 0.4], [0.6, -0.9, -0.5]], dtype=torch.float64))
    shares, variances = torch.tensor([0.4, 0.6]), torch.tensor([0.03, 0.1])
    oracle = un.oracles.heat_mixture(globe, shares, places, variances)
    path, info = un.sample(oracle, n=5, steps=120, seed=2, dtype=torch.float64, trajectory=True)
    ends, _ = un.sample(oracle, n=600, steps=48, seed=3, dtype=torch.float64)
    around, up = torch.meshgrid(times(60) * 2 * torch.pi - torch.pi, times(30) * torch.pi - torch.pi / 2, indexing="xy")
    y = torch.stack([up.cos() * around.cos(), up.cos() * around.sin(), up.sin()], -1)
    axis = figure.add_subplot(1, 2, 1, projection="mollweide")
    axis.pcolormesh(around, up, oracle.log_prob(y.reshape(-1, 3)).exp().reshape(up.shape), cmap=PATHS, shading="gouraud")
    axis.scatter(torch.atan2(ends[:, 1], ends[:, 0]), ends[:, 2].asin(), s=1.5, color=COLOURS[1], lw=0)
    for i, line in enumerate(torch.stack(info.trajectory).unbind(1)):
        east, north = torch.atan2(line[:, 1], line[:, 0]), line[:, 2].clamp(-1, 1).asin()
        east[1:][(east[1:] - east[:-1]).abs() > torch.pi] = torch.nan
        axis.plot(east, north, color=COLOURS[0 if i == 0 else i + 1], lw=0.9)
    axis.set_title("globe: reverse paths, 600 ends red, data's density grey")
    axis.set_xticklabels([])
    axis.set_yticklabels([])
    means = un.Rotations.from_quaternions(torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0.5, -0.5]], dtype=torch.float64))
    poses = un.oracles.heat_mixture(turns, shares, means, variances)
    x, _ = un.sample(poses, n=1500, steps=48, seed=4, dtype=torch.float64)
    bars = figure.add_subplot(1, 2, 2)
    for mean, share, v, colour in zip(means, shares, variances, COLOURS, strict=False):
        angle = ((((mean.T @ x).diagonal(dim1=1, dim2=2).sum(1) - 1) / 2).clamp(-1, 1)).acos()
        bars.hist(angle.numpy(), torch.linspace(0, torch.pi, 61).numpy(), density=True, color=colour, alpha=0.5, lw=0)
        w = torch.linspace(1e-3, torch.pi - 1e-3, 300, dtype=torch.float64)
        spun = mean @ un.Rotations.from_quaternions(torch.stack([(w / 2).cos(), 0 * w, 0 * w, (w / 2).sin()], 1))
        own = turns.law(mean.expand(len(w), 3, 3), v.double().expand(len(w))).log_prob(spun).exp()
        bars.plot(w, share * own * (1 - w.cos()) / torch.pi, color=colour, lw=1.2)
    bars.set_title("rotations: angle from each of two poses, 1,500 ends")
    bars.set_xticks([0, torch.pi / 2, torch.pi], ["0", "π/2", "π"])
    return figure


@picture
def finite_speed() -> Figure:
    """Straight pieces: the Kac process, whose law has atoms at both ends, and the zig-zag, which forgets into N(0, 1)."""
    figure = sheet(5.4)
    kac, zigzag = un.Kac((1,), speed=3.0, rate=3.0), un.ZigZag((1,), duration=4.0)
    weights, means, stds = torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.3], [0.2]])
    truths = [un.oracles.KacMixture(kac, weights, means, stds), un.oracles.FlipGrid(zigzag, weights, means, stds)]
    grid, far = times(80), 3.6
    y = torch.linspace(-far, far, 241, dtype=torch.float64).unsqueeze(1)
    middles = []
    for (up, law, shares, down), oracle in zip(panels(figure, 2), truths, strict=True):
        middles.append(law)
        flights_and_ends(up, shares, down, oracle.ending_exactly(), y, grid)
        for axis in (up, law, down, shares):
            axis.set_ylim(-far, far)
        for axis in (up, law, down):
            time_axis(axis)
    start, both = torch.zeros_like(y), [torch.stack([y, torch.full_like(y, v)], 1) for v in (-3.0, 3.0)]
    exact = torch.stack([sum(kac.marginal(start, t).coordinates(z)[0].exp() for z in both)[:, 0] for t in grid[1:]])
    shown = exact / exact.amax(1, keepdim=True)
    heat(middles[0], torch.cat([0 * shown[:1], shown]), -far, far, 1.0)
    for v in (-3.0, 3.0):
        middles[0].scatter(grid, v * grid, s=12 * (-3 * grid).exp(), color=COLOURS[1], lw=0)
    middles[0].set_title(r"$q(x_t \mid x_0 = 0)$ over its peak, atoms red")
    rightwards = torch.stack([y, torch.ones_like(y)], 1)
    share = torch.stack([(-truths[1](rightwards, t).value[:, 0]).sigmoid() for t in grid])
    heat(middles[1], share, -far, far, 1.0)
    middles[1].set_title(r"share with $v = 1$ of those at $x$")
    return figure


def flights_and_ends(up: Axes, shares: Axes, down: Axes, oracle, y: Tensor, grid: Tensor) -> None:
    process, fine, far = oracle.process, times(200), float(y.max())
    both = [torch.stack([y, torch.full_like(y, v)], 1) for v in (-process.speed, process.speed)]
    marginal = torch.stack([sum(oracle.log_marginal(z, t).exp() for z in both) for t in grid])
    flights = process.flights(oracle.draw(un.NoiseSource(0, 8)), un.NoiseSource(1, 8))
    forward = torch.stack([process.at(flights, t.expand(8))[:, 0, 0] for t in fine])
    _, info = un.sample(oracle, 8, 200, seed=2, trajectory=True)
    reverse = torch.stack([z.flatten(1)[:, 0] for z in info.trajectory]).flip(0)
    name = type(process).__name__
    for axis, path, title in ((up, forward, f"{name}: forward paths"), (down, reverse, "reverse paths, exact ratios")):
        heat(axis, marginal / marginal.amax(1, keepdim=True), -far, far, 3.0, PATHS)
        lines(axis, fine, path)
        axis.set_title(title)
    density_ends(shares, y.squeeze(-1), oracle.log_prob(y).exp(), un.sample(oracle, 2000, seed=3)[0].squeeze(-1))
    for axis in (up, law, down, shares):
        axis.set_ylim(-far, far)


@picture
def simplex() -> Figure:
    """One share of two: paths of the Wright-Fisher diffusion, and where the reverse ends."""
    figure = sheet(2.9)
    up, law, shares, down = panels(figure)[0]
    process = un.WrightFisher(2)
    points, ages = torch.tensor([[0.15, 0.85], [0.7, 0.3]]), torch.tensor([0.05, 0.03])
    oracle = un.oracles.simplex_mixture(process, torch.tensor([0.5, 0.5]), points, ages)
    fine, grid = times(120), times(40)
    x = process.space.nodes(60)[0]
    marginal = torch.stack([oracle.log_marginal(x, t).exp() for t in grid])
    for axis, path, title in (
        (up, noising(process, oracle.draw(un.NoiseSource(0, 6)), fine, 1), "forward paths"),
        (down, denoising(oracle, 6, fine, 2), "reverse paths, exact denoiser"),
    ):
        heat(axis, marginal / marginal.amax(1, keepdim=True), 0.0, 1.0, 3.0, PATHS)
        lines(axis, fine, torch.stack(path)[..., 0])
        axis.set_title(title)
    start = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(len(x), 2)
    exact = torch.stack([process.law(start, process.tau(t, x)).log_prob(x).exp() for t in grid])
    heat(law, exact / exact.amax(1, keepdim=True), 0.0, 1.0, 1.0)
    law.set_title(r"$q(x_t \mid x_0 = 1)$ over its peak")
    drawn = denoising(oracle, 2000, times(64), 3)[0][:, 0]
    density_ends(shares, x[:, 0], oracle.log_prob(x).exp(), drawn)
    for axis in (up, law, down, shares):
        axis.set_ylim(0, 1)
    for axis in (up, law, down):
        time_axis(axis)
    return figure


@picture
def orthant() -> Figure:
    """One positive number: paths of Cox-Ingersoll-Ross noise, and where the reverse ends."""
    figure = sheet(2.9)
    up, law, shares, down = panels(figure)[0]
    process, most = un.CoxIngersollRoss((), 1.5, 1.0), 6.0
    points, ages = torch.tensor([0.3, 2.5]), torch.tensor([0.1, 0.05])
    oracle = un.oracles.orthant_mixture(process, torch.tensor([0.5, 0.5]), points, ages)
    fine, grid = times(120), times(40)
    x = (torch.arange(60, dtype=torch.float64) + 0.5) * most / 60
    marginal = torch.stack([oracle.log_marginal(x, t).exp() for t in grid])
    for axis, path, title in (
        (up, noising(process, oracle.draw(un.NoiseSource(0, 6)), fine, 1), "forward paths"),
        (down, denoising(oracle, 6, fine, 2), "reverse paths, exact denoiser"),
    ):
        heat(axis, marginal / marginal.amax(1, keepdim=True), 0.0, most, 3.0, PATHS)
        lines(axis, fine, torch.stack(path))
        axis.set_title(title)
    start = torch.full((len(x),), 2.0, dtype=torch.float64)
    exact = torch.stack([process.law(start, process.tau(t, x)).log_prob(x).exp() for t in grid])
    heat(law, exact / exact.amax(1, keepdim=True), 0.0, most, 1.0)
    law.set_title(r"$q(x_t \mid x_0 = 2)$ over its peak")
    drawn = denoising(oracle, 2000, times(128), 3)[0]
    density_ends(shares, x, oracle.log_prob(x).exp(), drawn)
    for axis in (up, law, down, shares):
        axis.set_ylim(0, most)
    for axis in (up, law, down):
        time_axis(axis)
    return figure


def lines(axis: Axes, grid: Tensor, values: Tensor) -> None:
    for i, line in enumerate(values.T):
        axis.plot(grid, line, lw=0.8, color=COLOURS[i % len(COLOURS)])


def density_ends(axis: Axes, y: Tensor, density: Tensor, drawn: Tensor) -> None:
    """The data's density as an area, and a histogram of where the reverse process ended."""
    axis.fill_betweenx(y, density, color="0.8", lw=0)
    share, edges = torch.histogram(drawn, 40, range=(float(y[0]), float(y[-1])), density=True)
    axis.plot(share, (edges[1:] + edges[:-1]) / 2, color=COLOURS[1], lw=1)
    bare(axis)


@picture
def freedom() -> Figure:
    """Reverse paths in the plane from one point by four processes, and the ends of others."""
    means = torch.tensor([[-1.5, -0.4], [1.5, 0.6], [0.2, 1.6]]).double()
    oracle = un.oracles.mixture(
        un.Gaussian((2,), un.schedules.LinearBeta()),
        torch.tensor([0.4, 0.4, 0.2]),
        means,
        0.06 * torch.eye(2).repeat(3, 1, 1),
    )
    more, turn = un.samplers.Reversible(1.0), un.samplers.Rotation(10.0)
    motions = [("flow: less", un.samplers.Reversible(-1.0)), ("reverse process", None), ("Langevin: more", more)]
    motions += [("flow, turning", un.samplers.Reversible(-1.0) + turn)]
    figure = sheet(2.5)
    for i, (name, stir) in enumerate(motions):
        axis, sampler = figure.add_subplot(1, 4, i + 1), un.samplers.FromGenerator(stir=stir)
        last, _ = un.sample(oracle, n=400, steps=250, sampler=sampler, seed=1, dtype=torch.float64)
        axis.scatter(*last.T, s=1.5, color=COLOURS[0], alpha=0.5, linewidths=0)
        start = torch.tensor([[0.3, -0.8]]).double()
        _, info = un.sample(oracle, x=start, steps=250, sampler=sampler, seed=4, dtype=torch.float64, trajectory=True)
        path = torch.stack(info.trajectory)
        axis.plot(*path[:, 0].T, color=COLOURS[1], linewidth=0.8)
        axis.scatter(*start.T, s=14, color="black", zorder=3)
        axis.set(xlim=(-2.9, 2.9), ylim=(-2.9, 2.9), xticks=[], yticks=[], title=name, aspect="equal")
    return figure


@picture
def superposition() -> Figure:
    """Reverse paths on one marginal path: by the diffusion, by both, and by jumps alone."""
    process = un.Superposition((1,), un.schedules.LinearBeta())
    means, variances = torch.tensor([[-1.6], [1.1]]), torch.tensor([0.04, 0.12])
    oracle = un.oracles.round_mixture(process, torch.tensor([0.4, 0.6]), means, variances)
    y, figure = torch.linspace(-3.2, 3.2, 200, dtype=torch.float64).unsqueeze(1), sheet(2.5)
    grid = times(60)
    law = torch.stack([oracle.log_marginal(y, max(float(t), 1e-3)).exp() for t in grid], 1)
    for i, (weight, name) in enumerate([(1.0, "diffusion, w = 1"), (0.5, "both, w = ½"), (0.0, "jumps, w = 0")]):
        axis, mixed = figure.add_subplot(1, 3, i + 1), oracle.predicting(process=process.mixed(weight))
        axis.imshow(law, extent=(0, 1, -3.2, 3.2), origin="lower", aspect="auto", cmap=PATHS, norm=PowerNorm(0.5, 0, 0.9))
        _, info = un.sample(mixed, n=6, steps=400, seed=7, dtype=torch.float64, trajectory=True)
        path = torch.stack(info.trajectory)[..., 0]
        for k in range(6):
            axis.plot(info.times, path[:, k], color=COLOURS[k], linewidth=0.7)
        axis.set(ylim=(-3.2, 3.2), title=name)
        time_axis(axis)
    return figure


@picture
def chains() -> Figure:
    """Cumulative kernels of the usual chains by matrices, and how T-step bounds approach that of continuous time."""
    figure = sheet(4.3)
    left, right = figure.subfigures(1, 2, width_ratios=[1.35, 1])
    size, count = 12, 16
    betas = torch.linspace(0.02, 0.5, count, dtype=torch.float64)
    built = {
        "uniform": un.d3pm.uniform(size, betas),
        "absorbing": un.d3pm.absorbing(size - 1, [1 / (count - i) for i in range(count)]),
        "gaussian": un.d3pm.gaussian(size, betas / 8),
        "banded": un.d3pm.banded(size, 2 * betas, 2),
    }
    shown = (1, 4, 8, count)
    axes = left.subplots(len(built), len(shown))
    for line, (name, steps) in zip(axes, built.items(), strict=True):
        chain = un.MatrixChain(steps, (), size - 1 if name == "absorbing" else None)
        states = chain.state_space.states()
        for axis, i in zip(line, shown, strict=True):
            kernel = chain.transition(states, 0.0, i / count).probs.T
            axis.imshow(kernel, cmap=LAW, norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.spines[:].set_visible(True)
            if name == "uniform":
                axis.set_title(f"$Q_{{{i}|0}}$", fontsize=9)
        line[0].set_ylabel(name, fontsize=8.5)
    axis = right.subplots()
    lengths = [4, 8, 16, 32, 64]
    law = torch.arange(1, 10, dtype=torch.float64) / 45
    for colour, process in zip(COLOURS, (un.Masking(3, (2,)), un.Uniform(3, (2,)), un.BirthDeath(2, (2,))), strict=False):
        oracle = un.oracles.table(process, law)
        x = process.space.states()
        limit = un.bound(oracle, x, exact=True).total
        gaps = []
        for length in lengths:
            chain = oracle.predicting(process=un.Chain(process, length))
            gaps.append(float((law * (un.bound(chain, x, exact=True).total - limit)).sum()))
        axis.loglog(lengths, gaps, "o-", color=colour, ms=4, label=type(process).__name__)
    axis.loglog(lengths, [5e-4 * 8 / length for length in lengths], ":", color="0.4", label="slope 1/T")
    axis.set_xticks(lengths, [str(length) for length in lengths])
    axis.minorticks_off()
    axis.set_xlabel("steps T of Chain(process, T)")
    axis.set_title("exact T-step bound minus that of\ncontinuous time, nats")
    axis.legend(frameon=False, fontsize=8.5)
    return figure


@picture
def products() -> Figure:
    """A number and a category: noised together, denoised together, and the number alone with the category observed."""
    figure = sheet(3.0)
    together, reverse, shares, given = figure.subplots(1, 4, gridspec_kw={"width_ratios": [3, 3, 0.7, 3]})
    process = un.Product(y=un.Gaussian((1,)), c=un.Uniform(3, (1,)))
    means = torch.tensor([[-1.7], [0.2], [1.8]], dtype=torch.float64)
    variance = torch.full((3, 1, 1), 0.06, dtype=torch.float64)
    oracle = un.oracles.conditional_gaussian(process, torch.tensor([0.3, 0.3, 0.4]), means, variance)
    grid, far = times(250, 1e-3), 3.2
    x0 = oracle.draw(un.NoiseSource(4, 10))
    coloured(together, grid, noising(process, x0, grid, 5))
    together.set_title("forward, both leaves")
    coloured(reverse, grid, denoising(oracle, 10, grid, 6))
    reverse.set_title("reverse, both leaves")
    for i, name in enumerate(("c = 0", "c = 1", "c = 2")):
        given.plot([], [], color=COLOURS[i], label=name)
    given.legend(frameon=False, fontsize=8.5, loc="lower left", handlelength=1, labelspacing=0.2)
    path = observed(oracle, 2000, grid, 7)
    coloured(given, grid, [{"y": x["y"][:10], "c": x["c"][:10]} for x in path])
    given.set_title("y alone, c = 2 observed at time 0")
    y = torch.linspace(-far, far, 161, dtype=torch.float64)
    density = torch.distributions.Normal(means[2], variance[2, 0].sqrt()).log_prob(y).exp()
    density_ends(shares, y, density, path[0]["y"].squeeze(-1))
    for axis in (together, reverse, given, shares):
        axis.set_ylim(-far, far)
    for axis in (together, reverse, given):
        time_axis(axis)
        axis.set_ylabel("y", rotation=0, labelpad=2)
    return figure


def observed(oracle: un.oracles.Oracle, count: int, grid: Tensor, seed: int) -> list[dict]:
    """Reverse paths of the number, while the category stands at time 0."""
    noise, c = un.NoiseSource(seed, count), torch.full((count, 1), 2)
    path = [{"y": oracle.process.leaves["y"].prior(count, torch.float64).draw(noise.at("prior")), "c": c}]
    for i in range(len(grid) - 1, 0, -1):
        prediction = oracle(path[-1], {"y": grid[i], "c": 0.0})
        path.append({"y": prediction.leaves["y"].step(grid[i - 1]).draw(noise.at("down", i)), "c": c})
    return path[::-1]


def coloured(axis: Axes, grid: Tensor, path: list[dict]) -> None:
    """The numbers as lines, in the colour that the category has at the time."""
    y = torch.stack([x["y"] for x in path]).squeeze(-1)
    c = torch.stack([x["c"] for x in path]).squeeze(-1)
    for k in range(y.shape[1]):
        points = torch.stack([grid, y[:, k]], 1)
        pieces = torch.stack([points[:-1], points[1:]], 1)
        axis.add_collection(LineCollection(pieces, colors=[COLOURS[i] for i in c[:-1, k]], linewidths=0.9))


@picture
def schedules() -> Figure:
    figure = sheet(5.4)
    axes = figure.subplots(3, 4, sharex=True).flatten()
    built = {
        "Linear": un.schedules.Linear(),
        "Cosine": un.schedules.Cosine(),
        "CosineOffset(0.1)": un.schedules.CosineOffset(0.1),
        "Polynomial(2)": un.schedules.Polynomial(2),
        "LinearBeta": un.schedules.LinearBeta(),
        "SubVP": un.schedules.SubVP(),
        "Sigmoid": un.schedules.Sigmoid(),
        "LogSNRLinear": un.schedules.LogSNRLinear(),
        "Learned, untrained": un.schedules.Learned(),
        "VE": un.schedules.VE(),
        "EDM": un.schedules.EDM(),
    }
    t = times(200)
    for axis, (name, schedule) in zip(axes, built.items(), strict=False):
        alpha, sigma = schedule.alpha(t).detach(), schedule.sigma(t).detach()
        most = max(1.0, float(sigma.max()))
        axis.plot(t, alpha, color=COLOURS[0], lw=1.6, label="α")
        axis.plot(t, sigma / most, color=COLOURS[1], lw=1.6, label="σ" if most == 1 else f"σ / {most:g}")
        axis.set_title(name)
        axis.set_ylim(-0.03, 1.06)
        axis.set_yticks([0, 1])
        axis.legend(frameon=False, fontsize=8, handlelength=1.2, loc="best", borderpad=0)
    last = axes[-1]
    inner = times(200, 2e-3)[:-1]
    for i, name in enumerate(("Linear", "Cosine", "LinearBeta", "LogSNRLinear", "EDM")):
        last.plot(inner, built[name].log_snr(inner), color=COLOURS[i], lw=1.3, label=name)
    last.set_title("log-SNR")
    last.set_ylim(-23, 14)
    last.legend(frameon=False, fontsize=7, handlelength=1, labelspacing=0.1, borderpad=0, loc="lower left")
    for axis in axes[8:]:
        time_axis(axis)
    return figure


@picture
def energy() -> Figure:
    """log q_t of a mixture in the plane, and the score."""
    figure = sheet(2.6)
    axes = figure.subplots(1, 4, sharey=True)
    process = un.Gaussian((2,), un.schedules.Linear())
    means = torch.tensor([[-1.3, -0.8], [1.2, -0.6], [0.1, 1.4]], dtype=torch.float64)
    spread = torch.stack([torch.diag(torch.tensor(v)) for v in ([0.10, 0.25], [0.25, 0.10], [0.12, 0.12])])
    oracle = un.oracles.mixture(process, torch.tensor([0.35, 0.35, 0.3]), means, spread, un.Score)
    line, few = (torch.linspace(-2.6, 2.6, n, dtype=torch.float64) for n in (81, 12))
    for axis, t in zip(axes, (0.05, 0.3, 0.55, 0.9), strict=True):
        points = torch.cartesian_prod(line, line)
        log_q = oracle.log_marginal(points, t).reshape(81, 81).T
        axis.contourf(line, line, log_q.clamp_min(float(log_q.max()) - 9), 14, cmap=LAW)
        at = torch.cartesian_prod(few, few)
        score = oracle(at, t).value
        length = score.norm(dim=1, keepdim=True)
        arrow = score / length * length.clamp_max(8).sqrt()  # directions, with lengths that can be seen
        axis.quiver(*at.T, *arrow.T, color=COLOURS[1], angles="xy", width=0.006, scale=26)
        axis.set_title(f"t = {t:g}")
        axis.set_aspect("equal")
        axis.set_xticks([-2, 0, 2])
        axis.set_yticks([-2, 0, 2])
    return figure


@picture
def correlated() -> Figure:
    """The same image and the same numbers z: white noise z above, coloured noise L z below."""
    figure = sheet(3.9)
    side = 48
    white = un.Gaussian((side, side), un.schedules.Cosine())
    spectrum = un.Stationary((side, side), lambda f: (f + 1 / side) ** -2)
    coloured = un.Gaussian((side, side), un.schedules.Cosine(), covariance=spectrum)
    y, x = torch.meshgrid(*[torch.linspace(-1, 1, side, dtype=torch.float64)] * 2, indexing="ij")
    inside = ((x + 0.25) ** 2 + (y + 0.2) ** 2 < 0.3) | ((x - 0.45).abs() + (y - 0.4).abs() < 0.4)
    image = torch.where(inside, 1.0, -0.6).double().unsqueeze(0)
    shown = (0.0, 0.25, 0.5, 0.75, 1.0)
    axes = figure.subplots(2, len(shown))
    for line, process, name in ((axes[0], white, "independent"), (axes[1], coloured, "Stationary")):
        for axis, t in zip(line, shown, strict=True):
            noised = process.marginal(image, t).draw(un.NoiseSource(3, 1))[0]
            axis.imshow(noised, cmap="Greys_r", vmin=-2.2, vmax=2.2, interpolation="nearest")
            axis.set_xticks([])
            axis.set_yticks([])
            axis.set_title(f"t = {t:g}" if process is white else "")
        line[0].set_ylabel(name)
    return figure


@picture
def orders() -> Figure:
    """Errors of every sampler with an order, computed; the slope of a line is the order."""
    figure = sheet(9.5)
    draw_orders([(case, case.points()) for case in cases()], figure)
    return figure


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    FOLDER.mkdir(exist_ok=True)
    with plt.rc_context(STYLE):
        for name in names or PICTURES:
            save(name, PICTURES[name]())


if __name__ == "__main__":
    main(sys.argv[1:])
