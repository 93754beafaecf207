"""Conflicts in forms: the rows of a preview, and what a form decides, path by path.

A conflict is a field of the form, whose name has its path quoted, because browsers change line breaks in names of
fields. Its path becomes a pattern that matches this path only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from tarn.core.entry import size_of
from tarn.core.glob import glob_of
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = ["CONFLICTS_MAX", "ConflictRow", "choices_of", "conflict_rows", "side_of"]

CONFLICTS_MAX: Final = 40
"""Conflicts on a page: each is a field of its form, which has at most 50."""
_CHOICE: Final = "winner:"
_SIDES: Final = {
    "": pb.MERGE_SIDE_UNSPECIFIED,
    "source": pb.MERGE_SIDE_SOURCE,
    "destination": pb.MERGE_SIDE_DESTINATION,
}


class ConflictRow(NamedTuple):
    """A path that both sides changed differently.

    Attributes:
        path: of the object.
        field: the name of its field.
        source, destination: bytes of the object there; None: it is deleted.
    """

    path: str
    field: str
    source: int | None
    destination: int | None


def conflict_rows(found: Sequence[pb.MergeConflict]) -> list[ConflictRow]:
    """Returns the rows of the conflicts of a preview."""
    return [
        ConflictRow(
            each.path,
            _CHOICE + quote(each.path, safe=""),
            _size(each.source_entry),
            _size(each.destination_entry),
        )
        for each in found
    ]


def choices_of(form: Form) -> list[pb.ConflictChoice]:
    """Returns the conflicts that a form decides, one path each.

    Raises:
        ApiError: 400.
    """
    found = []
    for name, value in form.items():
        if name.startswith(_CHOICE) and (side := side_of(value)):
            try:
                path = unquote(name.removeprefix(_CHOICE), errors="strict")
            except UnicodeDecodeError as error:
                raise ApiError(400, "a path is not UTF-8", reason="MALFORMED") from error
            found.append(pb.ConflictChoice(pattern=glob_of(path), side=side))
    return found


def side_of(name: str) -> pb.MergeSide:
    """Returns the side that wins conflicts, by its name in forms.

    Raises:
        ApiError: 400.
    """
    if name not in _SIDES:
        text = "conflicts are won by the source, by the destination, or by neither"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    return _SIDES[name]


def _size(packed: bytes) -> int | None:
    return size_of(packed) if packed else None
