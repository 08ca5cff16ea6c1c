"""Rotation matrices, the vectors that turn them, and unit quaternions.

    hat(a)           the matrix of b -> a x b;       vee(m)    the vector a of the skew part of m, so that vee(hat(a)) = a
    exponential(a)   the rotation by the angle |a| about a:   1 + sinc |a| hat(a) + 1/2 sinc^2(|a|/2) hat(a)^2
    angle_of(r)      w in [0, pi] = atan2(|vee r|, (tr r - 1)/2), accurate at both ends

A unit quaternion (w, x, y, z), its real part first, is a rotation by 2 arccos w about (x, y, z); it and its negative are the
same one, and the one with w >= 0 is returned.  It is read from the largest of the four squares

    4 w^2 = 1 + r00 + r11 + r22,   4 x^2 = 1 + r00 - r11 - r22,   ...

and the products of the others with it, so that nothing cancels.

The rotation nearest to a matrix m in the sum of squares is r = u diag(1, 1, det(u v)) v of its singular values m = u s v.
Their derivative is not finite where two of them agree, as all do at a rotation; that of r is.  With s = r^T m symmetric,

    dr = r hat(a),    (tr s - s) a = 2 vee(r^T dm),

which is the derivative of what is returned.
"""

from math import pi

import torch
from torch import Tensor

from unnoise.shapes import Float

TINY = 1e-12  # lengths below count as this where one is divided by


def hat(a: Float[Tensor, "*rows 3"]) -> Float[Tensor, "*rows 3 3"]:
    x, y, z = a.unbind(-1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).reshape(*a.shape[:-1], 3, 3)


def vee(m: Float[Tensor, "*rows 3 3"]) -> Float[Tensor, "*rows 3"]:
    return 0.5 * torch.stack([m[..., 2, 1] - m[..., 1, 2], m[..., 0, 2] - m[..., 2, 0], m[..., 1, 0] - m[..., 0, 1]], -1)


def exponential(a: Float[Tensor, "*rows 3"]) -> Float[Tensor, "*rows 3 3"]:
    square = a.square().sum(-1, keepdim=True)
    length = square.clamp_min(TINY**2).sqrt().unsqueeze(-1)
    skew = hat(a)
    half = torch.sinc(length / (2 * pi))
    return identity(a) + torch.sinc(length / pi) * skew + 0.5 * half.square() * (skew @ skew)


def identity(like: Tensor) -> Float[Tensor, "3 3"]:
    return torch.eye(3, dtype=like.dtype, device=like.device)


def angle_of(r: Float[Tensor, "*rows 3 3"]) -> Float[Tensor, "*rows"]:
    """Of a rotation; differentiable between 0 and pi."""
    sine = vee(r).square().sum(-1).clamp_min(TINY**2).sqrt()
    return torch.atan2(sine, 0.5 * (r.diagonal(dim1=-2, dim2=-1).sum(-1) - 1))


def from_quaternions(q: Float[Tensor, "*rows 4"]) -> Float[Tensor, "*rows 3 3"]:
    """Of quaternions of any length but 0."""
    real, a = q[..., :1], q[..., 1:]
    skew = hat(a)
    scale = 2 / q.square().sum(-1).clamp_min(TINY**2)
    return identity(q) + scale[..., None, None] * (real.unsqueeze(-1) * skew + skew @ skew)


def to_quaternions(r: Float[Tensor, "*rows 3 3"]) -> Float[Tensor, "*rows 4"]:
    x, y, z = r.diagonal(dim1=-2, dim2=-1).unbind(-1)
    squares = torch.stack([1 + x + y + z, 1 + x - y - z, 1 - x + y - z, 1 - x - y + z], -1)
    a, b = (
        2 * vee(r),
        torch.stack([r[..., 2, 1] + r[..., 1, 2], r[..., 0, 2] + r[..., 2, 0], r[..., 1, 0] + r[..., 0, 1]], -1),
    )
    products = torch.stack(  # row i: 4 q_i q
        [
            torch.cat([squares[..., :1], a], -1),
            torch.stack([a[..., 0], squares[..., 1], b[..., 2], b[..., 1]], -1),
            torch.stack([a[..., 1], b[..., 2], squares[..., 2], b[..., 0]], -1),
            torch.stack([a[..., 2], b[..., 1], b[..., 0], squares[..., 3]], -1),
        ],
        -2,
    )
    best = squares.argmax(-1)[..., None, None].expand(*squares.shape[:-1], 1, 4)
    q = products.gather(-2, best).squeeze(-2)
    q = q / q.norm(dim=-1, keepdim=True)
    return torch.where(q[..., :1] < 0, -q, q)


def nearest(m: Float[Tensor, "*rows 3 3"]) -> Float[Tensor, "*rows 3 3"]:
    """The rotation nearest to a matrix, once differentiable."""
    u, _, v = torch.linalg.svd(m.detach())
    sign = torch.ones_like(u[..., 0])
    sign[..., 2] = torch.linalg.det(u @ v).sign()
    r = (u * sign.unsqueeze(-2)) @ v
    if not m.requires_grad:
        return r
    s = r.mT @ m.detach()
    trace = s.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
    gap = vee(r.mT @ m)
    a = torch.linalg.solve(trace * identity(m) - s, 2 * (gap - gap.detach()))
    return r + r @ hat(a)
