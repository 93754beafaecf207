"""The message and the exit code for each error that ends a command."""

from __future__ import annotations

from tarn.aio.first_error import first_error
from tarn.config.errors import ConfigError
from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli.exits import CliError, Exit, Failure
from tarn_cli.s3_failures import s3_failure_of

__all__ = ["failure_of"]

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
    Reason.PULL_REQUEST_BLOCKED: "`tarn pr show` shows the reviews, `tarn repo rules` the rules",
    Reason.NOT_FAST_FORWARD: "without --ff-only, `tarn merge` makes a merge commit",
    Reason.CREDENTIAL_NOT_FOUND: "check the access key id, or run `tarn auth login`",
    Reason.ACCESS_DENIED: "`tarn auth whoami` shows your roles",
    Reason.ALREADY_SET_UP: "log in with the key of the first set-up",
    Reason.UNAVAILABLE: "`tarn status` shows whether Tarn runs, `tarn context` which addresses are used",
    Reason.OUTCOME_UNKNOWN: "it may or may not have been done: check before you try again",
}

_MOVED_BRANCH_HINT = "`tarn log` shows the new head; `tarn branch move` takes it as --expect"


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
            return Failure(error.exit_code, error.reason, error.message, error.hint, error.details)
        case TarnError():
            return _of_tarn(error)
        case FileNotFoundError():
            return Failure(Exit.NOT_FOUND, "FILE_NOT_FOUND", f"no such file: {error.filename}")
        case OSError():
            where = f" ({error.filename})" if error.filename else ""
            return Failure(Exit.FAILURE, "OS", f"{error.strerror or error}{where}")
        case _:
            return s3_failure_of(error)
