"""`unnoise evaluate`: how good a trained model is."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro


@dataclass(kw_only=True)
class Evaluate:
    """The bound on data with its three terms, bits per dimension, and for tables the quality of samples."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    data: Path | None = None
    """A file of the same format to evaluate on; the run's held-out rows unless given."""

    rows: int = 4096
    """At most so many examples."""

    draws: int = 8
    """Times and noise drawn for each."""

    samples: int | None = None
    """Samples drawn for their quality (tables); as many as training rows, at most 20,000, unless given; 0 for none."""

    target: str | None = None
    """A column to predict from the others, for the utility of a table's samples; needs --data."""

    seed: int = 0
    """Of all draws."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        from unnoise.evaluation.report import evaluate
        from unnoise.training.run import Run

        result = evaluate(
            Run.open(self.folder),
            self.data,
            rows=self.rows,
            draws=self.draws,
            samples=self.samples,
            target=self.target,
            seed=self.seed,
            device=self.device,
            progress=not self.json,
        )
        print(json.dumps(result) if self.json else shown(result))
        return 0


def shown(result: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in result.items():
        label = f"{indent}{name.replace('_', ' '):24}"
        if isinstance(value, dict):
            lines += [f"{indent}{name.replace('_', ' ')}", shown(value, indent + "  ")]
        else:
            lines.append(f"{label} {value:.5g}" if isinstance(value, float) else f"{label} {value}")
    return "\n".join(lines)
