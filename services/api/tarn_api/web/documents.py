"""The documentation for users and operators, as pages: `docs/user` and `docs/operate` of the source.

The wheel has them as `docs` of this package. Names of pages are those of the files that are there, so no name in a
request is a path.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import Final

from markupsafe import Markup

from tarn_api.errors import ApiError
from tarn_api.web import links
from tarn_api.web.markdown import html_of

__all__ = ["PARTS", "Document", "document", "titles"]

PARTS: Final = MappingProxyType({"user": "For users", "operate": "For operators"})
_SUFFIX: Final = ".md"


@dataclass(frozen=True, slots=True)
class Document:
    """A page of the documentation.

    Attributes:
        title: its heading.
        body: what follows.
    """

    title: str
    body: Markup


@cache
def _sources() -> dict[tuple[str, str], Traversable]:
    """Returns all pages by part and name."""
    own = files("tarn_api.web") / "docs"
    folder = own if own.is_dir() else Path(__file__).parents[4] / "docs"
    return {
        (part, file.name.removesuffix(_SUFFIX)): file
        for part in PARTS
        for file in sorted((folder / part).iterdir(), key=lambda each: each.name)
        if file.name.endswith(_SUFFIX)
    }


@cache
def titles() -> dict[str, list[tuple[str, str]]]:
    """Returns the names and titles of the pages of each part, by title."""
    found: dict[str, list[tuple[str, str]]] = {part: [] for part in PARTS}
    for (part, name), file in _sources().items():
        found[part].append((name, _split(file)[0]))
    return {part: sorted(each, key=lambda page: page[1].lower()) for part, each in found.items()}


def document(part: str, name: str) -> Document:
    """Returns a page. It is read and rendered once.

    Raises:
        ApiError: 404.
    """
    if (part, name) not in _sources():
        raise ApiError(404, "there is no such page of the documentation", reason="NO_SUCH_PATH")
    return _rendered(part, name)


@cache
def _rendered(part: str, name: str) -> Document:
    title, text = _split(_sources()[part, name])
    return Document(title, html_of(text, lambda href: _target(part, href), with_ids=True))


def _split(file: Traversable) -> tuple[str, str]:
    first, _, rest = file.read_text(encoding="utf-8").partition("\n")
    return first.removeprefix("# ").strip(), rest


def _target(part: str, href: str) -> str:
    """Returns where a link of a page leads: to another page, or out by TLS. Pages for developers are not served."""
    if href.startswith(("https://", "#")):
        return href
    path, _, anchor = href.partition("#")
    folder, _, file = posixpath.normpath(posixpath.join(part, path)).rpartition("/")
    name = file.removesuffix(_SUFFIX)
    if (folder, name) not in _sources() or not file.endswith(_SUFFIX):
        return ""
    return links.to("docs", folder, name) + (f"#{anchor}" if anchor else "")
