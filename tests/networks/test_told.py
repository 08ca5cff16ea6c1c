"""Every network hears every kind of condition, row by row, and begins as the same network that is told nothing."""

import json

import pytest
import torch

from unnoise import networks
from unnoise.networks import ColumnLeaf, ConditionInput
from unnoise.tree import leaves, map_leaves

ROWS = 5
CONDITIONS = [
    ConditionInput(name="label", size=3),
    ConditionInput(name="marks", size=4, shape=[2]),
    ConditionInput(name="age", shape=[]),
    ConditionInput(name="place", shape=[3]),
    ConditionInput(name="picture", shape=[9, 9]),  # more numbers than have waves
]
LEAVES = [ColumnLeaf(path=["a"], kind="number", shape=[2]), ColumnLeaf(path=["b"], kind="category", shape=[1], sizes=[3])]
SMALL = {"width": 16, "layers": 2}
UNET = {"width": 16, "multipliers": [1, 2], "blocks": 1, "heads": 2}
KINDS = {
    "vector": ("MLP", {"shape": [4], **SMALL}, lambda g: torch.randn(ROWS, 4, generator=g)),
    "clouds": ("CloudMLP", {"shape": [2], **SMALL}, lambda g: torch.randn(ROWS, 2, generator=g)),
    "velocities": ("VelocityMLP", {"shape": [2], **SMALL}, lambda g: torch.randn(ROWS, 2, 2, generator=g)),
    "image": ("SmallUNet", {"shape": [6, 6], **UNET}, lambda g: torch.randn(ROWS, 6, 6, generator=g)),
    "levels": (
        "SmallUNet",
        {"shape": [6, 6], "kind": "category", "size": 3, "extra": 1, **UNET},
        lambda g: torch.randint(4, (ROWS, 6, 6), generator=g),
    ),
    "series": ("SeriesNet", {"shape": [8], **UNET}, lambda g: torch.randn(ROWS, 8, generator=g)),
    "masked text": (
        "SequenceTransformer",
        {"size": 4, "time": False, "heads": 2, **SMALL},
        lambda g: torch.randint(5, (ROWS, 6), generator=g),
    ),
    "noisy text": (
        "SequenceTransformer",
        {"size": 4, "extra": 0, "heads": 2, **SMALL},
        lambda g: torch.randint(4, (ROWS, 6), generator=g),
    ),
    "table": (
        "ColumnTransformer",
        {"leaves": LEAVES, "heads": 2, **SMALL},
        lambda g: {"a": torch.randn(ROWS, 2, generator=g), "b": torch.randint(3, (ROWS, 1), generator=g)},
    ),
}


@pytest.fixture(params=list(KINDS))
def kind(request):
    return request.param


def values(seed=1):
    g = torch.Generator().manual_seed(seed)
    return {
        told.name: torch.randint(told.size, (ROWS, *told.shape), generator=g)
        if told.size
        else torch.randn(ROWS, *told.shape, generator=g)
        for told in CONDITIONS
    }


def nothing(value):
    return torch.full_like(value, float("nan") if value.is_floating_point() else -1)


def setting(kind, conditions=CONDITIONS, shaken=True):
    name, options, x = KINDS[kind]
    network = networks.build(name, {**options, "conditions": conditions} if conditions else options, seed=0)
    g = torch.Generator().manual_seed(2)
    if shaken:
        with torch.no_grad():
            for p in network.parameters():
                p.add_(0.1 * torch.randn(p.shape, generator=g))
    return network.eval(), x(g), torch.linspace(0.2, 0.9, ROWS)


def rows_that_differ(one, other):
    pairs = zip(leaves(one), leaves(other), strict=True)
    return torch.stack([(a != b).reshape(ROWS, -1).any(1) for a, b in pairs]).any(0).tolist()


def test_untrained_it_answers_as_the_same_network_without(kind):
    network, x, t = setting(kind, shaken=False)
    plain, _, _ = setting(kind, conditions=[], shaken=False)
    own, without = network.state_dict(), plain.state_dict()
    assert [name for name in own if "told." not in name] == list(without)
    assert all(torch.equal(own[name], value) for name, value in without.items())
    if kind != "clouds":  # whose start is not 0
        with torch.no_grad():
            for net in (network, plain):
                for name, p in net.named_parameters():
                    if "told." not in name:
                        p.add_(0.1 * torch.sin(torch.arange(p.numel(), dtype=p.dtype)).reshape(p.shape))
    assert rows_that_differ(network(x, t, **values()), plain(x, t)) == [False] * ROWS


def test_every_condition_is_heard_by_its_own_row_alone(kind):
    network, x, t = setting(kind)
    told = values()
    base = network(x, t, **told)
    for name, value in told.items():
        other = value.clone()
        other[2] = (value[2] + 1) % 3 if name == "label" else value[2].flip(0) if value.ndim > 1 else value[2] + 1.0
        if not value.is_floating_point() and value.ndim > 1:
            other[2] = (value[2] + 1) % 4
        changed = network(x, t, **{**told, name: other})
        assert rows_that_differ(changed, base) == [False, False, True, False, False], name
        gone = value.clone()
        gone[3] = nothing(value)[3]
        assert rows_that_differ(network(x, t, **{**told, name: gone}), base) == [False, False, False, True, False], name


def test_what_is_left_out_is_nothing(kind):
    network, x, t = setting(kind)
    told = values()
    without = {name: value for name, value in told.items() if name != "age"}
    assert (
        rows_that_differ(network(x, t, **without), network(x, t, **{**told, "age": nothing(told["age"])})) == [False] * ROWS
    )
    all_gone = {name: nothing(value) for name, value in told.items()}
    assert rows_that_differ(network(x, t), network(x, t, **all_gone)) == [False] * ROWS


def test_two_updates_wake_all_of_it(kind):
    """The first moves what is 0, the second what lies behind it."""
    network, x, t = setting(kind, shaken=False)
    with torch.no_grad():  # an output that is 0 lets nothing through
        for name, p in network.named_parameters():
            if name.endswith(("out.weight", "categories.weight", "numbers.weight")):
                p.add_(0.1 * torch.cos(torch.arange(p.numel(), dtype=p.dtype)).reshape(p.shape))
    told = values()
    told["age"] = told["age"].masked_fill(torch.arange(ROWS) == 1, float("nan"))
    for _ in range(2):
        network.zero_grad()
        out = network(x, t, **told)
        sum(torch.where(part.abs() < 1e8, part, 0.0).square().mean() + part.flatten()[0] for part in leaves(out)).backward()
        with torch.no_grad():
            for p in network.parameters():
                p.sub_(0.1 * p.grad)
    dead = [n for n, p in network.named_parameters() if "told." in n and not bool((p.grad != 0).any())]
    assert not dead


def test_it_is_plain_data(kind):
    network, _, _ = setting(kind)
    text = json.dumps(networks.described(network))
    again = networks.build(**json.loads(text))
    again.load_state_dict(network.state_dict())
    assert json.dumps(networks.described(again)) == text


def test_in_bfloat16_and_in_double():
    network, x, t = setting("vector")
    network.requires_grad_(False)
    told = values()
    exact = network(x, t, **told)
    with torch.autocast("cpu", torch.bfloat16):
        rough = network(x, t, **told)
    assert float((exact - rough.float()).norm() / exact.norm()) < 0.05
    torch.testing.assert_close(network(x.double(), t, **map_leaves(doubled, told)), exact)


def doubled(value):
    return value.double() if value.is_floating_point() else value


def test_errors_name_value_and_remedy():
    network, x, t = setting("vector")
    told = values()
    with pytest.raises(ValueError, match="nothing of the name 'size': it is told label, marks, age, place, picture"):
        network(x, t, size=told["label"])
    with pytest.raises(ValueError, match="nothing of the name 'label': it takes no conditions: build it with conditions"):
        setting("vector", conditions=[])[0](x, t, **told)
    with pytest.raises(ValueError, match="'label' holds 3: its categories are 0 ... 2"):
        network(x, t, **{**told, "label": told["label"] * 0 + 3})
    with pytest.raises(TypeError, match="'label' is of torch.float32: categories are whole numbers, and -1"):
        network(x, t, **{**told, "label": told["label"].float()})
    with pytest.raises(TypeError, match="'age' is of torch.int64: it is of numbers, and NaN is nothing"):
        network(x, t, **{**told, "age": told["label"]})
    with pytest.raises(ValueError, match=r"'place' has shape \(5, 2\); this network takes \(5, 3\)"):
        network(x, t, **{**told, "place": told["place"][:, :2]})
    with pytest.raises(ValueError, match="each has a name of its own"):
        networks.build("MLP", {"shape": [2], "conditions": [ConditionInput(name="a"), ConditionInput(name="a", size=2)]})
