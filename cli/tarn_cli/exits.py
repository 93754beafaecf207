"""Exit codes of commands, and the error message that a failed command prints.

    0 ok   1 failure   2 usage   3 not found   4 denied   5 conflict   6 unavailable
    7 `tarn fsck` found lost or inconsistent data

A failed command prints one line to standard error: the failure, and a hint if there is a remedy. Details follow it,
such as the files that were not transferred. With `--json` it prints the same as a JSON object.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["CliError", "Exit", "Failure"]


class Exit(enum.IntEnum):
    """Exit codes of every command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    DENIED = 4
    CONFLICT = 5
    UNAVAILABLE = 6
    FINDINGS = 7


class CliError(Exception):
    """A failure that the command line itself detects, with its exit code.

    Args:
        exit_code: exit code of the process.
        message: one sentence for people.
        hint: the remedy, or empty.
        details: further lines.
        reason: for programs; empty: the name of the exit code.
    """

    def __init__(
        self,
        exit_code: Exit,
        message: str,
        hint: str = "",
        details: Sequence[str] = (),
        *,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.hint = hint
        self.details = tuple(details)
        self.reason = reason or exit_code.name


@dataclass(frozen=True, slots=True)
class Failure:
    """The error message of a failed command.

    Attributes:
        exit_code: exit code of the process.
        reason: for programs, upper snake case.
        message: one sentence for people.
        hint: the remedy, or empty.
        details: further lines.
    """

    exit_code: Exit
    reason: str
    message: str
    hint: str = ""
    details: tuple[str, ...] = ()

    def line(self) -> str:
        """The message and the hint on one line, for people."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    def json(self) -> str:
        """The message as a JSON object, for programs."""
        return json.dumps(
            {
                "error": self.reason,
                "message": self.message,
                "hint": self.hint,
                "exit_code": int(self.exit_code),
                **({"details": self.details} if self.details else {}),
            }
        )
