"""`tarn completion`: prints a script that completes commands and options in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tarn_cli.session import Command
from tarn_cli.terminal import write_lines

__all__ = ["COMPLETE_VARIABLE", "completion"]

COMPLETE_VARIABLE = "_TARN_COMPLETE"
"""Environment variable by which the shell's script requests completions."""

_SHELLS = ("bash", "zsh", "fish")


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    Examples:
      eval "$(tarn completion bash)"                              in ~/.bashrc
      eval "$(tarn completion zsh)"                               in ~/.zshrc
      tarn completion fish > ~/.config/fish/completions/tarn.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "click knows the shells of the choice"
    root = context.find_root()
    write_lines(found(root.command, {}, "tarn", COMPLETE_VARIABLE).source().splitlines())
