"""Where the time of `unnoise sample` goes: a process from its start to the file it writes.

    python benchmarks/draw_startup.py RUN [-n 32561] [--steps N] [--precision bf16] [--batch N] [--repeats 2] [--imports]

Prints, for each of several processes, the seconds until its modules are there, to open the run (weights read and checked,
network built), to draw (on an accelerator the context and the first kernels among them) and to write; how many rows were
drawn at a time and how their kernels were launched.  The first process also fills the caches of kernels and files that the
later ones find.  With --imports, what is imported and how long each takes.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def once(arguments: list[str], flags: list[str]) -> tuple[float, dict, str]:
    """(seconds of a process, what it says of itself, what it printed beside that)."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, *flags, "-m", "unnoise", "sample", *arguments, "--json", "--out", f"{folder}/samples"]
        command[-1] += suffix_of(Path(arguments[0]))
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        took = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(done.stderr)
    return took, json.loads(done.stdout.strip().splitlines()[-1]), done.stderr


def suffix_of(run: Path) -> str:
    from unnoise.training.run import Run

    return Run.open(run).format().suffix


def imports(told: str, most: int = 20) -> list[tuple[float, str]]:
    """Modules by the seconds they took with all that they import, of `python -X importtime`."""
    lines = [line.split("|") for line in told.splitlines() if line.startswith("import time:") and "cumulative" not in line]
    return sorted(((int(line[1]) / 1e6, line[2].strip()) for line in lines), reverse=True)[:most]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--imports", action="store_true")
    parser.add_argument("--json", action="store_true")
    for name in ("steps", "batch", "precision", "device"):
        parser.add_argument(f"--{name}")
    args = parser.parse_args()
    arguments = [str(args.run), "-n", str(args.n)]
    for name in ("steps", "batch", "precision", "device"):
        if getattr(args, name) is not None:
            arguments += [f"--{name}", getattr(args, name)]
    found = []
    for _ in range(args.repeats):
        took, told, _ = once(arguments, [])
        found.append({"wall": took, **told["seconds"], **{name: told[name] for name in ("calls", "batch", "way")}})
    if args.json:
        print(json.dumps(found))
    else:
        print(f"{args.n} samples of {args.run}, seconds\n")
        print("| process | import | open | draw | write | in all | rows at a time | way |")
        print("|---|---|---|---|---|---|---|---|")
        for i, each in enumerate(found, 1):
            parts = " | ".join(f"{each[name]:.2f}" for name in ("import", "open", "draw", "write", "wall"))
            print(f"| {i} | {parts} | {each['batch']} | {each['way']} |")
    if args.imports:
        print(
            "\n"
            + "\n".join(f"{seconds:7.3f}  {name}" for seconds, name in imports(once(arguments, ["-X", "importtime"])[2]))
        )


if __name__ == "__main__":
    main()
