"""Turns the error of a transport into the exception of its reason and kind (`tarn.client.errors`)."""

from __future__ import annotations

from functools import cache

from tarn.client import errors  # loads the classes of all reasons
from tarn.client.failures import TarnCallError
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["call_error"]

_KINDS: list[type[TarnCallError]] = [each for each in TarnCallError.__subclasses__() if each.KIND]
_OF_KIND = {each.KIND: each for each in _KINDS}
_ABOVE: list[type[TarnCallError]] = [TarnCallError, *_KINDS]
_OF_REASON = {
    each.REASON: each for parent in _ABOVE for each in parent.__subclasses__() if each.REASON
}


def call_error(error: TarnError, about: dict[str, str]) -> TarnCallError:
    """Returns an error as the exception of its reason and kind.

    Args:
        error: as a transport raised it.
        about: the subject of the request, for the names that the error's own metadata lacks.
    """
    made = _class_of(error.kind, error.reason)(error.kind, error.reason, error.message)
    made.metadata = {**about, **error.metadata}
    return made


@cache
def _class_of(kind: Kind, reason: Reason) -> type[TarnCallError]:
    """Returns the class of a reason, joined with that of its kind if that is not above it."""
    of_kind = _OF_KIND[kind]
    of_reason = _OF_REASON.get(reason, of_kind)
    if issubclass(of_reason, of_kind):
        return of_reason
    return type(of_reason.__name__, (of_reason, of_kind), {"__module__": errors.__name__})
