"""Decides what an error says about the outcome of a request."""

from tarn.core.errors import Kind, TarnError
from tarn.testing.check.history import Outcome

__all__ = ["note_of", "outcome_of"]

_SURE = {
    Kind.NOT_FOUND,
    Kind.ALREADY_EXISTS,
    Kind.INVALID,
    Kind.DENIED,
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
