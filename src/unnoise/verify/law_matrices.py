"""Laws on finite spaces as matrices over all states, through nothing but `log_prob`; the times they are looked at."""

from collections.abc import Callable

from torch import Tensor

from unnoise.laws import Law
from unnoise.processes import MatrixChain, Process
from unnoise.shapes import Tree
from unnoise.tree import batch_size, map_leaves

# (r, s, t): the middle of time, and within 1e-4 of both ends
TRIPLES = ((0.1, 0.35, 0.8), (0.0, 3e-5, 1e-4), (1 - 1e-4, 1 - 5e-5, 1 - 1e-5))
TIGHT, FLOAT32 = 1e-10, 1e-5


def dense(law_of: Callable[[Tree], Law], sources: Tree, targets: Tree) -> Tensor:
    """P[y, x]: the probability of each target under the law of each source."""
    n, m = batch_size(sources), batch_size(targets)
    repeated = map_leaves(lambda x: x.repeat_interleave(m, 0), sources)
    tiled = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), targets)
    return law_of(repeated).log_prob(tiled).exp().reshape(n, m).T


def marginal_matrix(process: Process, data: Tree, points: Tree, t) -> Tensor:
    return dense(lambda x: process.marginal(x, t), data, points)


def transition_matrix(process: Process, points: Tree, s, t) -> Tensor:
    return dense(lambda x: process.transition(x, s, t), points, points)


def triples_of(process: Process) -> tuple[tuple[float, float, float], ...]:
    """The middle and both ends of time; of a chain by matrices, of its grid."""
    return TRIPLES if process.has_generator else grid_triples(process)  # type: ignore[arg-type]


def grid_triples(chain: MatrixChain) -> tuple[tuple[float, float, float], ...]:
    """The middle and both ends of a chain's grid."""
    grid, last = chain.grid.tolist(), chain.steps
    return ((grid[1], grid[last // 2], grid[last - 2]), (grid[0], grid[1], grid[2]), (grid[1], grid[last - 1], grid[last]))
