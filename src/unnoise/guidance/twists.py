"""Factors of the data, and what is said of them on the way.

A factor h(x_0) multiplies a law.  Seen from x_t the best that one could know is E[h(x_0) | x_t]; any other positive function
h_t that becomes h at t = 0 leaves the law at the end alone, and makes the weights on the way more or less even.

    on_the_way(prediction)     (log h_t at its states, the prediction tilted towards it): None where nothing is known
    at_the_end(x0, condition)  log h of data
    of_rows(condition)         the factor as it is for these rows, and what of their condition is left for networks
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import isfinite, log
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions import InexactConversion, Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, first_leaf


class Twist(ABC):
    def refuse(self, process: Process) -> str | None:
        """Why it does not speak of a process; None where it does."""
        return None

    def on_the_way(self, prediction: Prediction) -> tuple[Float[Tensor, "batch"] | None, Prediction]:
        return None, prediction

    @abstractmethod
    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]: ...

    def of_rows(self, condition: dict[str, Any]) -> tuple["Twist", dict[str, Any]]:
        return self, condition


class LeafTwist(Twist):
    """A factor of one leaf; `leaf` is its path in a product, ("text",), or () for a process that is one leaf."""

    def __init__(self, leaf: str | tuple[str, ...] = ()):
        self.leaf = (leaf,) if isinstance(leaf, str) else tuple(leaf)

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def refuse_leaf(self, process: Process) -> str | None:
        """Why it does not speak of this process, which is one leaf; None where it does."""

    @abstractmethod
    def led(self, prediction: Any) -> tuple[Float[Tensor, "batch"], Prediction]:
        """`on_the_way` on the leaf."""

    def refuse(self, process: Process) -> str | None:
        try:
            return self.refuse_leaf(leaf_at(process, self.leaf, self.name))
        except TypeError as error:
            return str(error)

    def on_the_way(self, prediction: Prediction) -> tuple[Float[Tensor, "batch"] | None, Prediction]:
        return self._at(prediction, self.leaf)

    def _at(self, prediction: Prediction, path: tuple[str, ...]) -> tuple[Tensor, Prediction]:
        if not path:
            return self.led(prediction)
        whole: Any = prediction.by_leaf()
        log_h, led = self._at(whole.leaves[path[0]], path[1:])
        leaves = {**whole.leaves, path[0]: led}
        return log_h, ProductPrediction(leaves, whole.process, whole.x_t, whole.t)


def leaf_at(process: Process, path: tuple[str, ...], name: str) -> Process:
    """The leaf of a product at a path; or an error that says what `name` asks for."""
    own: Any = process
    for part in path:
        if part not in own.leaves:
            raise TypeError(f"there is no leaf {part!r} for the {name}; the leaves are {sorted(own.leaves)}")
        own = own.leaves[part]
    if own.leaves:
        raise TypeError(f"the {name} speaks of one leaf: name its leaf, leaf={sorted(own.leaves)[0]!r}")
    return own


def numbers_of(function: Callable[..., Any], x0: Tree, what: str) -> Tensor:
    """What a function says of each row of data."""
    try:
        value = function(x0)
    except Exception as error:
        raise ValueError(f"the {what} stopped with {type(error).__name__}: {error}") from error
    value = torch.as_tensor(value, device=first_leaf(x0).device)
    if tuple(value.shape) != (batch_size(x0),):
        raise ValueError(f"the {what} returned shape {tuple(value.shape)}; expected one number per row, ({batch_size(x0)},)")
    return value


def estimated(prediction: Prediction, noise: NoiseSource) -> Tree | None:
    """Data that may lie behind x_t: the mean of numbers, drawn categories; None where a prediction says neither."""
    if isinstance(prediction, ProductPrediction):
        parts = {name: estimated(leaf, noise.at(name)) for name, leaf in prediction.leaves.items()}
        return None if any(part is None for part in parts.values()) else parts  # type: ignore[return-value]
    clean_law = getattr(prediction, "clean_law", None)
    try:
        return prediction.clean() if clean_law is None else clean_law().draw(noise)
    except InexactConversion:
        return None


class Reward(Twist):
    """h = exp(strength r(x_0)); on the way the mean of it over `draws` estimates of x_0 (0: nothing is said there).

    Estimates follow a prediction's mean for numbers and its law of single coordinates for categories.  All rows and times
    share the numbers by which they are drawn, so that particles are compared on equal terms, and a sample does not depend on
    its batch; whatever the estimates are, they are taken back in the next step.
    """

    def __init__(self, reward: Callable[..., Any], strength: float = 1.0, draws: int = 1):
        if not isfinite(strength):
            raise ValueError(f"strength = {strength}: it must be a number")
        if draws < 0:
            raise ValueError(f"draws = {draws}: 0 says nothing on the way, more look ahead")
        self.reward, self.strength, self.draws = reward, float(strength), draws

    def on_the_way(self, prediction: Prediction) -> tuple[Float[Tensor, "batch"] | None, Prediction]:
        values = []
        for k in range(self.draws):
            leaf = first_leaf(prediction.x_t)
            common = NoiseSource(0, torch.zeros(len(leaf), dtype=torch.int64), leaf.device).at("reward", k)
            x0 = estimated(prediction, common)
            if x0 is None:
                return None, prediction
            values.append(self._of(x0))
        if not values:
            return None, prediction
        return torch.stack(values).logsumexp(0) - log(len(values)), prediction

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        return self._of(x0)

    def _of(self, x0: Tree) -> Float[Tensor, "batch"]:
        value = numbers_of(self.reward, x0, "reward").double()
        bad = ~value.isfinite()
        if bool(bad.any()):
            i = int(bad.nonzero()[0, 0])
            raise ValueError(
                f"the reward of row {i} is {value[i].item():g}: a reward is a finite number; say what must not happen by a "
                f"rule, un.targets.restricted"
            )
        return self.strength * value


class Ends(Twist):
    """h = 1 where the data is allowed and 0 elsewhere; nothing is known on the way."""

    def __init__(self, allowed: Callable[..., Any]):
        self.allowed = allowed

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        allowed = numbers_of(self.allowed, x0, "rule").bool()
        return torch.where(allowed, 0.0, -torch.inf).double()
