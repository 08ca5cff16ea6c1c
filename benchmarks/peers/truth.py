"""Formulas in 50 digits at the times of a table."""

from collections.abc import Callable
from typing import Any

import mpmath as mp
import torch
from torch import Tensor

mp.mp.dps = 50
TIMES = torch.tensor([0.01, 0.1, 0.35, 0.5, 0.8, 0.99], dtype=torch.float64)


def exact(formula: Callable[[Any], Any], times: Tensor = TIMES) -> Tensor:
    return torch.tensor([float(formula(mp.mpf(t))) for t in times.tolist()], dtype=torch.float64)


def slope(formula: Callable[[Any], Any], times: Tensor = TIMES) -> Tensor:
    return exact(lambda t: mp.diff(formula, t), times)
