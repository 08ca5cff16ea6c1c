"""Currents split on graphs and grids: orthogonal, exact, and the gradient part carries all of dq/dt."""

import pytest
import torch

import unnoise as un
from unnoise import generators
from unnoise.generators import Graph, currents, jump_current, split_current
from unnoise.generators.kolmogorov import matrix


def graphs():
    g = torch.Generator().manual_seed(0)
    pairs = torch.combinations(torch.arange(9))
    some = pairs[torch.rand(len(pairs), generator=g) < 0.5]
    apart = torch.tensor([[0, 1], [1, 2], [2, 0], [3, 4], [4, 5], [5, 6], [6, 3]])  # two cycles and a node alone
    yield "a graph", Graph(9, some, torch.rand(len(some), generator=g).double() + 0.1)
    yield "in parts", Graph(8, apart)
    yield "a line", Graph.grid([7], [0.3])
    yield "a circle", Graph.grid([7], [0.3], periodic=True)
    yield "a rectangle", Graph.grid([5, 6], [0.5, 0.2])
    yield "a torus", Graph.grid([5, 6], [0.5, 0.2], periodic=True)
    yield "a tube", Graph.grid([5, 6], periodic=[True, False])


GRAPHS = dict(graphs())


def drawn(graph, seed=1):
    g = torch.Generator().manual_seed(seed)
    law = torch.rand(graph.nodes, generator=g, dtype=torch.float64) ** 4 + 1e-4
    return torch.randn(len(graph.edges), generator=g, dtype=torch.float64), law / law.sum()


@pytest.mark.parametrize("name", GRAPHS)
def test_the_two_parts(name):
    graph = GRAPHS[name]
    current, law = drawn(graph)
    for q in (None, law):
        c, split = graph.conducting(q), split_current(graph, current, q)
        size = (current.square() / c).sum()
        assert torch.allclose(split.gradient + split.circulating, current, rtol=0, atol=1e-14)
        assert float(graph.divergence(split.circulating).abs().max()) < 1e-11
        assert abs(float((split.gradient * split.circulating / c).sum() / size)) < 1e-12
        assert torch.allclose(graph.divergence(split.gradient), graph.divergence(current), atol=1e-11)
        loops = len(graph.edges) - graph.nodes + len(currents.parts(graph))
        assert (float(split.circulating.abs().max()) > 1e-3) == (loops > 0)


def test_weights_of_the_law_matter_and_are_seen(monkeypatch):
    """Split under other conductances the parts still add up, and are orthogonal in them alone."""
    graph = GRAPHS["a graph"]
    current, law = drawn(graph)
    c = graph.conducting(law)
    monkeypatch.setattr(Graph, "conducting", lambda self, law: torch.ones(len(self.edges), dtype=torch.float64))
    split = split_current(graph, current, law)
    assert abs(float((split.gradient * split.circulating / c).sum() / (current.square() / c).sum())) > 1e-3


def test_a_gradient_on_a_circle_has_no_constant_part():
    """On a circle the round part is one number, for which sum j/c is that of the current."""
    graph = GRAPHS["a circle"]
    current, law = drawn(graph)
    c, split = graph.conducting(law), split_current(graph, current, law)
    exact = (current / c).sum() / (1 / c).sum()
    assert torch.allclose(split.circulating, exact.expand_as(current), atol=1e-12)


def test_the_gradient_part_carries_all_that_changes_a_law():
    """The reverse process under uniform noise, plain and with a Circulation, which the split takes off again."""
    process = un.Uniform(size=3, shape=(2,))
    probs = torch.rand(9, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    exact = un.oracles.table(process, probs / probs.sum())
    q = exact.log_marginal(process.space.states(), 0.4).exp()
    going_round = un.samplers.Circulation(2.0)

    def local_of(stir):
        return lambda x: un.samplers.stirred(exact(x, torch.full((len(x),), 0.4, dtype=torch.float64)), stir)

    plain, round_too = (matrix(un.Generator(process.space, local_of(stir))) for stir in (None, going_round))
    graph, current = jump_current(plain, q)
    added = jump_current(round_too, q)[1] - current
    split, slope = split_current(graph, current, q), plain @ q
    assert torch.allclose(-graph.divergence(split.gradient), slope, atol=1e-12)
    assert float(slope.abs().max()) > 0.01 < float(added.abs().max())
    assert torch.allclose(split_current(graph, current + added, q).gradient, split.gradient, atol=1e-12)


def test_a_rotation_on_a_grid_is_round():
    """The flux of x -> (-y, x) q through the walls of a grid, which it does not leave."""
    n, h = 24, 0.25
    grid = generators.FokkerPlanck(
        lambda t: un.Generator(un.Euclidean((2,)), lambda x: un.Local(drift=x)), [-3, -3], [3, 3], [n, n]
    )
    q = grid.law_of(lambda x: -0.5 * x.square().sum(1))
    graph = Graph.grid([n, n], [h, h])
    at = grid.points[graph.edges].mean(1)  # the middle of each wall
    density = (-0.5 * at.square().sum(1)).exp()
    along = torch.arange(len(at)) < len(at) // 2  # walls across the first axis
    turning = density * torch.where(along, -at[:, 1], at[:, 0]) * h
    falling = -density * torch.where(along, at[:, 0], at[:, 1]) * h
    for flow, of_gradient in ((turning, 0.0), (falling, 1.0)):
        split = split_current(graph, flow, q)
        c = graph.conducting(q)
        share = (split.gradient.square() / c).sum() / (flow.square() / c).sum()
        assert abs(float(share) - of_gradient) < 2e-3


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Graph(2, torch.tensor([[0, 2]])), "node 2"),
        (lambda: Graph(2, torch.tensor([[0, 1]]), torch.tensor([0.0])), "leave edges out"),
        (lambda: Graph.grid([2], periodic=True), "three around"),
        (lambda: split_current(Graph(2, torch.tensor([[0, 1]])), torch.ones(2)), "one number for each"),
        (
            lambda: split_current(Graph(2, torch.tensor([[0, 1]])), torch.ones(1), torch.tensor([1.0, 0.0])),
            "positive number",
        ),
        (lambda: split_current(Graph.grid([65, 65]), torch.ones(2 * 65 * 64)), "coarsen"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make()
