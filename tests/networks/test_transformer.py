"""Facts of the sequence transformer: positions, MASK, time, causality, the features/head split."""

import pytest
import torch

import unnoise as un
from unnoise import networks
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig
from unnoise.networks.blocks import Neighbours, rotate, rotations

SIZE, LENGTH, WIDTH = 5, 9, 32


def network(**options):
    """A tiny one whose outputs are not 0."""
    options = {"size": SIZE, "width": WIDTH, "layers": 2, "heads": 4, **options}
    made = SequenceTransformer(SequenceTransformerConfig(**options))
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    return made.requires_grad_(False)


def tokens(rows=4, length=LENGTH):
    return torch.randint(SIZE + 1, (rows, length))  # MASK among them


T = torch.linspace(0.1, 0.9, 4)


def test_rotation_knows_differences_only():
    q, k = torch.randn(8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    by = tuple(part.double() for part in rotations(20, 8, torch.device("cpu")))
    product = rotate(q.expand(20, 8), by) @ rotate(k.expand(20, 8), by).T
    for shift in (1, 7):
        torch.testing.assert_close(product[:-shift, :-shift], product[shift:, shift:], atol=1e-5, rtol=0.0)
    assert float((product[0] - product[1]).abs().max()) > 0.1
    torch.testing.assert_close(product[3, 3], q @ k, atol=1e-5, rtol=0.0)


def test_a_block_at_later_positions_says_the_same():
    """Positions 3, 4, ... in place of 0, 1, ... change nothing; positions that are twice as far apart do."""
    block, h = network().blocks[0], torch.randn(4, LENGTH, WIDTH)
    c = torch.randn(4, 1, WIDTH)
    cos, sin = rotations(2 * LENGTH, WIDTH // 4, h.device)
    first, later, wider = (
        block(h, c, by=(cos[at], sin[at])) for at in (slice(LENGTH), slice(3, LENGTH + 3), slice(0, None, 2))
    )
    torch.testing.assert_close(first, later, atol=1e-4, rtol=1e-4)
    assert float((first - wider).abs().max()) > 1e-2


def test_rotation_alone_cannot_tell_positions_where_all_is_masked():
    masked, x = torch.full((1, LENGTH), SIZE), tokens()
    made = network(reach=0)  # a sum over neighbours feels the ends
    alike = made(masked, T[:1])
    torch.testing.assert_close(alike, alike[:, :1].expand_as(alike))
    placed = network(length=LENGTH)(masked, T[:1])
    assert float((placed - placed[:, :1]).abs().max()) > 0.1
    assert float((made(x.flip(1), T).flip(1) - made(x, T)).abs().max()) > 0.1  # but order matters


@pytest.mark.parametrize("causal", [False, True])
def test_neighbours_are_summed_channel_by_channel(causal):
    layer, x = Neighbours(2, reach=1), torch.randn(3, 5, 2, dtype=torch.float64)
    with torch.no_grad():
        layer.double().weight.copy_(torch.randn(3, 2))
    w, padded = layer.weight, torch.zeros(3, 9, 2, dtype=torch.float64)
    padded[:, 2:7] = x
    back = 2 if causal else 1  # the first neighbour is so far before
    for i in range(5):
        by_hand = sum(w[k] * padded[:, 2 + i - back + k] for k in range(3))
        torch.testing.assert_close(layer(x, causal)[:, i], by_hand)


def test_windows_forget_positions_and_the_default_keeps_them():
    process = un.Masking(size=SIZE, shape=(LENGTH,))
    assert networks.default_network(process, "tiny", windows=True).positions is None
    assert networks.default_network(process, "tiny").positions.shape == (LENGTH, 64)


def test_mask_is_an_input_of_its_own_and_no_output():
    made, x = network(), tokens()
    x[:, 2] = SIZE
    logits = made(x, T)
    assert logits.shape == (4, LENGTH, SIZE)
    x[:, 2] = 0
    assert float((made(x, T) - logits).abs().max()) > 1e-3
    x[:, 2] = SIZE + 1
    with pytest.raises(IndexError):
        made(x, T)


@pytest.mark.parametrize("tied", [False, True])
def test_forward_is_head_of_features(tied):
    made, x = network(tied=tied), tokens()
    h = made.features(x, T)
    assert h.shape == (4, LENGTH, WIDTH)
    torch.testing.assert_close(made.head(h), made(x, T))
    rows = torch.rand(4, LENGTH) < 0.4
    torch.testing.assert_close(made.head(h[rows]), made(x, T)[rows])


def test_tied_logits_are_products_with_the_tokens_own_vectors():
    made = network(tied=True)
    vectors = made.embedding.weight
    torch.testing.assert_close(made.head(vectors), vectors @ vectors[:SIZE].T)
    assert made.out is None


def test_any_shape_is_one_sequence():
    made, x = network(), tokens(length=12)
    torch.testing.assert_close(made(x.reshape(4, 3, 4), T).reshape(4, 12, SIZE), made(x, T))
    assert made.features(x.reshape(4, 3, 4), T).shape == (4, 3, 4, WIDTH)


def test_time_counts_where_it_is_told():
    x = tokens()
    made, timeless = network(), network(time=False)
    assert float((made(x, T) - made(x, T.flip(0))).abs().max()) > 1e-3
    assert torch.equal(timeless(x, T), timeless(x, T.flip(0)))
    assert torch.equal(timeless(x), timeless(x, T))
    with pytest.raises(ValueError, match="t is missing"):
        made(x)


def test_rows_do_not_meet():
    made, x = network(), tokens()
    for i in range(4):
        torch.testing.assert_close(made(x, T)[i], made(x[i : i + 1], T[i : i + 1])[0])


def test_previous_estimate():
    made, x = network(self_condition=True), tokens()
    estimate = torch.rand(4, LENGTH, SIZE).softmax(-1)
    torch.testing.assert_close(made(x, T), made(x, T, previous=torch.zeros_like(estimate)))
    assert float((made(x, T, previous=estimate) - made(x, T)).abs().max()) > 1e-3
    with pytest.raises(ValueError, match="self_condition=True"):
        network()(x, T, previous=estimate)
    made.requires_grad_(True)
    made(x, T).sum().backward()
    assert made.previous.weight.grad is not None  # in the graph even where absent: data-parallel wrappers ask for that


def test_too_long_a_sequence_is_refused():
    with pytest.raises(ValueError, match="a sequence of 9 is longer than the 4 positions"):
        network(length=4)(tokens(), T)


# -- the autoregressive judge -----------------------------------------------------------------------------------------


def test_causal_logits_depend_on_what_came_before_alone():
    made, x = network(causal=True), torch.randint(SIZE, (4, LENGTH))
    logits = made(x)
    for k in range(LENGTH):
        other = x.clone()
        other[:, k] = (x[:, k] + 1) % SIZE
        change = (made(other) - logits).abs().amax((0, 2))
        assert bool((change[: k + 1] < 1e-5).all())
        assert k + 1 == LENGTH or float(change[k + 1]) > 1e-4


def test_causal_likelihoods_sum_to_one():
    made = network(causal=True, size=3).double()
    states = torch.cartesian_prod(*[torch.arange(3)] * 4)
    total = made.log_prob(states).double().exp().sum()
    assert abs(float(total) - 1) < 1e-5
    assert float(made.log_prob(states).std()) > 0.1
    with pytest.raises(ValueError, match="causal=True"):
        network(size=3).log_prob(states)
