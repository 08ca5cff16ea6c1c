"""`unnoise infill`: fill the gaps of a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from unnoise.cli.extending import Extended
from unnoise.paths import check_data, check_run


@dataclass(kw_only=True)
class Infill(Extended):
    """Fill the gaps of a file with draws of a run, given all that is known.

    Gaps are the missing cells (or columns left out) of a table, the character _ in text of any length, FASTA and SMILES, and
    NaN or a marked number in arrays.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    path: Annotated[Path, tyro.conf.Positional]
    """The file with gaps."""

    out: Path
    """The file to write."""

    mark: str | None = None
    """What stands for a gap, if not an empty cell, _ or NaN; whole numbers in arrays need one."""

    steps: int | None = None
    """Steps of the method; the default depends on the data."""

    rounds: int = 8
    """Calls of each step where the conditioning is approximate, for rounds of it or for particles: more are closer."""

    seed: int = 0
    """What fills a row is a function of the seed, its place in the file and what is known of it."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        check_run(self.folder)
        check_data(self.path)
        from unnoise.training.drawing import conditioning, states_known
        from unnoise.training.filling import TRIES, filled
        from unnoise.training.run import Run
        from unnoise.tree import batch_size

        self.load_extensions()
        run = Run.open(self.folder)
        format = run.format()
        format.check_out(self.out)
        x, fixed = format.gaps(self.path, self.mark)
        denoiser = format.constrained(run.for_drawing(run.denoiser(which="best")))
        whole, calls, left = filled(denoiser, format, x, fixed, self.seed, self.steps, self.device, self.rounds)
        format.write_filled(whole, self.path, self.out, self.mark)
        gaps, rows = format.count_gaps(fixed), batch_size(x)
        parts = format.gap_parts(conditioning(denoiser.process, states_known(denoiser, x, fixed)[1], self.rounds), fixed)
        how = next((label for label in parts.values() if label != "exact"), "exact")
        result = {"out": str(self.out), "rows": rows, "filled": gaps - left, "calls": calls}
        result |= {"missing": left} if left else {}
        lines = [f"filled {gaps - left} gaps in {rows} rows; wrote {self.out}"]
        lines += [f"{left} more came out as missing values {TRIES} times, and stay so"] if left else []
        for label in dict.fromkeys(parts.values()):
            names = ", ".join(name for name, own in parts.items() if own == label)
            lines.append(f"conditioning on what is known: {label} ({names})")
        print(json.dumps({**result, "conditioning": how, "parts": parts}) if self.json else "\n".join(lines))
        return 0
