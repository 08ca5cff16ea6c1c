"""`unnoise verify`: the library, or a part of one's own, against exact answers."""

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

SAMPLERS = "samplers"  # the word for them in --only
Item = TypeVar("Item")


@dataclass(kw_only=True)
class Verify:
    """Check every process x prediction x objective, and the order of every sampler, against exactly solvable problems.

    Exit status 1 if a check fails or none could be made, 2 on bad input.
    """

    only: str | None = None
    """Run the processes whose name contains this, e.g. masking, or uniform/linear,gaussian/ve; samplers for their orders."""

    process: str | None = None
    """Verify a process of your own: package.module:name (a process, or a class or function that makes one)."""

    generator: str | None = None
    """Verify a generator of your own: package.module:name, a Generator, or a verify.Operators with points of its own."""

    schedule: str | None = None
    """Verify a schedule of your own, and every family under it: package.module:name."""

    sampler: str | None = None
    """Verify a sampler of your own: package.module:name, its stated order or that it is exact, and its draws."""

    times: str | None = None
    """Verify a rule of times of your own: package.module:name, its weights and the mean of the bound under it."""

    weighting: str | None = None
    """Verify a weighting of your own: package.module:name, whether it is the bound if it says so, and finite."""

    prediction: str | None = None
    """Verify a kind of prediction of your own: package.module:name, the class."""

    denoiser: str | None = None
    """Verify a denoiser of your own on a small space: package.module:name, its bound, its law and its draws."""

    brief: bool = False
    """One process of each family, and a few samplers: under a minute."""

    thorough: bool = False
    """Take 50 points of each mixture and ten wrong networks instead of 10 and two."""

    json: bool = False
    """Print a list of rows as JSON instead of the table."""

    picture: Path | None = None
    """Draw the samplers' errors over steps into this file, e.g. orders.png."""

    def run(self) -> int:
        wanted, own = self.checked()
        import torch

        from unnoise.verify import OWN, cases, checks, measured, subjects

        others = [part for part in wanted if part.lower() != SAMPLERS]
        methods = [] if own or wanted and len(others) == len(wanted) else cases(self.brief)
        if self.picture is not None and not methods:
            raise ValueError("--picture shows the orders of samplers: leave out --process, or add samplers to --only")
        canvas = figure() if self.picture is not None else None
        chosen = [] if own or wanted and not others else subjects(",".join(others) or None, self.brief)
        torch.set_num_threads(1)  # the tensors are tiny, and threads would only wait for each other
        started, rows = time.monotonic(), list[Any]()
        for option, path in self.shown(own, "part", lambda pair: pair[1]):
            rows.extend(OWN[option](path, self.thorough))
        for subject in self.shown(chosen, "process", lambda subject: subject.name):
            rows.extend(checks(subject, self.thorough))
        found = list[tuple[Any, list[tuple[int, float]]]]()
        for case in self.shown(methods, "sampler", lambda case: case.text):
            row, points = measured(case)
            rows.append(row)
            found.append((case, points))
        counts = [(1, "rule of times" if option == "times" else option, "") for option, _ in own]
        counts += [(len(chosen), "process", "processes"), (len(methods), "order of a sampler", "orders of samplers")]
        self.tell(rows, counts, time.monotonic() - started)
        if canvas is not None and self.picture is not None:
            save(canvas, found, self.picture)
        return 0 if all(row.ok for row in rows) and any(row.verdict != "not checked" for row in rows) else 1

    def checked(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The parts of --only, and what is of one's own as (option, path)."""
        given = {
            "process": self.process,
            "generator": self.generator,
            "schedule": self.schedule,
            "sampler": self.sampler,
            "times": self.times,
            "weighting": self.weighting,
            "prediction": self.prediction,
            "denoiser": self.denoiser,
        }
        own = [(option, path) for option, path in given.items() if path]
        if own and self.only:
            raise ValueError(f"give either --{own[0][0]} or --only")
        if self.brief and (own or self.only or self.thorough):
            named = ", ".join(f"--{option}" for option, _ in own) or "--process"
            raise ValueError(f"--brief chooses the processes itself: leave out {named}, --only and --thorough")
        return [part.strip() for part in self.only.split(",")] if self.only else [], own

    def tell(self, rows: list[Any], counts: list[tuple[int, str, str]], seconds: float) -> None:
        from unnoise.verify import render

        if self.json:
            print(json.dumps([row.json() for row in rows], indent=1))
            return
        failed, left = [row for row in rows if not row.ok], sum(row.verdict == "not checked" for row in rows)
        print(render(rows))
        what = " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
        unchecked = f", {left} not checked" if left else ""
        print(f"\n{len(rows) - left} checks of {what} in {seconds:.0f} s: {len(failed)} failed{unchecked}")
        if left == len(rows):
            print("nothing was checked: every row says what it lacks (exit status 1)")
        if failed:
            print(f"\nfailed:\n{render(failed)}")

    def shown(self, items: list[Item], unit: str, name: Callable[[Item], str]) -> Iterable[Item]:
        """The same, with a bar where someone looks on."""
        from tqdm import tqdm

        with tqdm(items, unit=unit, disable=not sys.stderr.isatty(), file=sys.stderr, leave=False) as bar:
            for item in bar:
                bar.set_description(name(item))
                yield item


def figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("the picture needs matplotlib: pip install 'unnoise[all]'") from None
    return Figure(figsize=(9.5, 13), layout="constrained")


def save(canvas: Any, found: list[tuple[Any, list[tuple[int, float]]]], file: Path) -> None:
    from unnoise.verify.order_picture import draw

    draw(found, canvas)
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=150)
