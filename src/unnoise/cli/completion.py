"""`unnoise completion`: a script by which a shell completes the command's words.

The script holds the commands and options by name, so that pressing TAB starts no Python; where neither fits, the shell
completes the names of files.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

BASH = """\
_unnoise() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    words="{commands} --help"
  else
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
    case "$word" in
      -*) ;;
      *) [ "${{COMP_WORDS[1]}}" = completion ] && words="bash zsh fish" || words= ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _unnoise unnoise
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"


@dataclass(kw_only=True)
class Completion:
    """Print a script that completes commands, options and files in your shell: add `eval "$(unnoise completion bash)"` to
    ~/.bashrc, `eval "$(unnoise completion zsh)"` to ~/.zshrc, or `unnoise completion fish | source` to config.fish."""

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Which shell."""

    def run(self) -> int:
        from unnoise.cli import OPTIONS, Command

        words = options_of(tyro.extras.get_parser(Command, **OPTIONS))  # type: ignore[call-overload]
        print(fish(words) if self.shell == "fish" else (ZSH if self.shell == "zsh" else "") + bash(words), end="")
        return 0


def options_of(parser: object) -> dict[str, list[str]]:
    """The options of each command, from an argparse parser."""
    actions: Iterable = parser._actions  # type: ignore[attr-defined]  # argparse has no public way to list them
    commands = next(action.choices for action in actions if isinstance(action.choices, dict))
    return {
        name: [flag for action in command._actions for flag in action.option_strings if flag.startswith("-")]
        for name, command in commands.items()
    }


def bash(words: dict[str, list[str]]) -> str:
    cases = "\n".join(f'      {name}) words="{" ".join(options)}" ;;' for name, options in words.items())
    return BASH.format(commands=" ".join(words), cases=cases)


def fish(words: dict[str, list[str]]) -> str:
    lines = [f"complete -c unnoise -n __fish_use_subcommand -f -a '{' '.join(words)}'"]
    for name, options in words.items():
        here = f"complete -c unnoise -n '__fish_seen_subcommand_from {name}'"
        lines += [f"{here} {'-l' if option.startswith('--') else '-o'} {option.lstrip('-')}" for option in options]
    lines.append("complete -c unnoise -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'")
    return "\n".join(lines) + "\n"
