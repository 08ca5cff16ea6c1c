"""`unnoise sample`: draw from a trained model, in the data's own form."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from unnoise.cli.extending import Extended, pairs


@dataclass(kw_only=True)
class Sample(Extended):
    """Draw samples of a run and write them in the format of its data."""

    folder: Annotated[Path, tyro.conf.Positional]
    """The folder of the run."""

    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 100
    """How many."""

    out: Path | None = None
    """The file to write; samples of the data's own kind beside the run unless told."""

    steps: int | None = None
    """Steps of the method; the default depends on the data."""

    calls: int | None = None
    """A budget of network calls, instead of steps."""

    sampler: str | None = None
    """A method by name, such as Heun, UniPC, FirstHitting, or with its options: "Ancestral(rounds=2)"."""

    seed: int = 0
    """Sample i is a function of the seed and i."""

    batch: int = 1024
    """Samples drawn at once."""

    given: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """column=value, for tables: draw the others given it; may be repeated."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def run(self) -> int:
        from unnoise.samplers.written import written
        from unnoise.training.drawing import draw
        from unnoise.training.run import Run

        self.load_extensions()
        if self.n < 1:
            raise ValueError(f"-n {self.n}: draw at least one sample")
        run = Run.open(self.folder)
        format = run.format()
        out = self.out or self.folder / format.out_name()
        format.check_out(out)
        denoiser = run.denoiser(which="best")
        given = pairs(self.given, "--given", "column")
        x, info = draw(
            denoiser,
            format,
            self.n,
            sampler=None if self.sampler is None else written(self.sampler),
            steps=self.steps,
            calls=self.calls,
            seed=self.seed,
            batch=self.batch,
            device=self.device,
            given=given,
            progress=not self.json,
        )
        if given:
            format.write_given(x, given, out)
        else:
            format.write(x, out)
        result = {"out": str(out), "n": self.n, "calls": info.calls, "rows": info.rows}
        print(json.dumps(result) if self.json else f"wrote {self.n} samples to {out} ({info.calls} network calls)")
        return 0
