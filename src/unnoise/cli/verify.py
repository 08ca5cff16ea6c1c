"""`unnoise verify`: the library, or a user's process, against exact answers."""

import json
import sys
import time
from dataclasses import dataclass

import torch
from tqdm import tqdm

from unnoise.verify import Row, checks, render, subjects, user_subject


@dataclass(kw_only=True)
class Verify:
    """Check every process x prediction x objective against exactly solvable problems and print the table.

    Exit status 1 if a check fails, 2 on bad input.
    """

    only: str | None = None
    """Run the processes whose name contains this, e.g. masking, or uniform/linear,gaussian/ve."""

    process: str | None = None
    """Verify a process of your own: package.module:name (a process, or a class or function that makes one)."""

    brief: bool = False
    """One process of each family: under a minute."""

    thorough: bool = False
    """Take 50 points of each mixture and ten wrong networks instead of 10 and two."""

    json: bool = False
    """Print a list of rows as JSON instead of the table."""

    def run(self) -> int:
        if self.process and self.only:
            raise ValueError("give either --process or --only")
        if self.brief and (self.process or self.only or self.thorough):
            raise ValueError("--brief chooses the processes itself: leave out --process, --only and --thorough")
        chosen = [user_subject(self.process)] if self.process else subjects(self.only, self.brief)
        torch.set_num_threads(1)  # the tensors are tiny, and threads would only wait for each other
        started, rows = time.monotonic(), list[Row]()
        with tqdm(chosen, unit="process", disable=not sys.stderr.isatty(), file=sys.stderr, leave=False) as bar:
            for subject in bar:
                bar.set_description(subject.name)
                rows.extend(checks(subject, self.thorough))
        failed = [row for row in rows if not row.ok]
        if self.json:
            print(json.dumps([row.json() for row in rows], indent=1))
        else:
            print(render(rows))
            seconds = time.monotonic() - started
            noun = "process" if len(chosen) == 1 else "processes"
            print(f"\n{len(rows)} checks of {len(chosen)} {noun} in {seconds:.0f} s: {len(failed)} failed")
            if failed:
                print(f"\nfailed:\n{render(failed)}")
        return 1 if failed else 0
