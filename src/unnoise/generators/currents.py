"""The current of a process, split into the part that changes its law and the part that goes round.

On a graph a current j_e flows along each edge e = (x, y), mass per unit time, counted positive from x to y, and

    dq/dt = -div j,      (div j)(x) = sum of j_e out of x, less what comes in.

With a conductance c_e > 0 of every edge there is one split

    j = j_grad + j_round,      j_grad = -c_e [phi(y) - phi(x)],      div j_round = 0,                  (Helmholtz, Hodge)

with sum_e j_grad j_round/c_e = 0, since sum_e [phi(y) - phi(x)] j_round = -sum_x phi div j_round.  So j_grad is the current
with that dq/dt for which sum_e j_e^2/c_e is least, and phi solves  L phi = div j  with the graph's Laplacian, by least
squares where some parts of the graph hang together with no others.

Which conductance?  For a law q on the nodes c_e is a mean of q at the edge's ends: the graph's q(x) dx, for which the least
squares are the least kinetic energy, and j/q a velocity.  Without a law all edges are alike.  On a grid of cells of widths h
an edge is a wall: c_e is multiplied by its area and divided by the distance of the two centres.

The probability current of jumps at rates R under a law q is  R(y, x) q(x) - R(x, y) q(y)  (`jump_current`): 0 in detailed
balance, and of a reverse process the negative of the forward one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from unnoise.shapes import Float, Int

MOST = 4096  # nodes of a graph whose Laplacian is written out


@dataclass(frozen=True)
class Graph:
    """Edges [edges, 2], from node to node, with their conductances; `Graph.grid` makes those of a grid."""

    nodes: int
    edges: Int[Tensor, "edges 2"]
    conductance: Float[Tensor, "edges"] | None = None

    def __post_init__(self) -> None:
        if self.edges.ndim != 2 or self.edges.shape[1] != 2 or self.edges.dtype != torch.int64:
            raise ValueError(f"edges have shape {tuple(self.edges.shape)}, {self.edges.dtype}: pass pairs of nodes, int64")
        if len(self.edges) and not 0 <= int(self.edges.min()) <= int(self.edges.max()) < self.nodes:
            raise ValueError(f"an edge has the node {int(self.edges.max())} or {int(self.edges.min())} of {self.nodes}")
        if self.conductance is not None and not bool((self.conductance > 0).all()):
            raise ValueError(f"an edge conducts {float(self.conductance.min()):g}: leave edges out that do not")

    @classmethod
    def grid(
        cls, cells: Sequence[int], widths: Sequence[float] | None = None, periodic: bool | Sequence[bool] = False
    ) -> "Graph":
        """Neighbours of a grid of one or two axes, the last running fastest; an edge for each wall, along axis 0 first."""
        widths = [1.0] * len(cells) if widths is None else widths
        closed = [periodic] * len(cells) if isinstance(periodic, bool) else list(periodic)
        if not len(cells) == len(widths) == len(closed) or len(cells) not in (1, 2):
            raise ValueError(f"cells {list(cells)}, widths {list(widths)}, periodic {closed}: give one or two of each")
        if any(n < (3 if round_it else 1) for n, round_it in zip(cells, closed, strict=True)):
            raise ValueError(f"cells {list(cells)}: at least three around a closed axis, and one along another")
        place, edges, conductance = torch.arange(prod(cells)).reshape(*cells), [], []
        for k, (n, h) in enumerate(zip(cells, widths, strict=True)):
            after = place.roll(-1, k)
            pairs = torch.stack([place, after], -1)
            pairs = pairs if closed[k] else pairs.narrow(k, 0, n - 1)
            edges.append(pairs.reshape(-1, 2))
            conductance.append(torch.full((len(edges[-1]),), prod(widths) / h**2, dtype=torch.float64))
        return cls(prod(cells), torch.cat(edges), torch.cat(conductance))

    def divergence(self, current: Float[Tensor, "edges"]) -> Float[Tensor, "nodes"]:
        """What flows out of each node, less what comes in: -dq/dt."""
        self._check(current)
        out = torch.zeros(self.nodes, dtype=current.dtype).index_add(0, self.edges[:, 0], current)
        return out.index_add(0, self.edges[:, 1], -current)

    def difference(self, potential: Float[Tensor, "nodes"]) -> Float[Tensor, "edges"]:
        """phi(y) - phi(x) along each edge."""
        return potential[self.edges[:, 1]] - potential[self.edges[:, 0]]

    def conducting(self, law: Float[Tensor, "nodes"] | None) -> Float[Tensor, "edges"]:
        """The conductances under a law of the nodes."""
        own = torch.ones(len(self.edges), dtype=torch.float64) if self.conductance is None else self.conductance.double()
        if law is None:
            return own
        if law.shape != (self.nodes,) or not bool((law > 0).all()):
            raise ValueError(
                f"a law of shape {tuple(law.shape)}, the least entry {float(law.min()):g}: pass one positive number for "
                f"each of the {self.nodes} nodes"
            )
        return own * law.double()[self.edges].mean(1)

    def _check(self, current: Tensor) -> None:
        if current.shape != (len(self.edges),):
            raise ValueError(
                f"a current of shape {tuple(current.shape)}: pass one number for each of {len(self.edges)} edges"
            )


@dataclass(frozen=True)
class SplitCurrent:
    """The two parts of a current and the potential of the first."""

    gradient: Float[Tensor, "edges"]
    circulating: Float[Tensor, "edges"]
    potential: Float[Tensor, "nodes"]


def split_current(graph: Graph, current: Float[Tensor, "edges"], law: Float[Tensor, "nodes"] | None = None) -> SplitCurrent:
    """A current as -c grad phi and a part without divergence, orthogonal in sum_e j j'/c."""
    if graph.nodes > MOST:
        raise ValueError(f"a graph of {graph.nodes:,} nodes is too large to be split here (at most {MOST:,}): coarsen it")
    current = current.double()
    source, c = graph.divergence(current), graph.conducting(law)
    a, b = graph.edges.T
    laplacian = torch.zeros(graph.nodes, graph.nodes, dtype=torch.float64)
    for row, column, sign in ((a, a, 1), (b, b, 1), (a, b, -1), (b, a, -1)):
        laplacian.index_put_((row, column), sign * c, accumulate=True)
    first = parts(graph)
    scale = laplacian.diagonal()[first]  # phi = 0 at one node of each part: it is free there
    laplacian[first, first] += torch.where(scale > 0, scale, 1.0)
    potential = torch.cholesky_solve(source.unsqueeze(1), torch.linalg.cholesky(laplacian)).squeeze(1)
    gradient = -c * graph.difference(potential)
    return SplitCurrent(gradient, current - gradient, potential)


def parts(graph: Graph) -> Int[Tensor, "parts"]:
    """The first node of each part of a graph that hangs together."""
    label, (a, b) = torch.arange(graph.nodes), graph.edges.T
    while True:
        least = torch.minimum(label[a], label[b])
        new = label.scatter_reduce(0, a, least, "amin").scatter_reduce(0, b, least, "amin")
        new = new[new]
        if torch.equal(new, label):
            return label.unique()
        label = new


def jump_current(rates: Float[Tensor, "nodes nodes"], law: Float[Tensor, "nodes"]) -> tuple[Graph, Float[Tensor, "edges"]]:
    """The graph of a rate matrix, [to, from], and the current of its jumps under a law."""
    flow = rates * law
    flow = flow - torch.diag(flow.diagonal())
    edges = ((flow + flow.T) > 0).triu(1).nonzero()
    x, y = edges.T
    return Graph(len(law), edges), flow[y, x] - flow[x, y]
