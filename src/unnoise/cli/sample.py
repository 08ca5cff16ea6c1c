"""`unnoise sample`: draw from a trained model, in the data's own form."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from unnoise.cli.extending import Extended, pairs
from unnoise.paths import check_run
from unnoise.start_up import of_command


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

    batch: int | None = None
    """Samples drawn at once; as many as suit the device unless told."""

    precision: str | None = None
    """Of the network's products on an accelerator: no, tf32 or bf16; that of its training unless told."""

    given: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """column=value, for tables: draw the others given it; may be repeated."""

    prompt: str | None = None
    """Text that every sample begins with, of any length (of one line or record, where a run's examples are these)."""

    length: int | None = None
    """Of text in windows: how many symbols to draw, after the prompt if there is one; a window's worth unless told."""

    device: str = "auto"
    """auto or cpu."""

    json: bool = False
    """Print the result as JSON."""

    def check(self) -> None:
        """What can be said of the options alone."""
        check_run(self.folder)
        if self.n < 1:
            raise ValueError(f"-n {self.n}: draw at least one sample")
        if self.length is not None and self.length < 1:
            raise ValueError(f"--length {self.length}: draw at least one symbol")
        pairs(self.given, "--given", "column")
        for option, value in (("--given", self.given), ("--calls", self.calls)):
            if value and self.of_text:
                raise ValueError(f"{option} does not go with --prompt and --length: leave it out")

    @property
    def of_text(self) -> bool:
        return self.prompt is not None or self.length is not None

    def run(self) -> int:
        clock = of_command()
        self.check()
        from unnoise.data.prompts import coded
        from unnoise.samplers.written import written
        from unnoise.training.drawing import draw
        from unnoise.training.run import Run
        from unnoise.training.texts import continued, text_format

        self.load_extensions()
        clock.mark("import")
        run = Run.open(self.folder)
        format = run.format()
        out = self.out or self.folder / format.out_name()
        format.check_out(out)
        given = pairs(self.given, "--given", "column")
        x: Any
        options: dict[str, Any] = {"steps": self.steps, "seed": self.seed, "batch": self.batch, "device": self.device}
        options["sampler"] = None if self.sampler is None else written(self.sampler)
        denoiser = run.for_drawing(run.denoiser(which="best"), self.precision)
        clock.mark("open")
        if self.of_text:
            text = text_format(format)
            prompts = [coded(text, self.prompt or "", "--prompt")] * self.n
            x, info = continued(denoiser, text, prompts, self.length, **options)
        else:
            x, info = draw(denoiser, format, self.n, calls=self.calls, given=given, progress=not self.json, **options)
        clock.mark("draw")
        if given:
            format.write_given(x, given, out)
        else:
            format.write(x, out)
        clock.mark("write")
        result = {"out": str(out), "n": self.n, "calls": info.calls, "rows": info.rows}
        result |= {"batch": info.batch, "way": info.way, "seconds": clock.parts}
        if self.prompt is not None and not self.json:
            print(text_format(format).texts(x[:1])[0])
        print(json.dumps(result) if self.json else f"wrote {self.n} samples to {out} ({info.calls} network calls)")
        return 0
