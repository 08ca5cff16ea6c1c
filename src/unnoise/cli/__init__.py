"""The command `unnoise`.  Exit status: 0 right, 1 a check failed, 2 bad input."""

import sys
from typing import Annotated

import tyro

from unnoise.cli.demo import Demo
from unnoise.cli.verify import Verify

Command = (
    Annotated[Verify, tyro.conf.subcommand("verify", description=Verify.__doc__)]
    | Annotated[Demo, tyro.conf.subcommand("demo", description=Demo.__doc__)]
)


def main(arguments: list[str] | None = None) -> None:
    command: Verify | Demo = tyro.cli(
        Command,  # type: ignore[arg-type]
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
        args=arguments,
        prog="unnoise",
        description="Diffusion models on any state space.",
    )
    try:
        status = command.run()
    except (ValueError, TypeError) as error:
        print(f"unnoise: {error}", file=sys.stderr)
        status = 2
    sys.exit(status)
