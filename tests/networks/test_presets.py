"""Every process kind has a network: right shapes, a neutral start, gradients everywhere, JSON and back."""

import json

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import networks
from unnoise.networks import ColumnLeaf, column, default_network, network_for
from unnoise.networks.base import REGISTRY, register
from unnoise.networks.compiled import compile_network

ROWS = 6


def table():
    return un.Product(
        age=un.Gaussian(()),
        money=un.Gaussian((3,), un.schedules.Linear()),
        visits=un.Thinning((2,)),
        arrivals=un.Thinning((1,), immigration=2.0),
        facts=un.Masking(size=[3, 9, 2, 5]),
        job=un.Uniform(size=7),
    )


PROCESSES = {
    "vector": lambda: un.Gaussian((5,)),
    "scalar": lambda: un.Gaussian(()),
    "thin array": lambda: un.Gaussian((3, 2)),
    "grey image": lambda: un.Gaussian((8, 8)),
    "colour image": lambda: un.Gaussian((3, 7, 5)),
    "counts": lambda: un.Thinning((4,)),
    "counts that arrive": lambda: un.Thinning((4,), immigration=1.5),
    "image of counts": lambda: un.Thinning((6, 6), immigration=1.0),
    "text": lambda: un.Masking(size=5, shape=(7,)),
    "noisy text": lambda: un.Uniform(size=5, shape=(7,)),
    "bounded counts": lambda: un.BirthDeath(most=6, shape=(3,)),
    "one category": lambda: un.Uniform(size=4),
    "unlike categories": lambda: un.Masking(size=[2, 6, 3]),
    "unlike noisy categories": lambda: un.Uniform(size=[2, 6, 3]),
    "pixels": lambda: un.Masking(size=4, shape=(8, 8)),
    "colour pixels": lambda: un.Uniform(size=4, shape=(3, 6, 5)),
    "chain": lambda: un.Chain(un.Masking(size=5, shape=(7,)), 8),
    "table": table,
    "nested": lambda: un.Product(a=un.Product(b=un.Gaussian((2,)), c=un.Masking(size=3, shape=(2,))), d=un.Uniform(size=2)),
}
CLASSES = {
    "vector": "MLP",
    "thin array": "MLP",
    "colour image": "SmallUNet",
    "image of counts": "SmallUNet",
    "text": "SequenceTransformer",
    "unlike categories": "ColumnTransformer",
    "one category": "ColumnTransformer",
    "pixels": "SmallUNet",
    "chain": "SequenceTransformer",
    "table": "ColumnTransformer",
}


def data(process, rows=ROWS, seed=0):
    """Any states of the space."""
    generator = torch.Generator().manual_seed(seed)

    def leaf(space):
        if isinstance(space, un.spaces.ProductSpace):
            return {name: leaf(part) for name, part in space.leaves.items()}
        if isinstance(space, un.Euclidean):
            return torch.randn(rows, *space.shape, generator=generator)
        if isinstance(space, un.Counts):
            return torch.randint(4, (rows, *space.shape), generator=generator)
        sizes = torch.as_tensor(space.size if space.sizes is None else space.sizes)
        return (torch.rand(rows, *space.shape, generator=generator) * sizes).long()

    return leaf(process.space)


@pytest.fixture(params=list(PROCESSES))
def name(request):
    return request.param


def denoiser_of(process, **options):
    return un.Denoiser(default_network(process, "tiny", seed=0, **options), process, un.predictions.default_kind(process))


def test_class_follows_the_process():
    chosen = {name: type(default_network(PROCESSES[name](), "tiny")).__name__ for name in CLASSES}
    assert chosen == CLASSES


def test_bound_is_finite_and_one_step_wakes_every_parameter(name):
    process = PROCESSES[name]()
    denoiser, x0 = denoiser_of(process), data(PROCESSES[name]())
    optimizer = torch.optim.SGD(denoiser.parameters(), lr=1e-2)
    for step in range(2):
        bound = un.bound(denoiser, x0, seed=step)
        assert bound.total.shape == (ROWS,) and bool(bound.total.isfinite().all())
        optimizer.zero_grad()
        bound.loss.mean().backward()
        optimizer.step()
    dead = [key for key, p in denoiser.named_parameters() if p.grad is None or not bool((p.grad != 0).any())]
    if name == "one category":  # a lone token attends to itself, whatever its query
        dead = [key for key in dead if not key.endswith(("query_norm.weight", "key_norm.weight"))]
    assert not dead


def test_start_is_neutral(name):
    process = PROCESSES[name]()
    x0 = data(process)
    prediction = denoiser_of(process)(x0, 0.5)

    def check(part):
        if hasattr(part, "leaves"):
            for leaf in part.leaves.values():
                check(leaf)
        elif isinstance(part, un.Posterior):
            law, valid = part.log_theta().exp(), part.process.space.valid()
            sizes = part.process.space.size if valid is None else valid.sum(-1, keepdim=True)
            free = part.process.movable(part.x_t).unsqueeze(-1)
            even = torch.ones_like(law) / sizes if valid is None else valid / sizes
            torch.testing.assert_close(torch.where(free, law, even), even.expand_as(law).float(), check_dtype=False)
        else:
            assert not bool(part.value.any())

    check(prediction)


def test_json_round_trip(name):
    network = default_network(PROCESSES[name](), "tiny", seed=3)
    text = json.dumps(networks.described(network))
    again = networks.build(**json.loads(text), seed=3)
    assert json.dumps(networks.described(again)) == text
    first, second = network.state_dict(), again.state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not any("offset" in key or "group" in key for key in first)


def test_seed_decides_the_weights_and_leaves_torchs_own_alone():
    process, state = PROCESSES["vector"](), torch.random.get_rng_state()
    one, two, other = (default_network(process, "tiny", seed=seed).inward.weight for seed in (1, 1, 2))
    assert torch.equal(one, two) and not torch.equal(one, other)
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize("kind", ["vector", "colour image", "text", "noisy text", "pixels", "table"])
def test_bfloat16_autocast_agrees_with_float32(kind):
    process = PROCESSES[kind]()
    network, x = default_network(process, "tiny", seed=0), data(process)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in network.parameters():  # outputs that are not 0
            p.add_(torch.randn(p.shape, generator=generator) * 0.05)
    t = torch.linspace(0.1, 0.9, ROWS)
    network.requires_grad_(False)
    exact = network(x, t)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(x, t)
    pairs = [(exact[k], rough[k]) for k in exact] if isinstance(exact, dict) else [(exact, rough)]
    for a, b in pairs:
        possible = a > -1e8
        assert torch.equal(possible, b > -1e8)
        a, b = a[possible], b[possible].float()
        assert float(a.std()) > 0.02 or a.numel() < 10
        assert float((a - b).norm() / a.norm()) < 0.05
    double = network(un.tree.map_leaves(lambda v: v.double() if v.is_floating_point() else v, x), t)
    torch.testing.assert_close(double, exact)


def test_samples_come_out_in_the_space():
    for kind in ("vector", "text", "pixels", "unlike categories"):
        process = PROCESSES[kind]()
        x, _ = un.sample(denoiser_of(process), n=3, steps=4, seed=0)
        process.space.check(x)


def test_errors_name_value_and_remedy():
    with pytest.raises(ValueError, match="preset = 'huge': choose from tiny, small, base"):
        default_network(PROCESSES["vector"](), "huge")
    with pytest.raises(ValueError, match="there is no network 'GPT': choose from CloudMLP, ColumnTransformer, MLP"):
        networks.build("GPT", {})
    with pytest.raises(ValueError, match="do not fit the network MLP: .*depth"):
        networks.build("MLP", {"shape": [2], "depth": 3})
    with pytest.raises(ValueError, match="a Linear cannot be described"):
        networks.described(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="3000 coordinates, more than the 2048"):
        default_network(un.Product(a=un.Gaussian((3000,))))
    with pytest.raises(ValueError, match="width = 20 with 4 heads"):
        default_network(PROCESSES["text"](), "tiny", width=20)
    with pytest.raises(ValueError, match="multiple of 16"):
        default_network(PROCESSES["pixels"](), "tiny", width=24)


def test_presets_grow():
    for kind, least in {"vector": 2e6, "text": 2e7, "pixels": 5e6, "table": 3e6}.items():
        process = PROCESSES[kind]()
        with torch.device("meta"):
            sizes = [networks.count_parameters(default_network(process, preset)) for preset in networks.PRESETS]
        assert sizes[0] < 3e5 < least < sizes[1] < sizes[2]


def test_a_name_belongs_to_one_network():
    """Saved runs name their network: another of that name would be loaded in its place."""
    with pytest.raises(ValueError, match="there is a network 'MLP' already, of unnoise.networks.mlp: choose another name"):
        register(REGISTRY["MLP"][0])(type("MLP", (nn.Module,), {}))
    configuration, network = REGISTRY["MLP"]
    assert register(configuration)(network) is network


def test_a_part_called_features_is_no_method():
    """A denoiser takes `features` and `head` for `forward` only where `features` is a method."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = nn.Embedding(4, 5), nn.Linear(5, 3)

        def forward(self, x, t):
            return 0 * self.head(self.features(x))

    own = Own()
    x = torch.tensor([[3, 3], [0, 3]])
    assert not un.Denoiser(own, un.Masking(3, (2,)))(x, 0.5).logits.any()
    compile_network(own)
    assert sorted(dict(own.named_parameters())) == ["features.weight", "head.bias", "head.weight"]


class Wind(un.Process):
    """A process that says nothing but its space."""

    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Euclidean((2,))

    prior = marginal = transition = posterior = local = reverse = noiseless = movable = support = push = inverse = None


def test_a_process_from_outside_registers_its_network():
    with pytest.raises(TypeError, match=r"no network is known for Wind: .* unnoise.networks.network_for.register\(Wind\)"):
        default_network(Wind())
    with pytest.raises(TypeError, match=r"the leaf \['w'\], a Wind: .* unnoise.networks.column.register\(Wind\)"):
        default_network(un.Product(w=Wind()))

    class Breeze(Wind):
        pass

    network_for.register(Breeze)(lambda process, **hints: ("MLP", {"shape": process.space.shape}))
    column.register(Breeze)(lambda process, path: ColumnLeaf(path=path, kind="number", shape=process.space.shape))
    assert type(default_network(Breeze(), "tiny")).__name__ == "MLP"
    assert type(default_network(un.Product(w=Breeze(), n=un.Gaussian((1,))), "tiny")).__name__ == "ColumnTransformer"


def test_a_network_by_name():
    assert type(default_network(PROCESSES["vector"](), "tiny", name="MLP")).__name__ == "MLP"
    with pytest.raises(ValueError, match="there is no network 'GPT': choose from"):
        default_network(PROCESSES["vector"](), "tiny", name="GPT")
    with pytest.raises(ValueError, match="SmallUNet does not say what it needs to know of a process: register"):
        default_network(PROCESSES["vector"](), "tiny", name="SmallUNet")


@pytest.mark.parametrize("shape", [(), (3,), (4, 4)])
def test_angles_are_seen_by_their_waves(shape):
    """An angle and the same a turn later are one: by the network of angles, and of a table beside numbers."""
    alone = un.WrappedNormal(shape)
    table = un.Product(a=alone, y=un.Gaussian((1,)))
    x, t = 3 * torch.rand(5, *shape).double() - 1.5, torch.rand(5).double()
    for process, state in ((alone, x), (table, {"a": x, "y": torch.rand(5, 1).double()})):
        network = default_network(process, "tiny", seed=0).double()
        for parameter in network.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        turned = x + 2 * torch.pi if process is alone else {**state, "a": x + 2 * torch.pi}
        first, second = network(state, t), network(turned, t)
        ours, same = (v if process is alone else v["a"] for v in (first, second))
        assert ours.shape == x.shape and torch.allclose(ours, same, atol=1e-9) and float(ours.detach().abs().max()) > 1e-3


def test_closed_leaves_are_seen_by_more_waves():
    """And numbers beside them by as many as ever: what they show does not reach the network."""
    process = un.Product(a=un.WrappedNormal((1,)), n=un.Gaussian((1,)), s=un.SphereHeat(2))
    numbers = default_network(process, "tiny", seed=0).numbers
    assert numbers.frequencies == 5 and numbers.shown.sum(1).tolist() == [11, 7, 11, 11, 11]
    with torch.no_grad():
        before = numbers.tokens(torch.full((1, 5), 0.7))
        numbers.inward[~numbers.shown] += 1.0
        assert torch.equal(numbers.tokens(torch.full((1, 5), 0.7)), before)
        numbers.inward[numbers.shown] += 1.0
        assert not torch.equal(numbers.tokens(torch.full((1, 5), 0.7)), before)
    assert default_network(process, "tiny", frequencies=6).numbers.all_shown
    assert default_network(un.SphereHeat(2), "tiny").config.frequencies == 5


def test_angles_without_waves_are_refused():
    with pytest.raises(ValueError, match="an angle is seen by its waves"):
        default_network(un.WrappedNormal((1,)), "tiny", frequencies=0)
    with pytest.raises(ValueError, match="an angle is seen by its waves"):
        default_network(un.Product(a=un.WrappedNormal((1,)), c=un.Masking(2)), "tiny", frequencies=0)
