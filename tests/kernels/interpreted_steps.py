"""The fused kernels by Triton's interpreter, on the host, beside the plain ones: run by `test_fused`.

Prints one line for each case: its name, how many of its draws differ, and how many there are.
"""

from dataclasses import replace

import torch
from test_pushed import inputs, matrices
from test_raised import case

from unnoise.kernels import pushed, pushed_fused, raised, raised_fused

PUSHED = {
    "a power of two": (1, 64, 16, 16, torch.float32),
    "no power of two": (1, 37, 10, 10, torch.float32),
    "more states than categories": (1, 21, 12, 11, torch.bfloat16),
    "matrices for each": (3, 20, 7, 5, torch.float32),
    "half precision": (1, 33, 33, 33, torch.float16),
    "two states": (2, 5, 2, 2, torch.float32),
}
RAISED = {
    "one block": (60, 10, 10, 1, torch.float32),
    "more states": (60, 11, 12, 5, torch.bfloat16),
    "several blocks": (20, 3001, 3001, 1, torch.float32),
    "several blocks, several laws": (20, 2048, 2049, 3, torch.float16),
}


def told(name: str, found: torch.Tensor, plain: torch.Tensor) -> None:
    print(f"{name}: {int((found != plain).sum())} of {plain.numel()}")


def far(logits: torch.Tensor, tables: pushed.PushedTables, rows: slice) -> None:
    """The network is sure of category 0, and x_t could only come from others: totals that float32 does not hold."""
    logits[:, rows, 0] = 120.0
    tables.push[:, 1:, 0] = 0.0
    tables.evidence[:, :, 0] = 0.0


def even(count: int) -> torch.Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def laws_of_one_row(count: int = 2**14) -> None:
    """Numbers laid evenly over (0, 1): each finds what the law in float64 has there, but for some 1e-5 of them."""
    tables, (logits, x, _) = matrices(1, 16, 16), inputs(1, 1, 16, 16)
    weights = tables.weights(logits.double(), x).cumsum(-1)
    exact = torch.searchsorted(weights, weights[:, -1:] * even(count), right=True)
    many = logits.expand(1, count, -1), x.expand(1, count), even(count).unsqueeze(0)
    told("pushed, the law", pushed_fused.draw(tables, *many, pushed.LOW, pushed.LEAST), exact)
    logits, known = case(1, 100, 100, 1)
    logits, known = logits.expand(512, -1), known[torch.zeros(512, dtype=torch.int64)]
    known = replace(known, u=even(512), near=torch.ones(512, dtype=torch.float64))
    told("raised, the law", raised_fused.draw(logits, known, raised.SLACK), raised.draw(logits.double(), known))


def main() -> None:
    laws_of_one_row()
    for name, (groups, rows, states, size, dtype) in PUSHED.items():
        tables, (logits, x, u) = matrices(groups, states, size), inputs(groups, rows, states, size, dtype)
        limits = pushed.LOW, pushed.LEAST
        told(f"pushed, {name}", pushed_fused.draw(tables, logits, x, u, *limits), pushed.draw(tables, logits, x, u))
        tables = matrices(groups, states, size)
        far(logits, tables, slice(0, None, 3))
        told(f"pushed again, {name}", pushed_fused.draw(tables, logits, x, u, *limits), pushed.draw(tables, logits, x, u))
    tables, (logits, x, u) = matrices(1, 4, 4), inputs(1, 20, 4, 4)
    tables.push[:] = tables.evidence[:] = torch.eye(4)
    logits[:] = torch.tensor([0.0, -2000.0, -2000.0, -2000.0])
    told("pushed, nothing left", pushed_fused.draw(tables, logits, x, u, pushed.LOW, pushed.LEAST), x)
    for name, (rows, size, states, laws, dtype) in RAISED.items():
        logits, known = case(rows, size, states, laws, dtype)
        told(f"raised, {name}", raised_fused.draw(logits, known, raised.SLACK), raised.draw(logits, known))


if __name__ == "__main__":
    main()
