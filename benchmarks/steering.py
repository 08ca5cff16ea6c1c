"""Steering on real data: each case trains (or takes a run), draws, scores beside controls, and writes a picture and figures.

    python benchmarks/steering.py digits    IMAGES LABELS TEST_IMAGES TEST_LABELS
    python benchmarks/steering.py adult     TRAIN.csv TEST.csv
    python benchmarks/steering.py dna       GENOME.fa
    python benchmarks/steering.py molecules SMILES.csv                                      (needs rdkit)
    python benchmarks/steering.py fills     IMAGES LABELS TEST_IMAGES TEST_LABELS
        [--run RUN] [--minutes 6] [--preset tiny] [--out FOLDER] [--seed 0], and each its own: see CASE --help

Files may be gzipped.  Trains with `unnoise train` where RUN is not there yet, draws by the commands that anybody has
(`unnoise sample`, `unnoise infill`) or, where there is no option, from Python; prints and writes FOLDER/CASE.json, and the
picture FOLDER/CASE.png.  Images are made smaller by --shrink (2: MNIST as 14 x 14).

    digits      digits by label under classifier-free guidance: does a classifier of real digits agree, and how diverse are
                they, by weight
    adult       rows under rules: do they satisfy them, and are the other columns those of real rows that do
    dna         windows with a motif, by a regular expression: where it lies and what stands around it, beside real ones
    molecules   by a reward: particles beside the best of n at equal network calls
    fills       the lower half of digits drawn anew, many times: their spread, and whether it is calibrated
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steering_cases import adult, common, digits, dna, fills, molecules

CASES: dict[str, Any] = {"digits": digits, "adult": adult, "dna": dna, "molecules": molecules, "fills": fills}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    cases = parser.add_subparsers(dest="case", required=True)
    for name, case in CASES.items():
        own = cases.add_parser(name, description=case.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        own.add_argument("--run", type=Path, help="of `unnoise train`; trained now if it is not there")
        own.add_argument("--minutes", type=float, default=6.0, help="of training")
        own.add_argument("--preset", default="tiny")
        own.add_argument("--out", type=Path, default=Path("steering"))
        own.add_argument("--seed", type=int, default=0)
        case.arguments(own)
    return parser.parse_args()


def main() -> None:
    options = parsed()
    options.out.mkdir(parents=True, exist_ok=True)
    options.run = options.run or options.out / f"run-{options.case}"
    began = time.perf_counter()
    shown: Callable[[argparse.Namespace], tuple[dict[str, Any], Any]] = CASES[options.case].shown
    found, figure = shown(options)
    found |= {"training": common.training(options.run), "seconds": time.perf_counter() - began}
    told = json.dumps(found, indent=1)
    (options.out / f"{options.case}.json").write_text(told + "\n")
    common.save(figure, options.out / f"{options.case}.png")
    print(told)


if __name__ == "__main__":
    main()
