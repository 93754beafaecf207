"""Markdown as HTML for pages: of users, and of Tarn's own documentation.

markdown-it parses it (CommonMark with tables) with raw HTML off: a tag is text. What it made is then gone through token
by token. Every link is one that the page which shows it makes (`Target`), a picture is a link to it, nothing has a
style or a class that the text chose, and characters that hide or turn text are shown as escapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from tarn.core.printable import printable

__all__ = ["MARKDOWN_BYTES_MAX", "Target", "html_of", "is_markdown"]

MARKDOWN_BYTES_MAX: Final = 32 * 1024
"""Of a text of users. The worst ones take a third of a second at this size."""
_LINKS_MAX: Final = 200
"""So that a definition of a long address, used often, makes no page of gigabytes."""
_ADDRESS_MAX: Final = 1024
_NESTING_MAX: Final = 20
_SUFFIXES: Final = (".md", ".markdown")
_TYPES: Final = ("text/markdown", "text/x-markdown")
_NO_PART_OF_AN_ID: Final = re.compile(r"[^\w\- ]")

Target = Callable[[str], str]
"""Returns the address of a page for the target of a link in the text; empty if it leads nowhere."""


def is_markdown(path: str, content_type: str) -> bool:
    """Whether an object is Markdown by its name or its type."""
    kind = content_type.partition(";")[0].strip().lower()
    return path.lower().endswith(_SUFFIXES) or kind in _TYPES


def html_of(
    text: str, target: Target, *, headings_below: int = 0, with_ids: bool = False
) -> Markup:
    """Returns Markdown as HTML.

    Args:
        text: of users at most `MARKDOWN_BYTES_MAX` bytes.
        target: decides links.
        headings_below: the level of the heading of the page under which it stands; 0: levels stay.
        with_ids: whether headings have ids, as links of GitHub name them. A text of users gets none: they could be
            taken for those of the page.
    """
    parser = _parser()
    tokens = parser.parse(text)
    links = _Links(target)
    ids: dict[str, int] = {}
    for at, token in enumerate(tokens):
        _bare(token)
        match token.type:
            case "inline":
                token.children = links.decided(token.children or [])
            case "fence" | "code_block":
                token.content = "\n".join(_shown(each) for each in token.content.split("\n"))
            case "heading_open":
                token.tag = f"h{min(6, int(token.tag[1]) + headings_below)}"
                if with_ids:
                    token.attrSet("id", _id_of(tokens[at + 1].content, ids))
            case "heading_close":
                token.tag = f"h{min(6, int(token.tag[1]) + headings_below)}"
            case _:
                pass
    return Markup(parser.renderer.render(tokens, parser.options, {}))  # noqa: S704 - every token is escaped or ours


class _Links:
    """The links of a text.

    Args:
        target: decides them.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._count = 0

    def decided(self, tokens: Sequence[Token]) -> list[Token]:
        """Returns the tokens of a paragraph with its links and pictures as links of the page, or as text."""
        found: list[Token] = []
        addresses: list[str] = []
        for token in tokens:
            match token.type:
                case "link_open":
                    given = str(token.attrs.get("href", ""))
                    token.attrs = {}
                    href = self._of(given)
                    token.hidden = not href
                    if href:
                        token.attrs = _attributes_of(href)
                    addresses.append("" if href else given)
                    found.append(token)
                case "link_close":
                    given = addresses.pop()
                    token.hidden = found_hidden = bool(given) or _opener(found).hidden
                    found.append(token)
                    if (
                        found_hidden
                        and given
                        and self._count <= _LINKS_MAX
                        and not _says(found, given)
                    ):
                        found.append(_text(f" ({given[:_ADDRESS_MAX]})"))
                case "image":
                    found += self._picture(token)
                case _:
                    _bare(token)
                    token.content = _shown(token.content)
                    found.append(token)
        return found

    def _of(self, given: str) -> str:
        self._count += 1
        if self._count > _LINKS_MAX or len(given) > _ADDRESS_MAX:
            return ""
        return self._target(given)

    def _picture(self, token: Token) -> list[Token]:
        """A picture is a link to it: no page loads what a text names."""
        href = self._of(str(token.attrs.get("src", "")))
        text = _text(f"[picture: {token.content}]")
        if not href:
            return [text]
        opened = Token("link_open", "a", 1, attrs=_attributes_of(href))
        return [opened, text, Token("link_close", "a", -1)]


def _attributes_of(href: str) -> dict[str, str | int | float]:
    return {"href": href} if href.startswith(("/", "#")) else {"href": href, "rel": "noreferrer"}


def _opener(tokens: Sequence[Token]) -> Token:
    """Returns the beginning of the link that ends after these tokens. Links do not nest."""
    return next(each for each in reversed(tokens) if each.type == "link_open")


def _says(tokens: Sequence[Token], address: str) -> bool:
    """Whether the text of the last link is its address."""
    texts: list[str] = []
    for each in reversed(tokens):
        if each.type == "link_open":
            break
        texts.append(each.content)
    return "".join(reversed(texts)) == address


def _text(content: str) -> Token:
    return Token("text", "", 0, content=_shown(content))


def _shown(line: str) -> str:
    return "\t".join(printable(each) for each in line.split("\t"))


def _bare(token: Token) -> None:
    """Takes off what a text says about its looks; a column of numbers stays one."""
    is_right = "right" in str(token.attrs.get("style", ""))
    token.info = ""
    token.attrs = {"class": "number"} if is_right else _kept(token)


def _kept(token: Token) -> dict[str, str | int | float]:
    return {name: value for name, value in token.attrs.items() if name == "start"}


def _id_of(heading: str, taken: dict[str, int]) -> str:
    made = _NO_PART_OF_AN_ID.sub("", heading.replace("`", "").lower()).strip().replace(" ", "-")
    count = taken[made] = taken.get(made, -1) + 1
    return f"{made}-{count}" if count else made


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("js-default", {"html": False, "maxNesting": _NESTING_MAX})
    for name, rule in (
        ("fence", _code),
        ("code_block", _code),
        ("table_open", lambda *_: '<div class="wide" role="region" aria-label="Table" tabindex="0"><table>\n'),
        ("table_close", lambda *_: "</table></div>\n"),
    ):  # fmt: skip
        parser.add_render_rule(name, rule)
    return parser


def _code(_: object, tokens: Sequence[Token], at: int, *__: object) -> str:
    """Code that is wider than the page is scrolled by keys, too."""
    return str(
        Markup('<pre tabindex="0" role="region" aria-label="Code">{}</pre>\n').format(
            tokens[at].content
        )
    )
