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
    """column=value, for tables: draw the others given it; of models that are told conditions: one of these; may be
    repeated."""

    guide: float | None = None
    """How far to go towards what is given: 1 is as ever, 2 twice as far from samples that are told nothing."""

    where: str | None = None
    """For tables: a rule that every row satisfies, such as "age >= 18 and income == '>50K'"."""

    attempts: int | None = None
    """With --where: at most so many rows are drawn; 100 for each sample, and 10,000 in any case, unless told."""

    regex: str | None = None
    """Of sequences: a regular expression that all of each sample matches, such as ".*TATAA.*"."""

    grammar: Path | None = None
    """Of sequences: a file with a context-free grammar, in the notation of lark, that derives each sample."""

    reward: str | None = None
    """module:function of your own, r of a list of samples as they are written: draws are of p exp(strength r)."""

    strength: float = 1.0
    """Of the reward."""

    particles: int | None = None
    """Of how many each sample is chosen by its weight: 16 with --regex, --grammar or --reward, none with --guide alone."""

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
        steering = {
            "--where": self.where,
            "--regex": self.regex,
            "--grammar": self.grammar,
            "--reward": self.reward,
            "--particles": self.particles,
            "--guide": self.guide,
        }
        steering["--attempts"] = self.attempts
        for option, value in {"--given": self.given, "--calls": self.calls, **steering}.items():
            if value not in (None, ()) and self.of_text:
                raise ValueError(f"{option} does not go with --prompt and --length: leave it out")
        if self.grammar is not None and not self.grammar.is_file():
            raise ValueError(f"--grammar {self.grammar}: there is no such file")

    @property
    def of_text(self) -> bool:
        return self.prompt is not None or self.length is not None

    def run(self) -> int:
        clock = of_command()
        self.check()
        from unnoise.data.prompts import coded
        from unnoise.guidance import steering
        from unnoise.samplers.written import written
        from unnoise.training.run import Run
        from unnoise.training.texts import continued, text_format
        from unnoise.tree import batch_size

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
            options |= {"calls": self.calls, "given": given, "progress": not self.json, "telling": run.telling()}
            x, info = steering.drawn(denoiser, format, self.n, self._wish(), **options)
        clock.mark("draw")
        wrote = batch_size(x)
        if wrote:
            known = {**given, **(info.computed or {})}
            format.write_given(x, known, out) if known else format.write(x, out)
        clock.mark("write")
        result = {"out": str(out), "n": wrote, "calls": info.calls, "rows": info.rows}
        result |= {"batch": info.batch, "way": info.way, "seconds": clock.parts}
        result |= {} if info.failure is None else {"stopped": info.failure}
        result |= steering.figures(info)
        if self.prompt is not None and not self.json:
            print(text_format(format).texts(x[:1])[0])
        print(json.dumps(result) if self.json else self._words(result))
        return 0 if wrote == self.n else 1

    def _wish(self) -> Any:
        from unnoise.guidance import steering

        written = None if self.grammar is None else self.grammar.read_text()
        reward = None if self.reward is None else steering.named(self.reward)
        return steering.Steering(
            self.regex,
            written,
            reward,
            self.strength,
            self.particles,
            where=self.where,
            attempts=self.attempts,
            guide=self.guide,
        )

    def _words(self, result: dict[str, Any]) -> str:
        from unnoise.guidance.steering import words

        n = result["n"]
        told = f"wrote {n} samples to {self.out or result['out']} ({result['calls']} network calls)"
        if n < self.n:
            told = told if n else "wrote nothing"
            told += f"; {self._why(result)}"
        more = words(result)
        return f"{told}\n{more}" if more else told

    def _why(self, result: dict[str, Any]) -> str:
        """Why there are fewer."""
        if "stopped" in result:
            return f"then it stopped: {result['stopped']}"
        lost = self.n - result["n"]
        if "rows_drawn" in result:
            return f"{lost} more were not found in {result['rows_drawn']:,} rows: allow more --attempts, or ask for less"
        return f"of {lost} more all particles had weight 0: take more --particles, or ask for less"
