"""Shows that a rebuilding changed no number: a fixed set of computations, run in two trees and compared bit for bit.

    python benchmarks/unchanged.py compare --before COMMIT      a worktree of COMMIT, and this tree
      --before PATH        another tree, or a file that was recorded (--baseline is the same)
      --after PATH         the same in place of this tree
      --only PATTERN       cases whose name matches, such as 'sample/*'; may be repeated
      --all                every result, not only those that differ
      --json FILE          also writes every row there
    python benchmarks/unchanged.py record --out FILE            of the `unnoise` that is imported

`record` runs on one thread of the CPU and writes, for every result, shape, type, the sha256 of its bytes and the first of
them; a case that raises is recorded as its error.  `compare` runs this very file in both trees, each in a process of its own
(both at once, about two minutes): sampler, steps, kind and seed are always named, and what has another name in one of the
trees goes through `unchanged_cases/adapter.py`.

Exit status 1 if a result differs that `EXPECTED` does not name.  Bits are compared, so both must come from one machine, with
one version of torch.
"""

import argparse
import base64
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np

# What may differ, and why: a pattern of "name: verdict".  "sample/*: differs" is any number of a sample, "*: words" an error
# that is the same but says it in other words.
EXPECTED: dict[str, str] = {
    "fit/schedule*: differs": "a kind says its own squared error weight: the same formula, its gradient in another order",
    "generator/Product-numbers/operator.reversed act: differs": "a sum over leaves, each leaf's terms first: the last digit",
    "likelihood/*/oracle.*: differs": "an oracle of numbers solves once: its derivatives add up in another order",
    "likelihood/dequantised/*: differs": "likewise",
    "sample/Gaussian-*/Ancestral*: differs": "ancestral steps on numbers go by a table: rounded once, the last digits",
    "sample/Product-*/Ancestral*: differs": "likewise",
    "sample/Chain-*/Ancestral*: differs": "likewise",
    "self-condition/*/Ancestral.x*: differs": "likewise",
    "sample/*/Langevin.*: differs": "likewise, its predictor",
    "sample/*/Replacement.*: differs": "likewise",
    "sample/Product-nested/Leaves-*: differs": "likewise, a product among its leaves",
    "self-condition/*.calls: differs": "calls count evaluations of the network, two of them with self-conditioning",
    "self-condition/*.rows: differs": "rows are counted for every one of them",
    "objective/Chain-*: missing": "weightings act on chains too; they were refused",
    "objective/Chain-*: error": "likewise",
    "*: words": "names in messages",
}

HEAD = 4096  # bytes of a result that are kept, to say how large a difference is
HERE = Path(__file__).resolve()


# --- recording


def flattened(value: Any, name: str) -> Iterable[tuple[str, Any]]:
    """The arrays, numbers and texts of a tree, by path."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from flattened(part, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from flattened(part, f"{name}.{i}")
    else:
        yield name, value


def named(name: str, only: list[str]) -> bool:
    """Whether a case, or a result of one, is asked for."""
    return not only or any(fnmatchcase(name, pattern) or fnmatchcase(name, pattern + ".*") for pattern in only)


def described(value: Any) -> dict[str, Any]:
    """A result as it is compared."""
    if isinstance(value, Exception):
        words = re.sub(r"0x[0-9a-f]+|/[^ ]*/", "...", str(value))  # places in memory and folders are of no interest
        return {"error": type(value).__name__, "message": words}
    if value is None or isinstance(value, str):
        text = "None" if value is None else value
        return {"text": text[:400], "sha256": hashlib.sha256(text.encode()).hexdigest()}
    array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value)
    raw = array.tobytes()
    head = base64.b64encode(raw[: HEAD // array.itemsize * array.itemsize]).decode()
    return {"dtype": str(array.dtype), "shape": list(array.shape), "sha256": hashlib.sha256(raw).hexdigest(), "head": head}


def recorded(cases: Iterable[tuple[str, Callable[[], Any]]]) -> dict[str, dict[str, Any]]:
    """The results of cases by name; each starts from the same global seed, and one that raises is its error."""
    import torch

    results: dict[str, dict[str, Any]] = {}
    for name, case in cases:
        torch.manual_seed(0)
        try:
            found = dict(flattened(case(), name))
        except Exception as error:  # whatever it is, it is what this tree does
            found = {name: error}
        for path, value in found.items():
            if path in results:
                raise ValueError(f"two results are called {path}: give the cases names of their own")
            results[path] = described(value)
    return results


def record(out: Path, only: list[str]) -> None:
    import torch

    torch.set_num_threads(1)
    import unchanged_cases
    import unnoise

    began = time.process_time()
    chosen = (pair for pair in unchanged_cases.cases() if named(pair[0], only))
    results = recorded(chosen)
    machine = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
    about = {"torch": torch.__version__, "machine": machine, "threads": torch.get_num_threads()}
    files = [file for file in sorted((HERE.parent / "unchanged_cases").glob("*.py")) if file.name != "adapter.py"]
    cases = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    seconds = round(time.process_time() - began, 1)
    whole = {"about": about, "cases": cases, "library": unnoise.__file__, "seconds": seconds, "results": results}
    out.write_text(json.dumps(whole, indent=0))


# --- comparing


@dataclass(frozen=True)
class Row:
    name: str
    verdict: str  # identical, differs, error (another one, or only one of both), words (of the same error), missing
    detail: str = ""
    reason: str | None = None  # why it may differ

    @property
    def fine(self) -> bool:
        return self.verdict == "identical" or self.reason is not None


def short(found: dict[str, Any]) -> str:
    if "error" in found:
        return f"{found['error']}: {' '.join(found['message'].split())[:150]}"
    return repr(found["text"][:60]) if "text" in found else f"{found['dtype']}{found['shape']}"


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """How far two arrays are apart, as far as their first bytes tell."""
    if "text" in before or "text" in after or (before["dtype"], before["shape"]) != (after["dtype"], after["shape"]):
        return f"{short(before)} -> {short(after)}"
    a, b = (np.frombuffer(base64.b64decode(found["head"]), found["dtype"]) for found in (before, after))
    other = (a != b) & ~((a != a) & (b != b))  # two NaN are the same
    if not other.any():
        return f"beyond the first {len(a)} values, or in the sign of a zero or the bits of a NaN"
    i = int(other.argmax())
    told = f"{int(other.sum())} of {len(a)}, at first {a[i].item()!r} -> {b[i].item()!r} at [{i}]"
    if a.dtype.kind != "f":
        return told
    with np.errstate(all="ignore"):
        gap = np.abs(a[other].astype(float) - b[other].astype(float))
        relative = gap / np.maximum(np.abs(a[other]), np.abs(b[other]))
    return f"at most {np.max(gap):.3g} ({np.max(relative):.3g} of the value); {told}"


def judged(name: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> tuple[str, str]:
    if before is None or after is None:
        return "missing", f"only {'after' if before is None else 'before'}: {short(after or before or {})}"
    if before == after:
        return "identical", ""
    if "error" in before or "error" in after:
        same = before.get("error") == after.get("error")
        return "words" if same else "error", f"{short(before)} -> {short(after)}"
    same = all(before.get(key) == after.get(key) for key in ("dtype", "shape", "sha256"))
    return ("identical", "") if same else ("differs", difference(before, after))


def compare(before: dict[str, Any], after: dict[str, Any], expected: dict[str, str] | None = None) -> list[Row]:
    """A row for each result of either side."""
    rows = []
    for name in [*before, *(name for name in after if name not in before)]:
        verdict, detail = judged(name, before.get(name), after.get(name))
        patterns = EXPECTED if expected is None else expected
        reason = next((why for pattern, why in patterns.items() if fnmatchcase(f"{name}: {verdict}", pattern)), None)
        rows.append(Row(name, verdict, detail, None if verdict == "identical" else reason))
    return rows


def printed(rows: list[Row], every: bool) -> None:
    groups: dict[str, Counter] = {}
    for row in rows:
        group = "/".join(re.split("[-./]", row.name)[:2])
        groups.setdefault(group, Counter())[row.verdict if row.reason is None else "expected"] += 1
    verdicts = ("identical", "differs", "error", "words", "missing", "expected")
    width = max([len(name) for name in groups] + [5])
    print(f"{'group':<{width}}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    for name, counts in sorted(groups.items()):
        print(f"{name:<{width}}" + "".join(f"{counts[verdict] or '·':>11}" for verdict in verdicts))
    for row in rows:
        if every or row.verdict != "identical":
            told = row.verdict if row.reason is None else f"{row.verdict}, expected ({row.reason})"
            print(f"{row.name}: {told}" + (f": {row.detail}" if row.detail else ""))
    count, wrong = Counter(row.verdict for row in rows), sum(not row.fine for row in rows)
    told = ", ".join(f"{count[verdict]} {verdict}" for verdict in verdicts[:-1] if count[verdict])
    print(f"{len(rows)} results: {told}; {wrong} not expected")


def started(tree: Path, out: Path, only: list[str]) -> subprocess.Popen:
    """A process that records a tree; the cases are those beside this file, whichever tree it is."""
    if not (tree / "src" / "unnoise").is_dir():
        raise SystemExit(f"{tree} has no src/unnoise: pass the root of a checkout")
    one = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    env = {**os.environ, **one, "PYTHONPATH": str(tree.resolve() / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-W", "ignore", str(HERE), "record", "--out", str(out)]
    return subprocess.Popen([*command, *(f"--only={pattern}" for pattern in only)], env=env, cwd=out.parent)


def recordings(sides: tuple[Path, Path], only: list[str]) -> list[dict[str, Any]]:
    """What two trees record, both at once, or what was recorded: a side that is a file is read."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [side if side.is_file() else Path(folder) / f"{i}.json" for i, side in enumerate(sides)]
        known = {out: json.loads(out.read_text()) for out in outs if out.is_file()}
        jobs = {out: (tree, started(tree, out, only)) for tree, out in zip(sides, outs, strict=True) if out not in known}
        for out, (tree, job) in jobs.items():
            if job.wait() or not out.exists():
                raise SystemExit(f"the cases could not be recorded in {tree}")
            known[out] = json.loads(out.read_text())
            if not Path(known[out]["library"]).is_relative_to(tree.resolve()):
                raise SystemExit(f"{tree} was to be recorded, but {known[out]['library']} was imported: uninstall that one")
    found = [known[out] for out in outs]
    for what in ("about", "cases"):
        told = [one.get(what) for one in found]
        if told[0] != told[1]:
            print(f"the two were recorded with different {what}, {told[0]} and {told[1]}: record anew", file=sys.stderr)
    for one in found:
        one["results"] = {name: value for name, value in one["results"].items() if named(name, only)}
    return found


def git(*arguments: str) -> None:
    subprocess.run(["git", "-C", str(HERE.parent), *arguments], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one, two = commands.add_parser("record"), commands.add_parser("compare")
    one.add_argument("--out", type=Path, required=True)
    for command in (one, two):
        command.add_argument("--only", action="append", default=[])
    two.add_argument("--before", "--baseline", required=True)
    two.add_argument("--after", type=Path, default=HERE.parents[1])
    two.add_argument("--all", action="store_true")
    two.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "record":
        record(chosen.out, chosen.only)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        before, made = Path(chosen.before), Path(folder) / "before"
        if not before.exists():
            git("worktree", "add", "--detach", "--quiet", str(made), chosen.before)
        try:
            found = recordings((made if made.exists() else before, chosen.after), chosen.only)
        finally:
            if made.exists():
                git("worktree", "remove", "--force", str(made))
    rows = compare(found[0]["results"], found[1]["results"])
    printed(rows, chosen.all)
    print(f"processor time: {found[0]['seconds']} s before, {found[1]['seconds']} s after")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=0))
    return int(not all(row.fine for row in rows))


if __name__ == "__main__":
    sys.exit(main())
