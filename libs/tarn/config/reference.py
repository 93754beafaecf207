"""Generates the Markdown table of every setting in `docs/operate/configuration.md`."""

from __future__ import annotations

from tarn.config.keys import KEYS, Key
from tarn.config.values import described

__all__ = ["describe"]


def describe() -> str:
    """Returns one table for each first part of the names; the text ends with a line break."""
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
