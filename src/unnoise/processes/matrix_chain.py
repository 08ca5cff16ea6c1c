"""A chain by its matrices: any Q_{i|i-1} for i = 1 ... T (eq:def-transition-matrix), such as those of D3PM.

    Q_{j|i} = Q_{j|j-1} ... Q_{i+1|i}         (the latest factor stands on the left, eq:t|s-dt-dp-transition)

There need be no process in continuous time behind it, so it has no generator: what asks for one is refused by name, and
its bound is the sum of T divergences of kernels.  Entry [y, x] of a matrix is the probability of x -> y.
`unnoise.d3pm` builds the usual ones.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.generators import Generator, Local
from unnoise.processes.chain import Chain
from unnoise.processes.dense import DenseProcess
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Finite


def _no_generator() -> TypeError:
    return TypeError(
        "a chain by matrices has no generator: it is defined on its grid only. Use its T-step bound and kernels, or a "
        "process in continuous time, such as RateMatrix"
    )


class _Steps(DenseProcess):
    """The kernels at the grid's times; a time between them is refused."""

    has_generator = False
    steps: Tensor
    cumulative: Tensor

    def __init__(self, matrices: Tensor, shape: int | Sequence[int], size: int | None):
        super().__init__()
        matrices = torch.as_tensor(matrices).double()
        if matrices.ndim != 3 or matrices.shape[1] != matrices.shape[2] or not len(matrices):
            raise ValueError(
                f"matrices of shape {tuple(matrices.shape)}: pass [steps, states, states], entry [i, y, x] of x -> y"
            )
        count, states = matrices.shape[:2]
        bad = ~((matrices >= 0) & matrices.isfinite())
        if bool(bad.any()):
            i, y, x = bad.nonzero()[0].tolist()
            raise ValueError(
                f"step {i + 1} of {count}: the probability of {x} -> {y}, entry [{y}, {x}], is {matrices[i, y, x].item():g}"
            )
        totals = matrices.sum(1)
        if bool(((totals - 1).abs() > 1e-6).any()):
            i, x = ((totals - 1).abs() > 1e-6).nonzero()[0].tolist()
            rows = bool(((matrices.sum(2) - 1).abs() <= 1e-6).all())
            raise ValueError(
                f"step {i + 1} of {count}: column {x} sums to {totals[i, x].item():g}, not 1"
                + ("; its rows do, so transpose the matrices (entry [y, x] is the probability of x -> y)" if rows else "")
            )
        matrices = matrices / totals.unsqueeze(1)
        size = states if size is None else size
        if not 0 < size <= states:
            raise ValueError(f"size = {size} categories, but the matrices have {states} states")
        self.space, self.state_space = Finite(size, shape), Finite(states, shape)
        product = [torch.eye(states, dtype=torch.float64)]
        for step in matrices:
            product.append(step @ product[-1])
        self.register_buffer("steps", matrices, persistent=False)
        self.register_buffer("cumulative", torch.stack(product), persistent=False)
        self.cutoff = 0.0

    def index(self, t: Tensor) -> Tensor:
        count = len(self.steps)
        i = (t * count).round()
        if t.device.type == "cpu" and bool(((t * count - i).abs() > 1e-4).any()):
            off = t[(t * count - i).abs() > 1e-4][0].item()
            raise ValueError(f"t = {off:.6g} is not on the chain's grid of {count} steps: pass one of chain.grid")
        return i.long()

    def kernel(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        j = self.index(t)
        if s is None:
            return self.cumulative[j]
        i = self.index(s)
        if int((j - i).max()) == 1:
            return self.steps[i]
        first, last = int(i.min()), int(j.max())
        total = torch.eye(self.state_space.size, dtype=torch.float64, device=t.device).expand(len(t), -1, -1)
        for k in range(first, last):
            inside = ((k >= i) & (k < j))[:, None, None]
            total = torch.where(inside, self.steps[k] @ total, total)
        return total

    def rates(self, t: Tensor) -> Tensor:
        raise _no_generator()

    def entered(self) -> Tensor:
        if not hasattr(self, "_entered"):
            eye = torch.eye(self.state_space.size, dtype=torch.bool, device=self.steps.device)
            self._entered = ((self.steps > 0).any(0) & ~eye).any(1)
        return self._entered

    def noiseless(self, t: float) -> bool:
        return bool(self.index(torch.tensor([t], dtype=torch.float64)) == 0)


class MatrixChain(Chain):
    """`MatrixChain(matrices, shape)`: T steps, at the times 0, 1/T, ..., 1; `size` below the matrices' adds noise states."""

    def __init__(self, matrices: Tensor, shape: int | Sequence[int] = (), size: int | None = None):
        steps = _Steps(matrices, shape, size)
        super().__init__(steps, torch.linspace(0, 1, len(steps.steps) + 1, dtype=torch.float64))

    @property
    def matrices(self) -> Float[Tensor, "steps size size"]:
        assert isinstance(self.process, _Steps)
        return self.process.steps

    def local(self, x: AnyState, t: Clock) -> Tree[Local]:
        raise _no_generator()

    def generator(self, t: float) -> Generator:
        raise _no_generator()

    def extra_repr(self) -> str:
        return f"steps={self.steps}"
