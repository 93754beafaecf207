"""The text of a story: prose, commands, and below each command what happened.

A line that begins with `> ` is a command. The indented lines below it are what happened; a replay compares them, and
`--rewrite` writes them. The head says which guards of the protocol the story shows, and at which command each shows:

    Without the guard write-rechecks, "b: get orders" goes wrong.

The end of the file, from the first line that begins with `==== `, is written by the replay, too: what happens otherwise
while the guard is off, until that command. All other lines are prose for the reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["Happened", "Script", "StoryError"]

_COMMAND: Final = "> "
_INDENT: Final = "    "
_FOOT: Final = "==== "
_GUARD: Final = re.compile(r'^Without the guard (\S+), "(.+)" goes wrong\.$', re.MULTILINE)

Happened = Sequence[Sequence[str]]
"""What happened, one list of lines for each command of a script."""


class StoryError(Exception):
    """A story says what the interpreter does not understand, or cannot do."""


@dataclass(frozen=True, slots=True)
class Script:
    """A story without what happened in it.

    Attributes:
        lines: prose and commands, in their order.
        guards: the guards that the story shows; for each the command that goes wrong without it.
    """

    lines: Sequence[str]
    guards: Sequence[tuple[str, str]]

    @classmethod
    def parse(cls, text: str) -> Script:
        """Reads the text of a story; leaves out what a replay writes.

        Raises:
            StoryError: it names no guard, or a command that is not in the story exactly once.
        """
        told = text.partition(f"\n{_FOOT}")[0].rstrip()
        lines = [line for line in told.splitlines() if not line.startswith(_INDENT)]
        script = cls(lines, _GUARD.findall(told))
        if not script.guards:
            raise StoryError(
                'the head names no guard: Without the guard NAME, "COMMAND" goes wrong.'
            )
        for guard, command in script.guards:
            if script.commands.count(command) != 1:
                raise StoryError(f"{guard}: the story needs exactly one command {command!r}")
        return script

    @property
    def commands(self) -> Sequence[str]:
        """The commands, in the order in which they are played."""
        return [line.removeprefix(_COMMAND) for line in self.lines if line.startswith(_COMMAND)]

    def tell(self, happened: Happened, without: Sequence[tuple[str, Happened]]) -> str:
        """Returns the whole text.

        Args:
            happened: of all commands.
            without: for each of `guards` a heading, and what happened while it was off. Only what differs is told,
                until the command that goes wrong.
        """
        each = iter(happened)
        told: list[str] = []
        for line in self.lines:
            told.append(line)
            if line.startswith(_COMMAND):
                told += _indented(next(each))
        for (_, last), (heading, otherwise) in zip(self.guards, without, strict=True):
            told += ["", f"{_FOOT}{heading}"]
            end = self.commands.index(last) + 1
            for command, now, then in zip(self.commands[:end], happened, otherwise, strict=False):
                if now != then:
                    told += [f"{_COMMAND}{command}", *_indented(then)]
        return "\n".join(told) + "\n"


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{_INDENT}{line}" for line in lines]
