"""The Triton kernels of a linear head, run by Triton's interpreter on the CPU, against all logits at once.

Run as a program, in a process of its own: the interpreter is chosen when Triton is imported.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
from triton.runtime import interpreter

from unnoise.kernels import head_chunks, head_passes
from unnoise.kernels.head import head_terms, plain_terms
from unnoise.kernels.head_chunks import ChunkPlan

DEPTH = 24
TOLERANCE = {torch.float32: 3e-6, torch.float16: 4e-3, torch.float64: 1e-12}  # in relation to the largest entry
CASES = [  # rows, size, bias, indices, scaled, share that is chosen, precision
    (41, 53, True, 1, False, 0.0, torch.float32),
    (41, 53, True, 1, False, 0.3, torch.float32),
    (41, 64, False, 2, True, 0.8, torch.float32),
    (41, 130, True, 2, True, None, torch.float32),
    (41, 53, True, 1, False, 1.0, torch.float16),
    (41, 53, True, 2, True, 0.6, torch.float64),
    (1, 53, False, 1, False, 1.0, torch.float32),
]


def let_scalars_be_numbers() -> None:
    """The interpreter's scalars are arrays of one entry, which newer versions of numpy do not take for numbers."""
    plain = interpreter._patch_lang_tensor

    def patched(tensor, scope):
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._patch_lang_tensor = patched


def graded(terms, inputs, by):
    picked, total = terms
    return [picked, total, *torch.autograd.grad((picked * by[0]).sum() + (total * by[1]).sum(), inputs)]


def compare(rows, size, bias, indices, scaled, share, dtype) -> float:
    """The largest error, in relation to what is tolerated."""
    h, weight = (0.5 * torch.randn(n, DEPTH) for n in (rows, size))
    inputs = [value.to(dtype).requires_grad_() for value in (h, weight, *([torch.randn(size)] if bias else []))]
    index = torch.randint(size, (rows, indices))
    index[: rows // 4, -1] = index[: rows // 4, 0]
    scale = 30 * torch.rand(rows, dtype=head_passes.precision(dtype)) if scaled else None
    chosen = None if share is None else torch.rand(rows) < share
    by = torch.randn(rows, indices), torch.randn(rows)
    plan = ChunkPlan(held=16 * 192, aligned=64, likely=0.4, block=32, warps=1, tile=(16, 16, 16))
    b = inputs[2] if bias else None
    found = graded(head_terms(*inputs[:2], b, index, scale, chosen, plan), inputs, by)
    wanted = graded(plain_terms(*inputs[:2], b, index, scale, chosen), inputs, by)
    errors = [float((a - b).abs().max() / b.abs().max().clamp_min(1e-6)) for a, b in zip(found, wanted, strict=True)]
    return max(errors) / TOLERANCE[dtype]


def extremes() -> float:
    """Large logits, banned categories, scales close to 0, and an index that is no category."""
    z = 3e4 * torch.randn(5, 64)
    z[:, 3:40] = -torch.inf
    z[:, 50:] = torch.inf  # the room behind 50 categories, which is not looked at
    index, scale = torch.tensor([[41], [42], [0], [1], [50]]), torch.tensor([1e-9, 1e-7, 1e-5, 1.0, 1e30])
    out, plain = (head_passes.empty_statistics(index, torch.float32) for _ in range(2))
    head_passes.read(z, 50, index, scale, out, block=16)
    head_passes.plain_read(z, 50, index.clamp_max(49), scale, plain)
    assert bool(out.picked[4].isnan().all())
    found, wanted = torch.stack([out.norm, out.total, out.share]), torch.stack([plain.norm, plain.total, plain.share])
    wrong = ((found - wanted).abs() / wanted.abs()).max(), ((out.picked - plain.picked)[:4].abs() / 1e5).max()
    return float(torch.stack(wrong).max()) / 1e-5


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    let_scalars_be_numbers()
    head_chunks.WHOLE = 16
    worst = [compare(*case) for case in CASES] + [extremes()]
    print(" ".join(f"{value:.3f}" for value in worst))
    sys.exit(0 if max(worst) <= 1 else 1)


if __name__ == "__main__":
    main()
