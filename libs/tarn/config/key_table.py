"""Every key of the configuration, derived from the sections that hold the values, and the page that lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TypeVar, cast, get_type_hints

from tarn.config.sections import Config
from tarn.config.setting import FromFile, Setting, kind_of
from tarn.config.values import Kind, Secret, Sort, described, suffix_of

__all__ = ["KEYS", "Key", "build", "describe", "keys_of"]


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    Attributes:
        name: dotted, as in the file. In the environment: `TARN_` and the name in capitals.
        field: dotted path of the attribute in `Config`: the name and its unit.
        kind: how its text is read.
        default: as a user would write it; None: unset, and `doc` describes the effect.
        doc: one or two sentences, in Markdown.
        aliases: other dotted names of the setting.
        folder: for a path: its default, a folder inside the data folder; else empty.
        from_file: whether it may come from a file that `file_variable` names.
    """

    name: str
    field: str
    kind: Kind
    default: str | None
    doc: str
    aliases: tuple[str, ...]
    folder: str
    from_file: FromFile

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, its own first."""
        return (self.name, *self.aliases)

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return "TARN_" + self.name.upper().replace(".", "_")

    @property
    def file_variable(self) -> str:
        """The name of the environment variable that names a file with the value."""
        return self.variable + "_FILE"

    @property
    def is_secret(self) -> bool:
        """Whether the value is never shown."""
        return _is_secret(self.kind)


def _is_secret(kind: Kind) -> bool:
    return kind in (Sort.SECRET, Sort.HEX_SECRET)


def keys_of(section: type, prefix: str = "") -> Iterator[Key]:
    """Yields the keys of a section and of the sections inside it, in the order of the fields.

    Raises:
        TypeError: a field is neither a section nor a setting, or its type does not match its kind.
    """
    hints = get_type_hints(section)
    for field in fields(section):
        hint, full = hints[field.name], prefix + field.name
        row: Setting | None = field.metadata.get("setting")
        if row is not None:
            kind = kind_of(field.name, hint, row.kind)
            name = full.removesuffix(suffix_of(kind))
            usual = FromFile.OPTIONAL if _is_secret(kind) else FromFile.NO
            from_file = row.from_file or usual
            yield Key(name, full, kind, row.default, row.doc, row.aliases, row.folder, from_file)
        elif _is_section(hint):
            yield from keys_of(hint, full + ".")
        else:
            raise TypeError(f"{full} of {section.__name__} is neither a setting nor a section")


S = TypeVar("S")


def build(section: type[S], values: Mapping[str, object], prefix: str = "") -> S:
    """Builds a section from values by the full name of their field, such as `cache.ranges.size_bytes`."""
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


def describe() -> str:
    """Returns the Markdown tables of `docs/operate/configuration.md`, one for each first part of the names.

    The text ends with a line break.
    """
    lines: list[str] = []
    section = None
    for key in KEYS:
        head, dot, _ = key.name.partition(".")
        title = head if dot else "general"
        if title != section:
            section = title
            lines += ["", f"### {title}", "", "| key | type | default | meaning |"]
            lines.append("|---|---|---|---|")
        lines.append(_row(key))
    return "\n".join(lines[1:]) + "\n"


def _row(key: Key) -> str:
    default = "none" if key.default is None else f"`{key.default}`"
    doc = key.doc
    if key.aliases:
        doc += f" Also `{'`, `'.join(key.aliases)}`."
    return f"| `{key.name}` | {described(key.kind)} | {default} | {doc} |"
