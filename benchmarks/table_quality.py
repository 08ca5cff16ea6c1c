"""How good synthetic rows of a table are: train with the defaults, draw as many rows as there are, score them.

    python benchmarks/table_quality.py TRAIN.csv.gz TEST.csv.gz --target income [--minutes 5] [--out RUN]

Prints, for the model and for two controls (the test file itself, and columns shuffled independently): shape, trend and
two-sample score against the training file, downstream AUC on the test file, the share of exact copies of training rows, and
the time that training and drawing took.

The protocol is that of published figures: as many samples as training rows, and the test file as it is.  So the control has
fewer rows than the samples (UCI Adult: 16,281 beside 32,561), which makes its shape and trend a little lower and its
two-sample score, with fewer rows to learn from, a little higher than those of as many real rows would be.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from unnoise.data.read import read
from unnoise.evaluation import tables
from unnoise.training.drawing import draw
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train
from unnoise.tree import batch_size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--target", required=True)
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--preset")
    parser.add_argument("--lr", type=float)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, help="of the sampler")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--no-controls", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.perf_counter()
    form, x0 = read(options.train)
    rows = batch_size(x0)
    config = recipe(form, rows, options.preset, device, minutes=options.minutes, lr=options.lr, batch_size=options.batch)
    folder = options.out or Path(tempfile.mkdtemp()) / "run"
    outcome = train(Run.create(folder, config), x0)
    trained = time.perf_counter() - began
    run = Run.open(folder)
    result: dict = {}

    def tell(name: str, value: dict) -> None:  # at once: scores take minutes where the host is busy
        result[name] = value
        print(name, json.dumps(value), flush=True)

    ended = {"steps": outcome.step, "ended by": outcome.reason, "bound": outcome.best}
    tell("training", {"seconds": trained, **ended})
    real, test = form.frame(x0), form.frame(form.encode(options.test, unseen="nearest"))
    for which in ("best", "last"):
        began = time.perf_counter()
        x, info = draw(run.for_drawing(run.denoiser(which=which)), form, rows, steps=options.steps, seed=0)
        drawn = {"drawing_s": time.perf_counter() - began, "calls": info.calls}
        tell(f"drawing from the {which} state", drawn)
        score = tables.score(real, form.frame(x), test, options.target).json()
        tell(which, {**drawn, **score})
    if not options.no_controls:
        useful, what = tables.utility(real, test, options.target)
        tell("test file", {**tables.score(real, test).json(), f"utility of real rows, {what}": useful})
        tell("independent columns", tables.score(real, tables.shuffled(real)).json())
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
