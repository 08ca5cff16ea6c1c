"""The command `unnoise`.  Exit status: 0 right, 1 a check failed, 2 bad input, 130 interrupted.

Help and mistakes in what was typed are answered at once: no module here imports torch, or whatever does, before a command
has looked at its options and runs.
"""

import os
import sys
from typing import Annotated, Any

import tyro

from unnoise.cli.bench import Bench
from unnoise.cli.completion import Completion
from unnoise.cli.demo import Demo
from unnoise.cli.distill import Distill
from unnoise.cli.evaluate import Evaluate
from unnoise.cli.infill import Infill
from unnoise.cli.sample import Sample
from unnoise.cli.train import Train
from unnoise.cli.verify import Verify
from unnoise.extensions import place_of
from unnoise.paths import BadData
from unnoise.start_up import begin

Command = (
    Annotated[Train, tyro.conf.subcommand("train", description=Train.__doc__)]
    | Annotated[Sample, tyro.conf.subcommand("sample", description=Sample.__doc__)]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", description=Evaluate.__doc__)]
    | Annotated[Infill, tyro.conf.subcommand("infill", description=Infill.__doc__)]
    | Annotated[Distill, tyro.conf.subcommand("distill", description=Distill.__doc__)]
    | Annotated[Verify, tyro.conf.subcommand("verify", description=Verify.__doc__)]
    | Annotated[Bench, tyro.conf.subcommand("bench", description=Bench.__doc__)]
    | Annotated[Demo, tyro.conf.subcommand("demo", description=Demo.__doc__)]
    | Annotated[Completion, tyro.conf.subcommand("completion", description=Completion.__doc__)]
)
OPTIONS: dict[str, Any] = {
    "config": (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    "prog": "unnoise",
    "description": "Diffusion models on any state space.",
}


def main(arguments: list[str] | None = None) -> None:
    if arguments is None:
        begin()
    try:
        command: Train | Sample | Evaluate | Infill | Distill | Verify | Bench | Demo | Completion = tyro.cli(
            Command,  # type: ignore[arg-type]
            args=arguments,
            **OPTIONS,
        )
        status = command.run()
    except BrokenPipeError:  # whoever read what is printed has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    except KeyboardInterrupt:
        print("unnoise: interrupted", file=sys.stderr)
        status = 130
    except Exception as error:
        print(f"unnoise: {_words(error)}", file=sys.stderr)
        status = 2
    sys.exit(status)


def _words(error: Exception) -> str:
    """Bad input says what is wrong by itself; an error in code of the user's own is told with its place.  Any other is a
    mistake of the library, and is raised again with all that led to it."""
    place = None if isinstance(error, BadData) else place_of(error)
    if place is not None:
        kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
        return f"{place}: {kind}{' '.join(str(error).split())}"
    if isinstance(error, ValueError | TypeError | ImportError | ArithmeticError | OSError):
        return str(error)
    raise error
