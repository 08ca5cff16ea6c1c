"""`unnoise infill`: fill the gaps of a file."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(kw_only=True)
class Infill:
    """Fill the gaps of a file with draws of a run, given all that is known.

    Gaps are the empty cells (or missing columns) of a table, and the character _ in text, FASTA and SMILES.
    """

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    path: Annotated[Path, tyro.conf.Positional]
    """The file with gaps."""

    out: Path
    """The file to write."""

    mark: str | None = None
    """What stands for a gap, if not an empty cell or _."""

    steps: int | None = None
    """Steps of the method; the default depends on the data."""

    seed: int = 0
    """Of all draws."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        from unnoise.spaces import batch_size
        from unnoise.training.drawing import fill
        from unnoise.training.run import Run

        run = Run.open(self.folder)
        format = run.format()
        x, fixed = format.gaps(self.path, self.mark)
        filled, info = fill(run.denoiser(which="best"), x, fixed, self.seed, self.steps, self.device)
        format.write(filled, self.out)
        leaves = fixed.values() if isinstance(fixed, dict) else [fixed]
        gaps = sum(int((~leaf).sum()) for leaf in leaves)
        result = {"out": str(self.out), "rows": batch_size(x), "filled": gaps, "calls": info.calls, "conditioning": "exact"}
        told = f"filled {gaps} gaps in {batch_size(x)} rows, exactly conditioned on the rest; wrote {self.out}"
        print(json.dumps(result) if self.json else told)
        return 0
