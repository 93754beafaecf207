"""Exit codes of commands, and the error message that a failed command prints.

    0 ok   1 failure   2 usage   3 not found   4 denied   5 conflict   6 unavailable
    7 `tarn fsck` found lost or inconsistent data

A failed command prints one line to standard error: the failure, and a hint if there is a remedy. With
`--json` it prints the same as a JSON object.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from dataclasses import dataclass

import botocore.exceptions

from tarn.aio.first_error import first_error
from tarn.config.errors import ConfigError
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["CliError", "Exit", "Failure", "failure_of"]


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
    """A failure that the command line itself detects, with its exit code."""

    def __init__(
        self, exit_code: Exit, message: str, hint: str = "", details: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        self.message = message
        self.hint = hint
        self.details = tuple(details)


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


_EXITS = {
    Kind.NOT_FOUND: Exit.NOT_FOUND,
    Kind.INVALID: Exit.USAGE,
    Kind.DENIED: Exit.DENIED,
    Kind.UNAUTHENTICATED: Exit.DENIED,
    Kind.ALREADY_EXISTS: Exit.CONFLICT,
    Kind.CONFLICT: Exit.CONFLICT,
    Kind.FAILED_PRECONDITION: Exit.CONFLICT,
    Kind.EXHAUSTED: Exit.UNAVAILABLE,
    Kind.UNAVAILABLE: Exit.UNAVAILABLE,
    Kind.DEADLINE: Exit.UNAVAILABLE,
    Kind.UNKNOWN_OUTCOME: Exit.UNAVAILABLE,
}

_HINTS = {
    Reason.REPOSITORY_NOT_FOUND: "`tarn repo list` shows the repositories",
    Reason.BRANCH_NOT_FOUND: "`tarn branch list REPOSITORY` shows the branches",
    Reason.TAG_NOT_FOUND: "`tarn tag list REPOSITORY` shows the tags",
    Reason.REF_NOT_FOUND: "`tarn refs list REPOSITORY` shows the refs",
    Reason.REF_AMBIGUOUS: "give more digits of the commit id",
    Reason.EXPIRED_COMMIT: "`tarn retention show REPOSITORY` shows the rules",
    Reason.REF_NOT_WRITABLE: "only branches take writes",
    Reason.NOTHING_TO_COMMIT: "--allow-empty makes an empty commit",
    Reason.BRANCH_DIRTY: "`tarn diff` shows them; `tarn commit` commits and `tarn branch reset` discards them",
    Reason.BRANCH_PROTECTED: "`tarn repo rules REPOSITORY` shows the rules",
    Reason.REPOSITORY_READ_ONLY: "`tarn repo read-only REPOSITORY --off` makes it writable",
    Reason.SETTINGS_CHANGED: "`tarn repo rules REPOSITORY` shows them as they are now",
    Reason.BRANCH_RESET: "`tarn log` shows whether another commit took the changes, `tarn diff` what is left to commit",
    Reason.MERGE_CONFLICT: (
        "--take source:PATTERN or --take dest:PATTERN chooses a side; `tarn merge --preview` lists all "
        "conflicts of a merge"
    ),
    Reason.NOTHING_TO_MERGE: "--allow-empty makes a merge commit all the same",
    Reason.NOT_FAST_FORWARD: "without --ff-only, `tarn merge` makes a merge commit",
    Reason.CREDENTIAL_NOT_FOUND: "check the access key id, or run `tarn auth login`",
    Reason.ACCESS_DENIED: "`tarn auth whoami` shows your roles",
    Reason.ALREADY_SET_UP: "log in with the key of the first set-up",
    Reason.UNAVAILABLE: "`tarn status` shows whether Tarn runs",
    Reason.OUTCOME_UNKNOWN: "it may or may not have been done: check before you try again",
}

_MOVED_BRANCH_HINT = "`tarn log` shows the new head; `tarn branch move` takes it as --expect"

_S3_EXITS = {
    400: Exit.USAGE,
    401: Exit.DENIED,
    403: Exit.DENIED,
    404: Exit.NOT_FOUND,
    409: Exit.CONFLICT,
    412: Exit.CONFLICT,
    503: Exit.UNAVAILABLE,
}

_S3_HINTS = {
    "NoSuchBucket": "`tarn repo list` shows the repositories",
    "NoSuchKey": "`tarn fs ls` lists the objects",
    "InvalidAccessKeyId": "check the access key id, or run `tarn auth login`",
    "SignatureDoesNotMatch": "check the secret access key, or run `tarn auth login`",
    "AccessDenied": "`tarn auth whoami` shows your roles",
}


def _of_s3(error: botocore.exceptions.ClientError) -> Failure:
    told = error.response.get("Error", {})
    code = str(told.get("Code", "Unknown"))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(told.get("Message") or code)
    exit_code = _S3_EXITS.get(status, Exit.FAILURE)
    if code.isdigit():  # a HEAD has no body, hence no error code
        code = message = {404: "no such object", 403: "access denied"}.get(status, f"HTTP {code}")
    return Failure(exit_code, code, f"{error.operation_name}: {message}", _S3_HINTS.get(code, ""))


def _hint(error: TarnError) -> str:
    # `tarn kv` reports rows that changed during a transfer with the same reason.
    if error.reason is Reason.REF_MOVED and "branch" in error.metadata:
        return _MOVED_BRANCH_HINT
    return _HINTS.get(error.reason, "")


def _of_tarn(error: TarnError) -> Failure:
    exit_code = _EXITS.get(error.kind, Exit.FAILURE)
    lines = error.problems if isinstance(error, ConfigError) else (error.message,)
    return Failure(exit_code, error.reason, lines[0], _hint(error), lines[1:])


def failure_of(error: BaseException) -> Failure | None:
    """The message for an error; None for an unexpected error, which is a bug and needs a traceback."""
    error = first_error(error)
    match error:
        case CliError():
            name = error.exit_code.name
            return Failure(error.exit_code, name, error.message, error.hint, error.details)
        case TarnError():
            return _of_tarn(error)
        case botocore.exceptions.ClientError():
            return _of_s3(error)
        case botocore.exceptions.HTTPClientError() | botocore.exceptions.ConnectionError():
            hint = _HINTS[Reason.UNAVAILABLE]
            return Failure(Exit.UNAVAILABLE, "UNAVAILABLE", str(error), hint)
        case botocore.exceptions.BotoCoreError():
            return Failure(Exit.FAILURE, "S3_CLIENT", str(error))
        case FileNotFoundError():
            return Failure(Exit.NOT_FOUND, "FILE_NOT_FOUND", f"no such file: {error.filename}")
        case OSError():
            where = f" ({error.filename})" if error.filename else ""
            return Failure(Exit.FAILURE, "OS", f"{error.strerror or error}{where}")
        case _:
            return None
