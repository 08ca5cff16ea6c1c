"""Mutation testing: which small mistakes in the package do the tests notice?

    python benchmarks/mutants.py                   200 mutants, drawn by a seed, of the packages in ONLY
      --seed N --count N --only NAME ...           others
      --workers N                                  processes at once
      --minutes N                                  no new mutant after so long; run again to go on
      --limit SECONDS                              of tests for each mutant, by the time that they take unchanged
      --out FOLDER                                 the map of tests, results.jsonl, report.json

A mutant is one expression of one file, changed: a sign, a factor, a term, a comparison, a constant, a condition, a function.
It is put to the quick tests that run its line, fastest first, until one fails: then it is killed.  One that survives is
either the same program, or a mistake that nobody would see.  The map, which lines each test runs, is made first and kept for
as long as neither src/ nor tests/ change; results are kept likewise, so that a run that was cut short goes on.

Some of the chosen sites are also run unchanged (`--controls`): those must survive, for a test that fails by itself kills
every mutant.
"""

import argparse
import json
import os
import random
import shlex
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, replace
from math import sqrt
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from mutating.covering import Map, collect, digest
from mutating.sites import Mutant, files_of, mutants_of
from mutating.trial import prepare, trial

ROOT = Path(__file__).resolve().parents[1]
ONLY = ["processes", "predictions", "objectives", "samplers", "likelihoods", "noise", "laws", "data", "training"]
QUICK = "-m 'not conformance and not campaign'"


def wilson(killed: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share."""
    if not count:
        return 0.0, 1.0
    share, extra = killed / count, z * z / count
    middle, half = share + extra / 2, z * sqrt(share * (1 - share) / count + extra / (4 * count))
    return (middle - half) / (1 + extra), (middle + half) / (1 + extra)


def chosen(root: Path, only: list[str], count: int, seed: int, controls: int) -> list[Mutant]:
    """A random sample of all mutants, and of their sites unchanged; a longer sample begins with a shorter one."""
    every = [mutant for path in files_of(root, only) for mutant in mutants_of(root, path)]
    random.Random(seed).shuffle(every)
    same = dict.fromkeys(replace(mutant, what="control", new=mutant.old) for mutant in every[:controls])
    print(f"{len(every)} mutants of {len({m.path for m in every})} files; {min(count, len(every))} of them, by seed {seed}")
    return [*same, *every[:count]]


# --- in a worker


class Bench:
    """A worker's copy of the tree."""

    tree: Path
    tests: Map
    end: float
    limit: float
    trials = 0


def begin(root: Path, temporary: str, folder: Path, limit: float, end: float) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    Bench.tree, Bench.tests, Bench.limit, Bench.end = Path(temporary) / f"tree-{os.getpid()}", Map.read(folder), limit, end
    prepare(root, Bench.tree)


def put(mutant: Mutant) -> dict[str, Any] | None:
    if time.time() > Bench.end:
        return None
    Bench.trials += 1
    before, after = mutant.lines((Bench.tree / mutant.path).read_bytes())
    outcome = trial(Bench.tree, mutant, Bench.tests.covering(mutant), Bench.limit, Bench.trials)
    return {"name": mutant.name, "before": before, "after": after, **asdict(outcome), **asdict(mutant)}


# --- the whole


def results(file: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {place(row): row for row in rows}


def place(row: dict[str, Any]) -> str:
    return f"{row['path']} {row['start']} {row['end']} {row['what']} {row['new']}"


def test_all(options: argparse.Namespace, mutants: list[Mutant], folder: Path, end: float) -> list[dict[str, Any]]:
    """The rows of these mutants, those found before included."""
    file = folder / "results.jsonl"
    found, names = results(file), [place(vars(m)) for m in mutants]
    left = [mutant for mutant, name in zip(mutants, names, strict=True) if name not in found]
    with tempfile.TemporaryDirectory() as temporary, file.open("a") as written:
        arguments = (options.root, temporary, folder / "map", options.limit, end)
        with get_context("fork").Pool(min(options.workers, max(1, len(left))), begin, arguments) as pool:
            for i, row in enumerate(pool.imap_unordered(put, left), 1):
                if row is None:
                    continue
                written.write(json.dumps(row) + "\n")
                written.flush()
                found[place(row)] = row
                print(f"{i}/{len(left)} {row['verdict']:9} {row['seconds']:5.1f} s  {row['name']}  {row['by']}", flush=True)
    return [found[name] for name in names if name in found]


def report(rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    """What is said of it all; shares count a mutant that no test runs as one that survives."""
    mutants = [row for row in rows if row["what"] != "control"]
    counts = Counter(row["verdict"] for row in mutants)
    judged = len(mutants) - counts["unknown"]
    low, high = wilson(counts["killed"], judged)
    return {
        "seed": seed,
        "mutants": judged,
        **{verdict: counts[verdict] for verdict in ("killed", "survived", "uncovered", "unknown")},
        "share": counts["killed"] / judged if judged else 0.0,
        "interval": [low, high],
        "controls": sum(row["what"] == "control" for row in rows),
        "controls killed": [row["name"] for row in rows if row["what"] == "control" and row["verdict"] == "killed"],
        "survivors": sorted((row for row in mutants if row["verdict"] not in ("killed",)), key=lambda row: row["name"]),
    }


def diff(row: dict[str, Any]) -> str:
    return "".join(
        f"\n    {sign} {line}" for sign, text in (("-", "before"), ("+", "after")) for line in row[text].splitlines()
    )


def told(said: dict[str, Any]) -> str:
    lines = [
        f"{row['verdict']:9} {row['tests']:4} of {row['covering']:4} tests  {row['path']}:{row['line']}  {row['what']}"
        + diff(row)
        for row in said["survivors"]
    ]
    low, high = said["interval"]
    of = ", ".join(f"{said[name]} {name}" for name in ("killed", "survived", "uncovered", "unknown"))
    lines.append(f"{said['mutants']} mutants: {of}; killed {said['share']:.1%}, 95 % interval {low:.1%} to {high:.1%}")
    wrong = said["controls killed"]
    lines.append(f"{said['controls']} controls, {len(wrong)} of them killed" + "".join(f"\n    {name}" for name in wrong))
    return "\n".join(lines)


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--controls", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=ONLY)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "mutants")
    parser.add_argument("--tests", default=QUICK, help="options of pytest: which tests there are")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> dict[str, Any]:
    options = parsed(arguments)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # an accelerator cannot be shared by processes that are forked
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths if path)
    end = time.time() + 60 * options.minutes
    folder = options.out.resolve() / digest(options.root, options.tests)
    mutants = chosen(options.root, options.only, options.count, options.seed, options.controls)
    if not (folder / "map" / "whole").exists() and not collect(
        options.root, folder / "map", options.workers, shlex.split(options.tests), end - time.time()
    ):
        print("the map is not whole yet: run again to go on")
        return {}
    said = report(test_all(options, mutants, folder, end), options.seed)
    (folder / "report.json").write_text(json.dumps(said, indent=1))
    print(told(said), f"{folder / 'report.json'}", sep="\n")
    return said


if __name__ == "__main__":
    main(sys.argv[1:])
