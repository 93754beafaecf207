"""The declaration of a setting: the facts that a field of a section defines beside its name and its type."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from tarn.config.values import Choice, Form, Kind, Number, Secret, Sort, Within

__all__ = ["FromFile", "Setting", "kind_of", "setting"]

_SORTS: dict[object, Sort] = {
    str: Sort.TEXT,
    Path: Sort.PATH,
    bool: Sort.FLAG,
    float: Sort.RATIO,
    Secret: Sort.SECRET,
    tuple[str, ...]: Sort.ADDRESSES,
}
_UNITS = {"_ms": Sort.DURATION, "_bytes": Sort.SIZE}


class FromFile(enum.Enum):
    """Whether a setting may come from a file of its own, which `<variable>_FILE` names."""

    NO = enum.auto()
    REQUIRED = enum.auto()
    """The file must exist."""
    OPTIONAL = enum.auto()
    """Without the file the setting is not given; the folder must exist."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The metadata of one setting; see `setting`."""

    default: str | None
    doc: str
    kind: Kind | None
    aliases: tuple[str, ...]
    folder: str
    from_file: FromFile | None


def setting(
    default: str | None,
    doc: str,
    kind: Kind | None = None,
    *,
    aliases: tuple[str, ...] = (),
    folder: str = "",
    from_file: FromFile | None = None,
) -> Any:  # noqa: ANN401 - as `dataclasses.field`, so that it can stand behind any type
    """Declares a field of a section as a setting.

    Args:
        default: as a user would write it; None: unset, and `doc` describes the effect.
        doc: one or two sentences, in Markdown.
        kind: how the text is read; None: derived from the field's type (`kind_of`).
        aliases: other full, dotted names of the key.
        folder: for a path: its default, a folder inside the data folder.
        from_file: whether it may come from a file of its own; None: OPTIONAL for a secret, NO for all others.
    """
    row = Setting(default, doc, kind, aliases, folder, from_file)
    return field(metadata={"setting": row})


def kind_of(name: str, hint: object, given: Kind | None) -> Kind:
    """Returns how a field's text is read.

    Args:
        name: name of the field.
        hint: type of the field.
        given: the declared kind, if any.

    Raises:
        TypeError: the type alone is ambiguous, or it does not match the values of the declared kind.
    """
    parts = [part for part in get_args(hint) if part is not NoneType]
    plain = parts[0] if NoneType in get_args(hint) and len(parts) == 1 else hint
    words = get_args(plain) if get_origin(plain) is Literal else ()
    if given is None:
        unit = next((sort for end, sort in _UNITS.items() if name.endswith(end)), None)
        found = Choice(words) if words else unit if plain is int else _SORTS.get(plain)
        if found is None:
            raise TypeError(f"{name}: the type {hint} does not determine a kind; declare one")
        return found
    if not _fits(given, name, plain, words):
        raise TypeError(f"{name}: values of {given} are not of type {hint}")
    return given


def _fits(kind: Kind, name: str, plain: object, words: tuple[str, ...]) -> bool:
    match kind:
        case Choice():
            return set(words) == kind.values
        case Number():
            return plain is int and not name.endswith(tuple(_UNITS))
        case Within(sort=sort):
            return plain is int and any(
                name.endswith(end) and sort is unit for end, unit in _UNITS.items()
            )
        case Form() | Sort.ADDRESS:
            return plain is str
        case Sort.HEX_SECRET:
            return plain is Secret
        case Sort():
            return _SORTS.get(plain) is kind
