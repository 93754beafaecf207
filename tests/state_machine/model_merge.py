"""The three-way merge of dictionaries, and the fold of several merge bases (docs/design/versioning.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

__all__ = [
    "UNDECIDED",
    "Choice",
    "Contents",
    "Object",
    "RefusedError",
    "Side",
    "folded",
    "merged",
    "same",
    "set_at",
]


class Object(NamedTuple):
    """A version of an object.

    Attributes:
        version: its identity.
        address: where it was stored; the same version may be stored twice.
    """

    version: int
    address: int


Contents = Mapping[str, Object]
"""Object by path."""


class RefusedError(Exception):
    """The operation is refused; the lake is as before.

    Attributes:
        reason: name of a `tarn.core.errors.Reason`.
        paths: the paths that the refusal is about, in order; None if it names none.
    """

    def __init__(self, reason: str, paths: list[str] | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.paths = paths


class Side(Enum):
    """The winner of a conflict."""

    SOURCE = "source"
    DEST = "dest"


Choice = Callable[[str], Side | None]
"""The winner of a conflict at a path; None refuses the operation."""


UNDECIDED = Object(-1, -1)
"""Stands for the object of a path that is in conflict between merge bases."""


def merged(base: Contents, source: Contents, dest: Contents, choice: Choice) -> dict[str, Object]:
    result: dict[str, Object] = {}
    conflicts = []
    for path in sorted({*base, *source, *dest}):
        old, theirs, ours = base.get(path), source.get(path), dest.get(path)
        if theirs == old:
            new = ours
        elif ours == old:
            new = theirs
        elif same(theirs, ours) or same(theirs, old):
            new = ours
        elif same(ours, old):
            new = theirs
        elif (side := choice(path)) is None:
            conflicts.append(path)
            continue
        else:
            new = theirs if side is Side.SOURCE else ours
        set_at(result, path, new)
    if conflicts:
        raise RefusedError("MERGE_CONFLICT", conflicts)
    return result


def set_at(contents: dict[str, Object], path: str, new: Object | None) -> None:
    if new is None:
        contents.pop(path, None)
    else:
        contents[path] = new


def same(left: Object | None, right: Object | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.version == right.version


def folded(base: Contents | None, left: Contents, right: Contents) -> Contents:
    """Merges two merge bases. A conflict is undecided; without a base, so is every path that differs."""
    result: dict[str, Object] = {}
    for path in {*left, *right}:
        pair = left.get(path), right.get(path)
        new: Object | None = UNDECIDED
        if UNDECIDED not in pair:
            try:
                before = {} if base is None else _only(path, base.get(path))
                ours, theirs = (_only(path, each) for each in pair)
                new = merged(before, ours, theirs, lambda _: None).get(path)
            except RefusedError:
                new = UNDECIDED
            if base is None and not same(*pair):
                new = UNDECIDED
        set_at(result, path, new)
    return result


def _only(path: str, found: Object | None) -> Contents:
    return {} if found is None else {path: found}
