"""The terms of a linear head in chunks are those from all logits at once, values and gradients."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from unnoise.kernels import head_chunks
from unnoise.kernels.head import _HeadTerms, head_terms, plain_terms
from unnoise.kernels.head_chunks import ChunkPlan, Chunks, plan_for

F64 = torch.float64
SIZE, DEPTH = 53, 7
ROW_BY_ROW = ChunkPlan(held=SIZE, aligned=1, kernels=False)
FIVE_ROWS = ChunkPlan(held=5 * 56, aligned=8, kernels=False)
AT_ONCE = ChunkPlan(held=2**20, aligned=64, kernels=False)


def case(rows=37, bias=True, indices=2, scale=True, dtype=F64, size=SIZE):
    """(features, weight, bias), what is asked of them, and the gradients that arrive."""
    h = torch.randn(rows, DEPTH, dtype=dtype, requires_grad=True)
    weight = torch.randn(size, DEPTH, dtype=dtype, requires_grad=True)
    b = torch.randn(size, dtype=dtype, requires_grad=True) if bias else None
    index = torch.randint(size, (rows, indices))
    index[: rows // 4, -1] = index[: rows // 4, 0]  # both ends of a row may be one category
    c = (30 * torch.rand(rows, dtype=dtype)).requires_grad_() if scale else None
    return (h, weight, b, c), index, (torch.randn(rows, indices, dtype=dtype), torch.randn(rows, dtype=dtype))


def graded(terms, given, by):
    """The terms, and the gradients of their sum with weights per row."""
    inputs = [value for value in given if value is not None]
    picked, total = terms
    gradients = torch.autograd.grad((picked * by[0]).sum() + (total * by[1]).sum(), inputs, allow_unused=True)
    return [picked, total, *gradients]


def close(found, wanted, **tolerance):
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


@pytest.mark.parametrize("plan", [ROW_BY_ROW, FIVE_ROWS, AT_ONCE], ids=["row by row", "five rows", "at once"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("indices", "scale"), [(1, False), (2, True), (2, False)])
@pytest.mark.parametrize("share", [None, 0.0, 0.4, 1.0])
def test_terms_and_gradients(plan, bias, indices, scale, share):
    given, index, by = case(bias=bias, indices=indices, scale=scale)
    chosen = None if share is None else torch.rand(len(index)) < share
    h, weight, b, c = given
    found = graded(head_terms(h, weight, b, index, c, chosen, plan), given, by)
    close(found, graded(plain_terms(h, weight, b, index, c, chosen), given, by), rtol=1e-12, atol=1e-12)
    if chosen is not None:
        assert not found[0][~chosen].any() and not found[1][~chosen].any() and not found[2][~chosen].any()


@pytest.mark.parametrize("rows", [0, 1])
def test_no_row_and_one(rows):
    given, index, by = case(rows)
    h, weight, b, c = given
    found = graded(head_terms(h, weight, b, index, c, plan=FIVE_ROWS), given, by)
    close(found, graded(plain_terms(h, weight, b, index, c), given, by), rtol=1e-12, atol=1e-12)
    assert found[0].shape == (rows, 2) and float(found[3].abs().sum()) > 0 or not rows


def test_written_out():
    """log theta and sum_y log(1 + c theta_y), category by category."""
    given, index, _ = case(rows=3)
    h, weight, b, c = (value.detach() for value in given)
    picked, total = head_terms(h, weight, b, index, c, plan=FIVE_ROWS)
    for row in range(3):
        mass = [float((weight[y] @ h[row] + b[y]).exp()) for y in range(SIZE)]
        theta = torch.tensor(mass, dtype=F64) / sum(mass)
        torch.testing.assert_close(picked[row].exp(), theta[index[row]], rtol=1e-12, atol=0)
        torch.testing.assert_close(total[row], (1 + c[row] * theta).log().sum(), rtol=1e-12, atol=0)


@pytest.mark.parametrize("scale", [False, True])
def test_gradcheck_once_and_twice(scale):
    (h, weight, b, c), index, _ = case(rows=4, scale=scale, size=5)
    chosen, plan = torch.tensor([True, False, True, True]), ChunkPlan(held=16, aligned=8, kernels=False)
    inputs = [value for value in (h, weight, b, c) if value is not None]

    def terms(h, weight, b, c=None):
        found = head_terms(h, weight, b, index, c, chosen, plan)
        return found if scale else found[0]

    assert torch.autograd.gradcheck(terms, inputs)
    assert torch.autograd.gradgradcheck(terms, inputs)


def test_only_what_is_needed_is_differentiated():
    given, index, by = case()
    h, weight, b, c = given
    wanted = graded(plain_terms(h, weight, b, index, c), given, by)[2:]
    for i, value in enumerate(given):
        only = [v if v is value else v.detach() for v in given]
        picked, total = head_terms(only[0], only[1], only[2], index, only[3], plan=FIVE_ROWS)
        (found,) = torch.autograd.grad((picked * by[0]).sum() + (total * by[1]).sum(), value)
        torch.testing.assert_close(found, wanted[i], rtol=1e-12, atol=1e-12)
    with torch.no_grad():
        assert not head_terms(h, weight, b, index, c, plan=FIVE_ROWS)[0].requires_grad


def test_a_scale_of_nothing():
    """sum_y log(1 + c theta_y) is about c where c is small, and its slope at 0 is 1."""
    (h, weight, b, _), index, _ = case(dtype=torch.float32)
    c = torch.logspace(-12, -4, len(h), requires_grad=True)
    _, total = head_terms(h, weight, b, index, c, plan=FIVE_ROWS)
    torch.testing.assert_close(total, c, rtol=1e-4, atol=0)
    none = torch.zeros_like(c, requires_grad=True)
    (slope,) = torch.autograd.grad(head_terms(h, weight, b, index, none, plan=FIVE_ROWS)[1].sum(), none)
    torch.testing.assert_close(slope, torch.ones_like(c))


def test_large_logits_and_bans():
    """exp is taken of differences to the largest logit; a category may be banned by its bias."""
    (h, weight, b, c), index, by = case(dtype=torch.float32)
    b = (1000 * b.detach()).index_fill(0, torch.tensor([3, 8]), -torch.inf).requires_grad_()
    index = torch.where((index == 3) | (index == 8), 0, index)
    given = (h, weight, b, c)
    found = graded(head_terms(h, weight, b, index, c, plan=FIVE_ROWS), given, by)
    close(found, graded(plain_terms(h, weight, b, index, c), given, by), rtol=2e-5, atol=2e-4)
    assert all(bool(value.isfinite().all()) for value in found) and float(found[0].detach().min()) < -500


def test_single_precision():
    """Statistics and gradients are right to a few times float32's rounding of the numbers that are summed."""
    (h, weight, b, c), index, by = case(dtype=torch.float32)
    exact = [v.detach().double().requires_grad_() for v in (h, weight, b, c)]
    found = graded(head_terms(h, weight, b, index, c, plan=FIVE_ROWS), (h, weight, b, c), by)
    wanted = graded(plain_terms(*exact[:3], index, exact[3]), exact, [v.double() for v in by])
    close([v.double() for v in found], wanted, rtol=2e-5, atol=2e-5)


def test_autocast():
    """Products in bfloat16, statistics in float32, gradients in the precision of what they belong to.

    A logit z rounds to z (1 + 2^-9): log theta, a difference of two averages of such, errs by 2^-8 max|z| at most, beside
    what the rounding of features and weights does, which the exact terms are given too.
    """
    (h, weight, b, _), index, by = case(rows=64, indices=1, scale=False, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        picked, total = head_terms(h, weight, b, index, plan=FIVE_ROWS)
    rounded = [v.detach().bfloat16().double().requires_grad_() for v in (h, weight, b)]
    exact = graded(plain_terms(*rounded, index), rounded, [v.double() for v in by])
    logits = rounded[0] @ rounded[1].T + rounded[2]
    assert picked.dtype == total.dtype == torch.float32
    error = (picked.double() - exact[0]).abs()
    assert 0 < float(error.detach().max()) < 2**-8 * float(logits.detach().abs().max())
    gradients = torch.autograd.grad((picked * by[0]).sum(), (h, weight, b))
    # dz = by ([k = i] - theta_k): theta errs by the rounding of z in relation to itself, and dz is rounded once more
    share = 2 * 2**-8 * float(logits.detach().abs().max()) + 2**-8
    theta = logits.softmax(-1)
    scale = (by[0].double().abs() * theta.scatter_add(-1, index, torch.ones(64, 1, dtype=F64))).detach()
    bounds = (scale @ rounded[1].abs(), scale.T @ rounded[0].abs(), scale.sum(0))
    for ours, theirs, bound, given in zip(gradients, exact[2:], bounds, (h, weight, b), strict=True):
        assert ours.dtype == given.dtype
        assert bool(((ours.double() - theirs).abs() <= share * bound + 2**-8 * theirs.abs() + 1e-6).all())


def test_the_gradient_of_weights_is_summed_in_single_precision():
    """A thousand chunks that add 1 + 2^-10 each: in bfloat16 a sum stops growing at 256."""
    rows, size = 1000, 4
    h, weight = torch.ones(rows, 1), torch.zeros(size, 1, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        picked, _ = head_terms(h, weight, None, torch.zeros(rows, 1, dtype=torch.int64), plan=ChunkPlan(4, 1, kernels=False))
    picked.sum().backward()
    torch.testing.assert_close(weight.grad, torch.tensor([[750.0], [-250.0], [-250.0], [-250.0]]))


def test_autocast_leaves_double_precision_alone():
    (h, weight, b, c), index, _ = case()
    with torch.autocast("cpu", torch.bfloat16):
        found = head_terms(h, weight, b, index, c, plan=FIVE_ROWS)
    close(found, plain_terms(h, weight, b, index, c), rtol=1e-12, atol=1e-12)
    with pytest.raises(TypeError, match="float32 and weights torch.float64"):
        head_terms(h.float(), weight, b, index, c)


def test_checkpointed_and_used_twice():
    given, index, by = case()
    h, weight, b, c = given

    def twice(h, weight, b, c):
        one, other = (head_terms(h * factor, weight, b, index, c, plan=FIVE_ROWS) for factor in (1.0, 0.5))
        return one[0] + other[0], one[1] + other[1]

    found = graded(checkpoint(twice, h, weight, b, c, use_reentrant=False), given, by)
    close(found, graded(twice(h, weight, b, c), given, by), rtol=1e-13, atol=1e-13)
    one, half = (plain_terms(h * factor, weight, b, index, c) for factor in (1.0, 0.5))
    close(found, graded((one[0] + half[0], one[1] + half[1]), given, by), rtol=1e-12, atol=1e-12)


def test_as_a_function_of_weights():
    (h, weight, b, c), index, _ = case()
    found = torch.func.grad(lambda w: head_terms(h.detach(), w, b.detach(), index, c.detach(), plan=FIVE_ROWS)[1].sum())(
        weight
    )
    wanted = torch.autograd.grad(plain_terms(h, weight, b, index, c)[1].sum(), weight)[0]
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)


def test_features_and_weights_may_lie_anyhow_in_memory():
    (h, weight, b, c), index, by = case()
    given = (h.detach().T.contiguous().T.requires_grad_(), weight.detach().T.contiguous().T.requires_grad_(), b, c)
    both = index.T.contiguous().T
    found = graded(head_terms(given[0], given[1], b, both, c, plan=FIVE_ROWS), given, by)
    close(found, graded(plain_terms(h, weight, b, index, c), (h, weight, b, c), by), rtol=1e-12, atol=1e-12)


class Largest(TorchDispatchMode):
    """The largest tensor that any operation returned."""

    def __init__(self):
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for value in out if isinstance(out, tuple | list) else [out]:
            self.numel = max(self.numel, value.numel() if isinstance(value, torch.Tensor) else 0)
        return out


def test_no_more_logits_than_a_chunk_holds():
    (h, weight, b, c), index, _ = case(rows=400)
    plan = ChunkPlan(held=20 * SIZE, aligned=1, kernels=False)
    with Largest() as seen:
        picked, total = head_terms(h, weight, b, index, c, torch.rand(400) < 0.9, plan)
        (picked.sum() + total.sum()).backward()
    assert seen.numel == max(400 * DEPTH, 20 * SIZE) < 400 * SIZE / 7


@pytest.mark.parametrize("rows", [1, 100, 128, 129, 1000, 4096, 5000])
@pytest.mark.parametrize("likely", [0.0, 0.5, 0.7, 1.0])
@pytest.mark.parametrize("held", [64, 64 * 300, 2**30])
def test_chunks_cover_every_row_once(rows, likely, held):
    plan, count = ChunkPlan(held=held, likely=likely), torch.tensor(3)
    h = torch.empty(rows, 2, device="meta")
    weight = torch.empty(50, 2, device="meta")
    chunks = Chunks(h, weight, None, count, plan)
    parts = list(chunks)
    assert [i for part, _ in parts for i in range(part.start, part.stop)] == list(range(rows))
    assert all((part.stop - part.start) * 64 <= max(held, 64) for part, _ in parts)
    plainly = sum(part.stop - part.start for part, skipped in parts if not skipped)
    assert int(likely * rows) <= plainly < int(likely * rows) + head_chunks.WHOLE
    assert sorted(skipped for _, skipped in parts) == [skipped for _, skipped in parts]
    assert not any(skipped for _, skipped in Chunks(h, weight, None, None, plan))


def test_a_device_without_values_is_asked_for_none():
    """Rows are put first, and counted, on the device."""
    meta = torch.device("meta")
    h, weight = (torch.empty(n, 4, device=meta, requires_grad=True) for n in (300, 9))
    index, chosen = torch.empty(300, 1, dtype=torch.int64, device=meta), torch.empty(300, dtype=torch.bool, device=meta)
    picked, _ = head_terms(h, weight, None, index, chosen=chosen, plan=ChunkPlan(held=64 * 128, kernels=False))
    picked.sum().backward()
    assert picked.shape == (300, 1) and h.grad.shape == h.shape and weight.grad.shape == weight.shape
    assert not plan_for(meta).kernels and not plan_for(torch.device("cpu")).kernels


def test_rows_put_first_on_the_device():
    """As on an accelerator: a sort, a count, and rows behind it that are not a number."""
    (h, weight, b, c), index, by = case()
    chosen = torch.rand(len(h)) < 0.5
    h = torch.where(chosen.unsqueeze(-1), h.detach(), torch.nan).requires_grad_()
    order, count = (~chosen).byte().argsort(stable=True), chosen.sum()
    found = graded(_HeadTerms.apply(h, weight, b, index, c, order, count, FIVE_ROWS)[:2], (c,), by)
    clean = h.detach().nan_to_num().requires_grad_()
    wanted = graded(plain_terms(clean, weight, b, index, c, chosen), (c,), by)
    close(found, wanted, rtol=1e-12, atol=1e-12)
    given = (clean, weight, b, c)
    found = graded(_HeadTerms.apply(clean, weight, b, index, c, order, count, FIVE_ROWS)[:2], given, by)
    close(found, graded(plain_terms(clean, weight, b, index, c, chosen), given, by), rtol=1e-12, atol=1e-12)
