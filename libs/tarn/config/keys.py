"""Every key of the configuration, read off the sections that hold their values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeVar, cast, get_type_hints

from tarn.config.sections import Config
from tarn.config.setting import Setting, kind_of
from tarn.config.values import Kind, Secret, Sort, suffix_of

__all__ = ["KEYS", "Key", "build", "keys_of"]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    Attributes:
        name: dotted, as in the file; `TARN_` and the name in capitals in the environment.
        field: dotted, the attribute of `Config`: the name with its unit.
        kind: what its text is made of.
        default: as somebody would type it; None: unset, `doc` says what then happens.
        doc: one sentence or two, in Markdown.
        aliases: other names of it, dotted.
        folder: of a path: the folder in the data folder that it is if not given; else empty.
    """

    name: str
    field: str
    kind: Kind
    default: str | None
    doc: str
    aliases: tuple[str, ...]
    folder: str

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, its own first."""
        return (self.name, *self.aliases)

    @property
    def variable(self) -> str:
        """Its environment variable."""
        return "TARN_" + self.name.upper().replace(".", "_")

    @property
    def is_secret(self) -> bool:
        """Whether its value is shown nowhere, and may come from a file named by `<variable>_FILE`."""
        return self.kind in (Sort.SECRET, Sort.HEX_SECRET)


def keys_of(section: type, prefix: str = "") -> Iterator[Key]:
    """The keys of a section and those below it, in the order of the fields.

    Raises:
        TypeError: a field is neither a section nor a setting, or its type and its kind contradict
            each other.
    """
    hints = get_type_hints(section)
    for field in fields(section):
        hint, full = hints[field.name], prefix + field.name
        row: Setting | None = field.metadata.get("setting")
        if row is not None:
            kind = kind_of(field.name, hint, row.kind)
            name = full.removesuffix(suffix_of(kind))
            yield Key(name, full, kind, row.default, row.doc, row.aliases, row.folder)
        elif _is_section(hint):
            yield from keys_of(hint, full + ".")
        else:
            raise TypeError(f"{full} of {section.__name__} is no setting and no section")


S = TypeVar("S")


def build(section: type[S], values: Mapping[str, object], prefix: str = "") -> S:
    """A section of values by the full name of their field, such as `cache.ranges.size_bytes`."""
    hints = get_type_hints(section)
    arguments: dict[str, object] = {}
    for field in fields(section):  # type: ignore[arg-type]  # every section is a dataclass
        hint, full = hints[field.name], prefix + field.name
        arguments[field.name] = (
            build(hint, values, full + ".") if _is_section(hint) else values[full]
        )
    return cast("Callable[..., S]", section)(**arguments)


def _is_section(hint: object) -> bool:
    return isinstance(hint, type) and is_dataclass(hint) and hint is not Secret


KEYS: tuple[Key, ...] = tuple(keys_of(Config))
