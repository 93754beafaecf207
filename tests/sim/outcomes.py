"""Decides what an error says about the outcome of a request."""

from tests.support.check.history import History, Op, Outcome

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["note_of", "note_refusal", "outcome_of", "refuse"]

_NAMES_HEAD = {Reason.REF_MOVED, Reason.BRANCH_RESET}
"""Reasons with which an error names the head that the operation met."""

_SURE = {
    Kind.NOT_FOUND,
    Kind.ALREADY_EXISTS,
    Kind.INVALID,
    Kind.DENIED,
    Kind.UNAUTHENTICATED,
    Kind.CONFLICT,
    Kind.FAILED_PRECONDITION,
    Kind.EXHAUSTED,
    Kind.UNAVAILABLE,
    Kind.UNIMPLEMENTED,
}
"""Kinds that say that nothing was done (`tarn.core.errors`); after any other kind the outcome is unknown."""


def outcome_of(error: Exception) -> Outcome:
    """Returns the outcome of a request that failed with this error."""
    if isinstance(error, TarnError) and error.kind in _SURE:
        return Outcome.FAIL
    return Outcome.INFO


def note_of(error: Exception) -> str:
    """Describes an error in a few words."""
    if isinstance(error, TarnError):
        return f"{error.kind.name} {error.message[:80]}"
    return str(error)


def note_refusal(op: Op, error: Exception) -> None:
    """Records why an operation was refused, and the head that the answer names."""
    if isinstance(error, TarnError):
        op.reason = error.reason
        if error.reason in _NAMES_HEAD:
            op.told_id = error.metadata.get("commit_id", "")


def refuse(history: History, op: Op, error: Exception) -> None:
    """Records the answer of an operation that failed."""
    note_refusal(op, error)
    history.finish(op, outcome_of(error), note_of(error))
