"""Facts of the U-Net, the perceptron and the time embedding."""

import pytest
import torch

from unnoise.networks import MLP, MLPConfig, SmallUNet, SmallUNetConfig, TimeEmbedding
from unnoise.networks.compiled import uncompiled
from unnoise.networks.embedding import by_indicators, fourier_of_time, fourier_of_value


def stirred(network):
    with torch.no_grad():
        for p in network.parameters():
            p.add_(0.1 * torch.randn(p.shape))
    return network.requires_grad_(False)


def unet(**options):
    return stirred(SmallUNet(SmallUNetConfig(**{"width": 16, "multipliers": (1, 2, 2), "blocks": 1, **options})))


T = torch.tensor([0.2, 0.7])


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (7, 5), (3, 9, 6), (1, 4, 4)])
def test_any_size(shape):
    out = unet(shape=shape)(torch.randn(2, *shape), T)
    assert out.shape == (2, *shape) and float(out.std()) > 1e-3
    categories = unet(shape=shape, kind="category", size=6, extra=1)
    x = torch.randint(7, (2, *shape))
    logits = categories(x, T)
    assert logits.shape == (2, *shape, 6)
    torch.testing.assert_close(categories.head(categories.features(x, T)), logits)


def test_every_pixel_sees_every_other():
    made, x = unet(shape=(10, 9)), torch.randn(2, 10, 9)
    moved = x.clone()
    moved[0, 0, 0] += 1
    change = (made(moved, T) - made(x, T)).abs()
    assert bool((change[0] > 0).all()) and float(change[1].max()) < 1e-6
    assert float(change[0, 0, 0]) > float(change[0, -1, -1])


def test_colour_channels_have_categories_of_their_own():
    made = unet(shape=(2, 6, 6), kind="category", size=3, extra=1)
    made.inward.weight.zero_()  # the table alone
    x = torch.randint(4, (2, 2, 6, 6))
    assert float((made._stem(x.flip(1), None) - made._stem(x, None)).abs().max()) > 0.1
    assert made.table.num_embeddings == 8


def test_features_lie_at_their_own_pixels():
    made = unet(shape=(2, 7, 5), kind="category", size=3, extra=1)
    x = torch.randint(4, (2, 2, 7, 5))
    h, maps = made.features(x, T), made.spread(made._body(x, T, None))
    assert h.shape == (2, 2, 7, 5, 16) and maps.shape == (2, 32, 7, 5)
    for channel, row, column in ((0, 1, 4), (1, 6, 2)):
        torch.testing.assert_close(h[:, channel, row, column], maps[:, 16 * channel : 16 * (channel + 1), row, column])


def test_categories_enter_in_their_order():
    """The scaled numbers: the table aside, a middle category is half way between the ends, and MASK is at 0."""
    made = unet(shape=(4, 4), kind="category", size=5, extra=1)
    made.table.weight.zero_()
    bottom, middle, top, mask = (made._stem(torch.full((1, 4, 4), k), None) for k in (0, 2, 4, 5))
    torch.testing.assert_close(2 * middle, bottom + top)
    torch.testing.assert_close(mask, middle)
    assert float((top - bottom).abs().max()) > 0.1


def test_time_is_seen():
    x = torch.randn(2, 8, 8)
    for made in (unet(shape=(8, 8)), stirred(MLP(MLPConfig(shape=(8, 8), width=32, layers=2)))):
        assert float((made(x, T) - made(x, T.flip(0))).abs().max()) > 1e-3


def test_previous_estimates():
    x, estimate = torch.randn(2, 6, 6), torch.randn(2, 6, 6)
    made = [unet(shape=(6, 6), self_condition=True), stirred(MLP(MLPConfig(shape=(6, 6), width=32, self_condition=True)))]
    for network in made:
        assert torch.equal(network(x, T), network(x, T, previous=torch.zeros_like(x)))
        assert float((network(x, T, previous=estimate) - network(x, T)).abs().max()) > 1e-3
    for network in (unet(shape=(6, 6)), MLP(MLPConfig(shape=(6, 6)))):
        with pytest.raises(ValueError, match="self_condition=True"):
            network(x, T, previous=estimate)


def test_entries_are_a_last_axis():
    counts = torch.randint(5, (2, 6, 5))
    for network in (
        unet(shape=(6, 5), kind="count", entries=2),
        stirred(MLP(MLPConfig(shape=(6, 5), kind="count", entries=2, width=32))),
    ):
        assert network(counts, T).shape == (2, 6, 5, 2)


def test_unet_of_wrong_kind_is_refused():
    with pytest.raises(ValueError, match="size = 0 does not fit kind = 'category'"):
        SmallUNetConfig(shape=(4, 4), kind="category")
    with pytest.raises(ValueError, match=r"shape = \[4\]: pass \[height, width\]"):
        SmallUNetConfig(shape=(4,))
    with pytest.raises(ValueError, match="for categories"):
        unet(shape=(4, 4)).features(torch.randn(2, 4, 4), T)
    with pytest.raises(ValueError, match="choose 'number', 'count' or 'angle'"):
        MLPConfig(shape=(4,), kind="letter")


def test_times_of_any_shape():
    embedding = TimeEmbedding(16)
    t = torch.rand(3, 4)
    c = embedding(t)
    assert c.shape == (3, 4, 16)
    torch.testing.assert_close(c[1], embedding(t[1]))
    low, high = embedding(torch.tensor([0.0])), embedding(torch.tensor([1e-3]))
    assert float((low - high).detach().abs().max()) > 1e-2  # near 0 times are told apart
    half = embedding.bfloat16()(t)
    assert half.dtype is torch.bfloat16 and float((half.detach() - c.detach()).abs().max()) < 0.05


def test_waves():
    waves = fourier_of_time(torch.tensor([0.5], dtype=torch.float64), 3)
    speeds = torch.tensor([1.0, 1000**0.5, 1000.0], dtype=torch.float64)
    torch.testing.assert_close(waves[0], torch.cat([(speeds / 2).cos(), (speeds / 2).sin()]))
    x = torch.tensor([0.3])
    expected = torch.tensor([[0.3, *torch.tensor([0.3, 0.6]).cos().tolist(), *torch.tensor([0.3, 0.6]).sin().tolist()]])
    torch.testing.assert_close(fourier_of_value(x, 2), expected)


def test_what_is_learned_of_a_level_is_learned_of_its_neighbours():
    """One step towards level 100 of 256: near levels gain more than far ones, which a linear layer would treat alike."""
    torch.manual_seed(0)
    made = SmallUNet(SmallUNetConfig(shape=(4, 4), kind="category", size=256, extra=1, width=16, multipliers=(1,), blocks=1))
    h = torch.randn(1, 16)
    made.head(h).log_softmax(-1)[0, 100].backward()
    with torch.no_grad():
        for p in (made.smooth, made.out.weight):
            p += 0.01 * p.grad
        gained = made.head(h)[0]
    assert int(gained.argmax()) == 100
    assert float(gained[95:106].min()) > float(torch.cat([gained[:80], gained[121:]]).max()) + 1e-3


def test_noise_of_a_part_of_a_bin_is_seen_in_bfloat16():
    x, width = torch.full((2, 8, 8), -1 + 1 / 256), 2 / 256
    for bins, seen in ((0.0, False), (width, True)):
        torch.manual_seed(0)
        made = unet(shape=(8, 8), bin=bins)
        with torch.autocast("cpu", torch.bfloat16):
            change = (made(x + width / 6, T) - made(x, T)).abs().max()
        assert (float(change) > 0.01) == seen


def test_a_table_by_indicators_is_the_table():
    table, index = torch.nn.Embedding(5, 3, dtype=torch.float64), torch.randint(5, (40, 2))
    weight = torch.randn(40, 2, 3, dtype=torch.float64)
    found = []
    for rows in (table(index), by_indicators(table, index)):
        (gradient,) = torch.autograd.grad((rows * weight).sum(), table.weight)
        found.append((rows.detach(), gradient))
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_other_sizes_are_not_compiled_for():
    class Own(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    compiled, network = [], Own(3, 2)

    def backend(graph, inputs):
        compiled.append(inputs)
        return graph.forward

    network.compile(backend=backend)
    network(torch.ones(4, 3))
    with uncompiled(network):
        expected = network(torch.ones(5, 3))
    assert len(compiled) == 1
    torch.testing.assert_close(network(torch.ones(5, 3)), expected)
    assert len(compiled) == 2
    with uncompiled(torch.nn.Linear(3, 2)):
        assert network(torch.ones(5, 3)).shape == (5, 2)
