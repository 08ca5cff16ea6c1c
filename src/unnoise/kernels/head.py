"""A linear head and what a loss asks of its softmax, without ever holding the logits of all rows.

For features h [rows, depth], weights W [size, depth], a bias b and theta = softmax(h W^T + b) it gives, per row,

    picked_i = log theta at the row's indices i         (the cross-entropy of a target)
    total    = sum_y log(1 + c theta_y)                 (the sum in the bound of uniform noise)

and their gradients, for any gradient that arrives per row.  Logits are made in chunks of rows (`head_chunks`): the forward
pass keeps two numbers per row of each (`head_passes`); the backward pass makes the logits again, writes their gradient dz
over them, and adds

    dh = dz W,      dW += dz^T h,      db += sum over rows of dz

before the next chunk takes their place.  To make them again is a fourth product of matrices beside the three of any linear
layer; to hold them would be rows x size numbers, and to have their gradient in the forward pass, with no product more, one
would have to know there what arrives per row.

Under autocast the products are in its precision, as those of a linear layer are, with one copy of the weights in it for all
chunks; statistics, and the sum of dW over chunks, are in float32.

Where only some rows are asked for (`chosen`), an accelerator would make the host wait for how many.  Instead they are put
first, by a sort on the device, and how many there are is left there: shapes are always the same, and a step can be recorded.
"""

from contextlib import ExitStack

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.kernels.head_chunks import ChunkPlan, Chunks, plan_for
from unnoise.kernels.head_passes import Arrived, empty_statistics, precision
from unnoise.shapes import Bool, Float, Int


def product_dtype(features: Tensor, weight: Tensor) -> torch.dtype | None:
    """The precision in which a linear layer multiplies; None where it refuses to."""
    kind, both = features.device.type, (features.dtype, weight.dtype)
    on = torch.amp.autocast_mode.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    if on and torch.float64 not in both:
        return torch.get_autocast_dtype(kind)
    return features.dtype if both[0] == both[1] else None


def head_terms(
    features: Float[Tensor, "rows depth"],
    weight: Float[Tensor, "size depth"],
    bias: Float[Tensor, "size"] | None,
    index: Int[Tensor, "rows indices"],
    scale: Float[Tensor, "rows"] | None = None,
    chosen: Bool[Tensor, "rows"] | None = None,
    plan: ChunkPlan | None = None,
) -> tuple[Float[Tensor, "rows indices"], Float[Tensor, "rows"]]:
    """log theta at the indices, and sum_y log(1 + scale theta_y) (0 without a scale); 0 in the rows that are not chosen."""
    dtype = product_dtype(features, weight)
    if dtype is None:
        raise TypeError(f"features are {features.dtype} and weights {weight.dtype}: bring them to one precision")
    plan, h = plan or plan_for(features.device), features.to(dtype)
    scale = None if scale is None else scale.to(precision(dtype))
    order = count = None
    if chosen is not None and chosen.device.type == "cpu" and not plan.kernels:  # where a list costs nothing
        order = chosen.nonzero().squeeze(-1)
    elif chosen is not None:
        order, count = (~chosen).byte().argsort(stable=True), chosen.sum()
    return _HeadTerms.apply(h, weight, bias, index, scale, order, count, plan)[:2]


def plain_terms(
    h: Float[Tensor, "rows depth"],
    weight: Float[Tensor, "size depth"],
    bias: Float[Tensor, "size"] | None,
    index: Int[Tensor, "rows indices"],
    scale: Float[Tensor, "rows"] | None = None,
    chosen: Bool[Tensor, "rows"] | None = None,
) -> tuple[Float[Tensor, "rows indices"], Float[Tensor, "rows"]]:
    """The same from all logits at once: what the rest of this module is compared with, and differentiated twice by."""
    logits = F.linear(h, weight.to(h.dtype), None if bias is None else bias.to(h.dtype))
    log_theta = logits.to(precision(h.dtype)).log_softmax(-1)
    picked = log_theta.gather(-1, index)
    total = picked.new_zeros(len(h)) if scale is None else (log_theta.exp() * scale.unsqueeze(-1)).log1p().sum(-1)
    if chosen is None:
        return picked, total
    return torch.where(chosen.unsqueeze(-1), picked, 0.0), torch.where(chosen, total, 0.0)


def _in_order(order: Tensor | None, *values: Tensor | None) -> list:
    """The rows of each value in the order given, in one piece of memory."""
    ordered = [value if value is None or order is None else value.index_select(0, order) for value in values]
    return [value if value is None else value.contiguous() for value in ordered]


def _put_back(order: Tensor | None, value: Tensor, rows: int) -> Tensor:
    """The inverse; 0 in rows that the order does not name."""
    return value if order is None else value.new_zeros(rows, *value.shape[1:]).index_copy_(0, order, value)


def _inside(rows: Tensor, count: Tensor | None) -> Tensor | None:
    return None if count is None else torch.arange(len(rows), device=rows.device) < count


def _at_home(h: Tensor) -> ExitStack:
    """On the device of the rows, each product in the precision of what is multiplied."""
    stack = ExitStack()
    if torch.amp.autocast_mode.is_autocast_available(h.device.type):
        stack.enter_context(torch.autocast(h.device.type, enabled=False))
    if h.device.type == "cuda":
        stack.enter_context(torch.cuda.device(h.device))
    return stack


class _HeadTerms(torch.autograd.Function):
    """(picked, total, norm, share) of every row, the last two in `order`, of which the first `count` are asked for."""

    @staticmethod
    def forward(h, weight, bias, index, scale, order, count, plan):  # type: ignore[override]
        rows, (h, index, scale) = len(h), _in_order(order, h, index, scale)
        found = empty_statistics(index, precision(h.dtype))
        with _at_home(h):
            chunks = Chunks(h, weight, bias, count, plan)
            for part, skipped in chunks:
                z = chunks.logits(part, skipped)
                chunks.read(z, part, index[part], None if scale is None else scale[part], found.part(part))
        inside = _inside(h, count)
        if inside is not None and not plan.kernels:
            found.picked.masked_fill_(~inside.unsqueeze(-1), 0.0)
            for value in (found.total, found.share):
                value.masked_fill_(~inside, 0.0)
        return _put_back(order, found.picked, rows), _put_back(order, found.total, rows), found.norm, found.share

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.plan = inputs
        _, _, norm, share = output
        ctx.mark_non_differentiable(norm, share)
        ctx.save_for_backward(*tensors, norm, share)

    @staticmethod
    def backward(ctx, by_picked, by_total, *_):
        h, weight, bias, index, scale, order, count, norm, share = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated
            dh, dw, db, by_scale = _differentiable(h, weight, bias, index, scale, order, count, by_picked, by_total)
            return dh, dw, db, None, by_scale, None, None, None
        rows, need = len(h), ctx.needs_input_grad
        h, index, scale, by_picked, by_total = _in_order(order, h, index, scale, by_picked, by_total)
        inside = _inside(h, count)
        if inside is not None:
            by_picked, by_total = torch.where(inside.unsqueeze(-1), by_picked, 0.0), torch.where(inside, by_total, 0.0)
        with _at_home(h):
            chunks = Chunks(h, weight, bias, count, ctx.plan)
            dh, dw, db = _gradients(chunks, Arrived(index, scale, norm, share, by_picked, by_total), need[:3])
        dh = None if dh is None else _put_back(order, dh, rows)
        dw, db = (None if d is None else d[: len(p)].to(p.dtype) for d, p in ((dw, weight), (db, bias)))
        by_scale = None
        if need[4]:  # d total/d c = sum_y theta_y/(1 + c theta_y) = share/c
            by_scale = _put_back(order, by_total * torch.where(scale > 0, share / scale, 1.0), rows)
        return dh, dw, db, None, by_scale, None, None, None


def _gradients(chunks: Chunks, given: Arrived, need: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """dh, dW and db, of those that are needed."""
    h, width = chunks.h, chunks.width
    dh = torch.zeros_like(h) if need[0] else None
    dw = given.norm.new_zeros(width, h.shape[1]) if need[1] or need[2] else None
    db = given.norm.new_zeros(width) if need[2] else None
    for part, skipped in chunks:
        z = chunks.logits(part, skipped)
        chunks.write(z, part, skipped, given.part(part))
        if dh is not None:
            chunks.of_features(dh, z, part, skipped)
        if dw is not None:
            chunks.add_of_weights(dw, db, z, part, skipped)
    return dh, dw if need[1] else None, db


def _differentiable(h, weight, bias, index, scale, order, count, by_picked, by_total) -> list[Tensor | None]:
    """The gradients of h, weight, bias and scale as functions of all that they depend on."""
    chosen = None
    if order is not None:
        inside = _inside(order, count)
        inside = torch.ones_like(order, dtype=torch.bool) if inside is None else inside
        chosen = _put_back(order, inside, len(h))
    picked, total = plain_terms(h, weight, bias, index, scale, chosen)
    given = (h, weight, bias, scale)
    asked = [value for value in given if value is not None and value.requires_grad]
    summed = (picked * by_picked).sum() + (total * by_total).sum()
    found = torch.autograd.grad(summed, asked, create_graph=True, allow_unused=True)
    by_id = {id(value): gradient for value, gradient in zip(asked, found, strict=True)}
    return [by_id.get(id(value)) for value in given]
