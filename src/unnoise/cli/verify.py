"""`unnoise verify`: the library, or a user's process, against exact answers."""

import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from tqdm import tqdm

from unnoise.verify import Row, cases, checks, measured, render, subjects, user_subject
from unnoise.verify.orders import Case

SAMPLERS = "samplers"  # the word for them in --only
Item = TypeVar("Item")


@dataclass(kw_only=True)
class Verify:
    """Check every process x prediction x objective, and the order of every sampler, against exactly solvable problems.

    Exit status 1 if a check fails, 2 on bad input.
    """

    only: str | None = None
    """Run the processes whose name contains this, e.g. masking, or uniform/linear,gaussian/ve; samplers for their orders."""

    process: str | None = None
    """Verify a process of your own: package.module:name (a process, or a class or function that makes one)."""

    brief: bool = False
    """One process of each family, and a few samplers: under a minute."""

    thorough: bool = False
    """Take 50 points of each mixture and ten wrong networks instead of 10 and two."""

    json: bool = False
    """Print a list of rows as JSON instead of the table."""

    picture: Path | None = None
    """Draw the samplers' errors over steps into this file, e.g. orders.png."""

    def run(self) -> int:
        if self.process and self.only:
            raise ValueError("give either --process or --only")
        if self.brief and (self.process or self.only or self.thorough):
            raise ValueError("--brief chooses the processes itself: leave out --process, --only and --thorough")
        wanted = [part.strip() for part in self.only.split(",")] if self.only else []
        others = [part for part in wanted if part.lower() != SAMPLERS]
        methods = [] if self.process or wanted and len(others) == len(wanted) else cases(self.brief)
        if self.picture is not None and not methods:
            raise ValueError("--picture shows the orders of samplers: leave out --process, or add samplers to --only")
        canvas = figure() if self.picture is not None else None
        if self.process:
            chosen = [user_subject(self.process)]
        else:
            chosen = [] if wanted and not others else subjects(",".join(others) or None, self.brief)
        torch.set_num_threads(1)  # the tensors are tiny, and threads would only wait for each other
        started, rows = time.monotonic(), list[Row]()
        for subject in self.shown(chosen, "process", lambda subject: subject.name):
            rows.extend(checks(subject, self.thorough))
        found = list[tuple[Case, list[tuple[int, float]]]]()
        for case in self.shown(methods, "sampler", lambda case: case.text):
            row, points = measured(case)
            rows.append(row)
            found.append((case, points))
        failed = [row for row in rows if not row.ok]
        if self.json:
            print(json.dumps([row.json() for row in rows], indent=1))
        else:
            print(render(rows))
            counts = [(len(chosen), "process", "processes"), (len(methods), "order of a sampler", "orders of samplers")]
            what = " and ".join(f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
            print(f"\n{len(rows)} checks of {what} in {time.monotonic() - started:.0f} s: {len(failed)} failed")
            if failed:
                print(f"\nfailed:\n{render(failed)}")
        if canvas is not None and self.picture is not None:
            save(canvas, found, self.picture)
        return 1 if failed else 0

    def shown(self, items: list[Item], unit: str, name: Callable[[Item], str]) -> Iterable[Item]:
        """The same, with a bar where someone looks on."""
        with tqdm(items, unit=unit, disable=not sys.stderr.isatty(), file=sys.stderr, leave=False) as bar:
            for item in bar:
                bar.set_description(name(item))
                yield item


def figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ValueError("the picture needs matplotlib: pip install 'unnoise[plot]'") from None
    return Figure(figsize=(9.5, 13), layout="constrained")


def save(canvas: Any, found: list[tuple[Case, list[tuple[int, float]]]], file: Path) -> None:
    from unnoise.verify.order_picture import draw

    draw(found, canvas)
    file.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(file, dpi=150)
