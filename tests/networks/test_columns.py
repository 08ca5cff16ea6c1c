"""Facts of the table network: impossible categories, times by leaf, one lookup for unlike columns, who sees whom."""

import torch

import unnoise as un
from unnoise.networks import default_network
from unnoise.networks.columns import IMPOSSIBLE

SIZES = [3, 9, 2, 5]


def process():
    return un.Product(
        numbers=un.Gaussian((2,)), facts=un.Masking(size=SIZES), more=un.Masking(size=[4, 2]), kind=un.Uniform(size=3)
    )


def network(of=None, spread=0.3):
    made = default_network(of or process(), "tiny", seed=0)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(spread * torch.randn(p.shape))
    return made.requires_grad_(False)


def states(rows=5):
    facts = torch.stack([torch.randint(n, (rows,)) for n in SIZES], 1)
    more = torch.stack([torch.randint(n, (rows,)) for n in (4, 2)], 1)
    facts[0], more[1] = 9, 4  # MASK
    return {"numbers": torch.randn(rows, 2), "facts": facts, "more": more, "kind": torch.randint(3, (rows,))}


T = torch.linspace(0.1, 0.9, 5)


def test_impossible_categories_have_no_mass():
    out = network()(states(), T)
    assert {name: tuple(value.shape) for name, value in out.items()} == {
        "numbers": (5, 2),
        "facts": (5, 4, 9),
        "more": (5, 2, 4),
        "kind": (5, 3),
    }
    for name, sizes in (("facts", SIZES), ("more", [4, 2])):
        for k, size in enumerate(sizes):
            law = out[name][:, k].softmax(-1)
            assert bool((law[:, size:] == 0).all()) and bool((law[:, :size] > 0).all())
            assert bool((out[name][:, k, size:] == IMPOSSIBLE).all())
    assert bool((out["kind"] > -1e3).all())


def test_every_state_of_every_column_has_a_row_of_its_own():
    """The table's rows are used once each: by the states of a column and its MASK, and by no other column."""
    table = network().categories
    columns = list(zip([*SIZES, 4, 2, 3], [9] * 4 + [4] * 2 + [3], [1] * 6 + [0], strict=True))
    rows = []
    for k, (size, shared, extra) in enumerate(columns):
        for state in [*range(size), *([shared] if extra else [])]:
            x = torch.zeros(1, len(columns), dtype=torch.int64)
            x[0, k] = state
            token = table.tokens(x)[0, k]
            rows += (table.table.weight == token).all(-1).nonzero().flatten().tolist()
    assert sorted(rows) == list(range(table.table.num_embeddings))
    assert len(rows) == sum(size + extra for size, _, extra in columns)


def test_one_time_is_the_same_time_for_every_leaf():
    made, x = network(), states()
    together, apart = made(x, T), made(x, dict.fromkeys(x, T))
    for name in x:
        torch.testing.assert_close(together[name], apart[name])


def test_a_leaf_is_told_its_own_time_and_no_other():
    made, x = network(), states()
    for block in made.blocks:
        block.attention.out.weight.zero_()  # no token hears of another
    times = dict.fromkeys(x, T)
    base = made(x, times)
    for name in x:
        out = made(x, {**times, name: T.flip(0)})
        assert float((out[name] - base[name])[[0, 1, 3, 4]].abs().max()) > 1e-3
        torch.testing.assert_close(out[name][2], base[name][2])  # the middle row's time is the same either way
        for other in set(x) - {name}:
            assert torch.equal(out[other], base[other])


def test_columns_see_the_others_and_rows_do_not_meet():
    made, x = network(), states()
    base = made(x, T)
    changed = {**x, "numbers": x["numbers"].clone()}
    changed["numbers"][3, 1] += 1.0
    out = made(changed, T)
    for name in x:
        assert float((out[name][3] - base[name][3]).abs().max()) > 1e-3
        others = [0, 1, 2, 4]
        torch.testing.assert_close(out[name][others], base[name][others])


def test_the_order_of_leaves_is_of_no_account():
    one, two = un.Gaussian((2,)), un.Masking(size=[2, 4])
    first, second = network(un.Product(a=one, b=two)), network(un.Product(b=two, a=one))
    second.load_state_dict(first.state_dict())
    x = {"a": torch.randn(5, 2), "b": torch.tensor([[4, 1]] * 5)}
    for name, value in first(x, T).items():
        torch.testing.assert_close(second(x, T)[name], value)


def test_a_lone_leaf_is_a_plain_tensor():
    lone = network(un.Masking(size=SIZES))
    out = lone(torch.full((5, 4), 9), T)
    assert out.shape == (5, 4, 9)
    assert float((out[:, 0, :2] - out[:, 2, :2]).abs().max()) > 1e-3  # columns under MASK are told apart


def test_bound_with_leaves_at_times_of_their_own():
    of = process()
    denoiser = un.Denoiser(network(of), of, un.predictions.default_kind(of))
    prediction = denoiser(states(), {"numbers": 0.3, "facts": 0.0, "more": 1.0, "kind": 0.5})
    assert bool(prediction.leaves["numbers"].value.isfinite().all())
