"""Spaces: dimension, counting, enumeration in order, which entries are categories, and what `check` returns."""

import itertools

import pytest
import torch

from unnoise.spaces import ENUMERABLE, Euclidean, Finite, ProductSpace
from unnoise.tree import batch_size, first_leaf, map_leaves


@pytest.mark.parametrize(
    ("space", "dimension"),
    [
        (Euclidean(), 1),
        (Euclidean(3), 3),
        (Euclidean((2, 3, 4)), 24),
        (Finite(5), 1),
        (Finite(5, 3), 3),
        (Finite(5, (2, 3)), 6),
        (Finite([2, 3, 4]), 3),
        (Finite(torch.tensor([[2, 3], [4, 5]])), 4),
        (ProductSpace(a=Euclidean(3), b=Finite(5, (2, 2))), 7),
        (ProductSpace(a=Euclidean(3), b=ProductSpace(c=Finite(2), d=Finite([2, 3]))), 6),
    ],
    ids=str,
)
def test_dimension(space, dimension):
    assert space.dimension == dimension


@pytest.mark.parametrize(
    ("space", "count"),
    [
        (Finite(5), 5),
        (Finite(5, 3), 125),
        (Finite(2, (2, 3)), 64),
        (Finite([2, 3, 4]), 24),
        (Finite(torch.tensor([[2, 3], [4, 1]])), 24),
        (Finite(27, 256), 27**256),
        (Finite([27, 28] * 128), (27 * 28) ** 128),  # beyond the largest float
        (Finite([94906265, 94906267]), 94906265 * 94906267),  # beyond 2^53: not rounded
    ],
    ids=lambda value: str(value)[:40],
)
def test_count(space, count):
    assert space.count == count


@pytest.mark.parametrize(
    "space", [Finite(3), Finite(3, 2), Finite(2, (2, 2)), Finite([2, 1, 3]), Finite(torch.tensor([[2, 3], [1, 2]]))], ids=str
)
def test_states_are_every_point_in_lexicographic_order(space):
    sizes = [space.size] * space.dimension if space.sizes is None else space.sizes.flatten().tolist()
    expected = [list(point) for point in itertools.product(*[range(n) for n in sizes])]
    states = space.states()
    assert states.shape == (space.count, *space.shape)
    assert states.dtype == torch.int64
    assert states.reshape(space.count, -1).tolist() == expected
    assert torch.equal(space.check(states), states)


def test_the_largest_space_that_is_listed():
    assert len(Finite(10, 5).states()) == ENUMERABLE


def test_one_size_for_all_is_the_same_however_it_is_written():
    for space in (Finite(4, 3), Finite([4, 4, 4]), Finite(torch.tensor([4, 4, 4])), Finite(torch.tensor(4), (3,))):
        assert (space.size, space.sizes, space.shape) == (4, None, (3,))
        assert space.valid() is None


def test_sizes_per_coordinate():
    space = Finite(torch.tensor([[2, 3], [4, 1]]))
    assert space.size == 4 and space.shape == (2, 2)
    assert space.sizes.tolist() == [[2, 3], [4, 1]]
    assert space.valid().tolist() == [
        [[True, True, False, False], [True, True, True, False]],
        [[True, True, True, True], [True, False, False, False]],
    ]
    x = torch.tensor([[[1, 2], [3, 0]]])
    assert torch.equal(space.check(x), x)
    with pytest.raises(ValueError, match=r"x\[0, 1, 1\] = 1 is no category of 1"):
        space.check(torch.tensor([[[1, 2], [3, 1]]]))


def test_check_returns_the_numbers_it_was_given():
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.randn(4, 2, 3).to(dtype)
        assert Euclidean((2, 3)).check(x) is x
    scalar = torch.randn(4)
    assert Euclidean().check(scalar) is scalar


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_check_returns_categories_as_int64(dtype):
    x = torch.tensor([[0, 4], [2, 1]], dtype=dtype)
    checked = Finite(5, 2).check(x)
    assert checked.dtype == torch.int64
    assert checked.tolist() == [[0, 4], [2, 1]]


def test_no_rows_are_a_batch_too():
    assert Euclidean(2).check(torch.zeros(0, 2)).shape == (0, 2)
    assert Finite(3, 2).check(torch.zeros(0, 2, dtype=torch.int64)).shape == (0, 2)


def test_a_product_checks_every_leaf_of_the_tree():
    space = ProductSpace(age=Euclidean(1), rest=ProductSpace(job=Finite(3), text=Finite(4, 2)))
    assert space.names == ("age", "rest")
    text = torch.tensor([[0, 1], [2, 3]], dtype=torch.uint8)
    x = {"rest": {"text": text, "job": torch.tensor([0, 2])}, "age": torch.tensor([[0.5], [1.5]])}
    checked = space.check(x)
    assert list(checked) == ["age", "rest"] and list(checked["rest"]) == [
        "job",
        "text",
    ]  # the product's order, not the dict's
    assert checked["age"] is x["age"]
    assert checked["rest"]["text"].dtype == torch.int64 and checked["rest"]["text"].tolist() == text.tolist()
    bad = {"age": x["age"], "rest": {"job": torch.tensor([0, 3]), "text": text}}
    with pytest.raises(ValueError, match=r"x\['rest'\]\['job'\]\[1\] = 3"):
        space.check(bad)
    with pytest.raises(ValueError, match="differ in rows"):
        space.check({"age": x["age"][:1], "rest": x["rest"]})


def test_tree_helpers():
    tree = {"a": {"b": torch.tensor([1, 2]), "c": torch.tensor([3, 4])}, "d": torch.tensor([5, 6])}
    assert first_leaf(tree).tolist() == [1, 2]
    assert batch_size(tree) == 2
    doubled = map_leaves(lambda x: 2 * x, tree)
    assert doubled["a"]["c"].tolist() == [6, 8] and doubled["d"].tolist() == [10, 12]
    assert tree["d"].tolist() == [5, 6]


def test_names():
    assert str(Euclidean((2, 3))) == "Euclidean((2, 3))"
    assert str(Finite(3, 2)) == "Finite(3, (2,))"
    assert str(ProductSpace(a=Euclidean(1), b=Finite([2, 3]))) == "Product(a=Euclidean((1,)), b=Finite([2, 3], (2,)))"
