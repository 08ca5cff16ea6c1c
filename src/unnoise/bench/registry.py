"""The rows of the table, by name: a list that others add to.

    from unnoise.bench import Figure, BenchSetting, register, taken

    @register("mine", "what it measures")
    def mine(setting: BenchSetting) -> list[Figure]:
        found = taken({"floor": ..., "ours": ...}, setting.device)
        return [Figure(what="...", ours=found["ours"], floor=found["floor"], floor_is="...")]

`unnoise bench --load my_module --only mine` prints it.  A row that raises is shown as failed, and the others go on.
"""

import gc
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from unnoise.bench.figures import Figure
from unnoise.bench.setting import BenchSetting

Measure = Callable[[BenchSetting], Iterable[Figure]]


@dataclass(frozen=True)
class BenchRow:
    """One entry of the table: its name, what it is in a few words, and what measures it."""

    name: str
    about: str
    measure: Measure

    def figures(self, setting: BenchSetting) -> list[Figure]:
        """Its lines; one that says why where it cannot be measured."""
        found: list[Figure] = []
        try:
            found.extend(figure.named(self.name) for figure in self.measure(setting))
        except Exception as error:  # whatever a row does wrong, the others go on
            reason = " ".join(str(error).split())[:300]
            found.append(Figure(row=self.name, what=self.about, error=f"{type(error).__name__}: {reason}"))
        gc.collect()
        if setting.device.type == "cuda":
            torch.cuda.empty_cache()
        return found


ROWS: dict[str, BenchRow] = {}
FIRST = (
    "masking",
    "numbers",
    "multistep",
    "masked-training",
    "uniform-training",
    "bound",
    "small-steps",
    "table",
    "digits",
    "training",
)


def register(name: str, about: str) -> Callable[[Measure], Measure]:
    """Add a row: a function from the setting to its figures."""

    def add(measure: Measure) -> Measure:
        known = ROWS.get(name)
        if known is not None and known.measure.__module__ != measure.__module__:
            raise ValueError(f"there is a row {name!r} already, of {known.measure.__module__}: choose another name")
        ROWS[name] = BenchRow(name, about, measure)
        return measure

    return add


def chosen(only: Iterable[str] = ()) -> list[BenchRow]:
    """The rows of these names, all of them where none is named."""
    names = list(only)
    unheard = [name for name in names if name not in ROWS]
    if unheard:
        raise ValueError(f"--only {unheard[0]}: there is no such row: choose from {', '.join(ROWS)}")
    order = [*(name for name in FIRST if name in ROWS), *(name for name in ROWS if name not in FIRST)]
    return [ROWS[name] for name in order if not names or name in names]
