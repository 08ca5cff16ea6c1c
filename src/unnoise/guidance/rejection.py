"""Drawing until enough samples satisfy a rule: exact for any model and any method.

Attempts are numbered 0, 1, 2, ..., and attempt k is a function of the seed and k.  Sample i is the i-th that satisfies the
rule, so it is a function of the seed and i, however many are drawn at a time, and its law is the model's own given the rule:
what is let through does not depend on what was let through before.

Of m attempts k were let through: log(k / m) estimates the log of the rule's probability, its error is
sqrt((1 - k / m) / k), the binomial's.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf, log, nan

from torch import Tensor
from tqdm.auto import tqdm

from unnoise.samplers import Info
from unnoise.samplers.parts import joined
from unnoise.shapes import Bool, Tree
from unnoise.tree import join, rows

PILOT = 256  # attempts from which the share that is let through is first judged
MOST = 65_536  # attempts between two looks
EACH, LEAST = 100, 10_000  # attempts for each sample, and in any case, before it is given up

Attempt = Callable[[int, int], tuple[Tree, Bool[Tensor, "attempts"], Info]]  # first, count: samples, which of them pass


class NothingHeld(RuntimeError):
    """No row satisfied the rule."""


@dataclass(frozen=True)
class RejectionRecord:
    """Of `drawn` attempts `passed` satisfied the rule."""

    drawn: int
    passed: int

    @property
    def acceptance(self) -> float:
        return self.passed / self.drawn

    def estimate(self) -> tuple[float, float]:
        """(log of the rule's probability, standard error of that)."""
        if not self.passed:
            return -inf, nan
        return log(self.acceptance), ((1 - self.acceptance) / self.passed) ** 0.5


def attempts_for(n: int) -> int:
    return max(LEAST, EACH * n)


def until(tried: Attempt, n: int, attempts: int, progress: bool = False) -> tuple[Tree, Info]:
    """The first n samples that pass, or all of so many attempts that do; and what all attempts took."""
    found, infos, drawn, passed = list[Tree](), list[Info](), 0, 0
    with tqdm(total=n, unit="row", disable=not progress, leave=False) as bar:
        while passed < n and drawn < attempts:
            count = min(attempts - drawn, _next(n - passed, drawn, passed))
            x, holds, info = tried(drawn, count)
            kept = holds.nonzero().squeeze(1)
            found.append(rows(x, kept[: n - passed]))
            infos.append(info)
            bar.update(min(len(kept), n - passed))
            drawn, passed = drawn + count, passed + len(kept)
    return join(found), replace(joined(infos), rejection=RejectionRecord(drawn, passed))


def _next(wanted: int, drawn: int, passed: int) -> int:
    """How many attempts to make before the next look: about as many as it will take."""
    if not drawn:
        return max(PILOT, min(wanted, MOST))
    return min(MOST, max(PILOT, ceil(1.1 * wanted * drawn / passed) if passed else 2 * drawn))
