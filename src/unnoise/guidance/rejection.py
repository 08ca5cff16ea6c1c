"""Drawing until enough samples satisfy a rule: exact for any model and any method.

Attempts are numbered 0, 1, 2, ..., and attempt k is a function of the seed and k.  Sample i is the i-th that satisfies the
rule, so it is a function of the seed and i, however many are drawn at a time, and its law is the model's own given the rule:
what is let through does not depend on what was let through before.

There may be several ways to make attempts; which one is taken is decided by the first PILOT attempts of each, so it does not
depend on how many samples are asked for either.

Of m attempts k were let through: log(k / m) estimates the log of the rule's probability, its error is
sqrt((1 - k / m) / k), the binomial's.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import ceil, inf, log, nan

from torch import Tensor
from tqdm.auto import tqdm

from unnoise.samplers import Info
from unnoise.samplers.parts import joined
from unnoise.shapes import Bool, Tree
from unnoise.tree import join, rows

PILOT = 256  # attempts by which a way is judged
MOST = 65_536  # attempts between two looks
EACH, LEAST = 100, 10_000  # attempts for each sample, and in any case, before it is given up

Attempt = Callable[[int, int], tuple[Tree, Bool[Tensor, "attempts"], Info]]  # first, count: samples, which of them pass


class NothingHeld(RuntimeError):
    """No row satisfied the rule."""


@dataclass(frozen=True)
class Way:
    """One way to make attempts.  If fewer than a share `least` of the first PILOT pass, the next way is tried.

    `log_first` is the log of the probability of what its attempts satisfy by construction, `error` that of it, and `info`
    what it took to find that out.
    """

    tried: Attempt
    least: float = 0.0
    name: str = "rejection"
    log_first: float = 0.0
    error: float = 0.0
    info: Info | None = None


@dataclass(frozen=True)
class RejectionRecord:
    """Of `drawn` attempts by a way `passed` satisfied the rule; `before` were made by others, and none of those is kept."""

    drawn: int
    passed: int
    way: str = "rejection"
    before: int = 0
    log_first: float = 0.0
    error_first: float = 0.0

    @property
    def acceptance(self) -> float:
        return self.passed / self.drawn

    def estimate(self) -> tuple[float, float]:
        """(log of the rule's probability, standard error of that)."""
        if not self.passed:
            return -inf, nan
        own = (1 - self.acceptance) / self.passed
        return self.log_first + log(self.acceptance), (own + self.error_first**2) ** 0.5


def attempts_for(n: int) -> int:
    return max(LEAST, EACH * n)


def until(ways: Iterable[Way], n: int, attempts: int, progress: bool = False) -> tuple[Tree, Info]:
    """The first n samples that pass, or all of so many attempts that do; and what all attempts took."""
    others = iter(ways)
    search = Search(next(others))
    with tqdm(total=n, unit="row", disable=not progress, leave=False) as bar:
        while search.passed < n and search.last < attempts:
            search.go_on(n, attempts)
            if search.failure is not None:
                break
            if search.disappoints and search.last + PILOT <= attempts and (other := next(others, None)) is not None:
                search.change(other)
            bar.n = min(n, search.passed)
            bar.refresh()
    return rows(join(search.found), slice(n)), search.info()


class Search:
    """How far attempts have come, and by which way."""

    def __init__(self, way: Way):
        self.way, self.infos = way, list[Info]()
        self.first = self.last = self.passed = 0  # attempts first ... last - 1 were made by this way
        self.found = list[Tree]()
        self.failure: str | None = None  # why no more attempts could be made

    @property
    def drawn(self) -> int:
        return self.last - self.first

    @property
    def disappoints(self) -> bool:
        return self.drawn == PILOT and self.passed < self.way.least * PILOT

    def go_on(self, n: int, attempts: int) -> None:
        try:
            x, holds, info = self.way.tried(self.last, min(self._next(n - self.passed), attempts - self.last))
        except ValueError as error:
            if not self.passed:
                raise
            self.failure = str(error)
            return
        self.failure = info.failure
        self.found.append(rows(x, holds.nonzero().squeeze(1)))
        self.infos.append(info)
        self.last, self.passed = self.last + len(holds), self.passed + int(holds.sum())

    def _next(self, wanted: int) -> int:
        """How many attempts to make before the next look: about as many as it will take."""
        if not self.drawn:
            return PILOT
        likely = ceil(1.1 * wanted * self.drawn / self.passed) if self.passed else 2 * self.drawn
        return min(MOST, max(PILOT, likely))

    def change(self, way: Way) -> None:
        """What was found is not kept, for whether it was enough has decided; attempts go on being numbered."""
        self.way, self.first, self.passed, self.found = way, self.last, 0, []
        self.infos += [] if way.info is None else [way.info]

    def info(self) -> Info:
        way = self.way
        record = RejectionRecord(self.drawn, self.passed, way.name, self.first, way.log_first, way.error)
        return replace(joined(self.infos), rejection=record, way=self.infos[-1].way, failure=self.failure)
