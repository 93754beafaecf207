"""Writes text to the terminal: the only module that does (`tests/unit/cli/test_terminal.py` checks it).

Paths, messages, metadata and texts of errors come from other users. A line break in one would forge a line of output,
and an escape sequence would drive the reader's terminal. So every line that a command prints is one call of
`write_line`, which shows what could do so as an escape: `\\n`, `\\x1b`, `\\u202e`. Programs use `--json`: it is exact.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click

from tarn.core.printable import printable

if TYPE_CHECKING:
    from rich.text import Text

__all__ = [
    "cell",
    "confirm",
    "printable",
    "prompt",
    "write_json",
    "write_line",
    "write_lines",
]

_TOGETHER_MAX = 1000
"""Lines of one write: a page of a listing."""


def write_json(document: object) -> None:
    """Writes a JSON document: exact, and in ASCII without control characters."""
    click.echo(json.dumps(document, indent=2, default=str))


def write_line(text: str = "", *, err: bool = False, fg: str | None = None) -> None:
    """Writes one line, whatever the text holds.

    Args:
        text: the line, without its end.
        err: to standard error.
        fg: colour on a terminal.
    """
    line = printable(text)
    click.echo(line if fg is None else click.style(line, fg=fg), err=err)


def write_lines(lines: Iterable[str], *, err: bool = False, first_fg: str | None = None) -> None:
    """Writes lines as `write_line` does, the first one in a colour. Many are written together."""
    rest = iter(lines)
    for first in islice(rest, 1):
        write_line(first, err=err, fg=first_fg)
    while together := [printable(line) for line in islice(rest, _TOGETHER_MAX)]:
        click.echo("\n".join(together), err=err)


def confirm(question: str) -> None:
    """Asks on standard error.

    Raises:
        Abort: the answer is not yes.
    """
    click.confirm(printable(question), abort=True, err=True)


def prompt(question: str, *, default: str | None = None, is_secret: bool = False) -> str:
    """Asks for a value on standard error, and returns it."""
    text = printable(question)
    return str(click.prompt(text, default=default, hide_input=is_secret, err=True))


def cell(value: object) -> Text:
    """A cell of a table."""
    from rich.text import Text

    return Text(printable(str(value)))
