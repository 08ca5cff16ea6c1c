"""The command `unnoise`.  Exit status: 0 right, 1 a check failed, 2 bad input, 130 interrupted."""

import sys
from typing import Annotated

import tyro

from unnoise.cli.demo import Demo
from unnoise.cli.evaluate import Evaluate
from unnoise.cli.infill import Infill
from unnoise.cli.sample import Sample
from unnoise.cli.train import Train
from unnoise.cli.verify import Verify

Command = (
    Annotated[Train, tyro.conf.subcommand("train", description=Train.__doc__)]
    | Annotated[Sample, tyro.conf.subcommand("sample", description=Sample.__doc__)]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", description=Evaluate.__doc__)]
    | Annotated[Infill, tyro.conf.subcommand("infill", description=Infill.__doc__)]
    | Annotated[Verify, tyro.conf.subcommand("verify", description=Verify.__doc__)]
    | Annotated[Demo, tyro.conf.subcommand("demo", description=Demo.__doc__)]
)


def main(arguments: list[str] | None = None) -> None:
    command: Train | Sample | Evaluate | Infill | Verify | Demo = tyro.cli(
        Command,  # type: ignore[arg-type]
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        args=arguments,
        prog="unnoise",
        description="Diffusion models on any state space.",
    )
    try:
        status = command.run()
    except (ValueError, TypeError, ImportError, ArithmeticError, OSError) as error:
        print(f"unnoise: {error}", file=sys.stderr)
        status = 2
    except KeyboardInterrupt:
        print("unnoise: interrupted", file=sys.stderr)
        status = 130
    sys.exit(status)
