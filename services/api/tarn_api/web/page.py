"""Pages as answers: rendered from a template that escapes everything, with the headers that guard this origin."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from types import MappingProxyType
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import Response

from tarn.core.byte_sizes import shown_size
from tarn.core.entry import shown_time_us
from tarn.core.moments import iso_seconds
from tarn.core.printable import printable
from tarn_api.context import Context
from tarn_api.web import assets, links

__all__ = [
    "Crumb",
    "Page",
    "compile_templates",
    "environment",
    "first_line",
    "redirect",
    "render",
    "rendered",
    "time_of",
]

_GUARDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",  # what frame-ancestors says, for old browsers
        # Other sites are told nothing; a form of this one still tells its origin.
        "Referrer-Policy": "same-origin",
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Resource-Policy": "same-origin",
    }
)
_SUBJECT_MAX: Final = 200
"""Characters of the first line of a message that a table shows."""


@dataclass(frozen=True, slots=True)
class Crumb:
    """A step of the way to a page.

    Attributes:
        text: shown.
        href: of the page of the step; empty for the page itself.
    """

    text: str
    href: str = ""


class Page(Response):
    """A page of HTML.

    Args:
        content: the document.
        status: of HTTP.
        nonce: of its style sheet and its script, which alone may run: an object of a user has none, wherever it is.

    Attributes:
        guards: headers that every answer with it has, instead of those of other answers.
    """

    def __init__(self, content: str, status: int, nonce: str) -> None:
        super().__init__(content, status, media_type="text/html")
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src 'self'; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
        )
        self.guards = {**_GUARDS, "Content-Security-Policy": policy}


def redirect(target: str) -> Response:
    """Returns the answer that sends a browser to another page, after a form or for a sign-in."""
    return Response(status_code=303, headers={"Location": target})


def render(
    context: Context,
    template: str,
    *,
    title: str,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
    **values: object,
) -> Page:
    """Returns a page for the caller of a request.

    Args:
        context: of the request.
        template: its name.
        title: of the page, also its heading.
        crumbs: the way to it.
        status: of HTTP.
        values: for the template.
    """
    user = "" if context.grant is None else context.grant.user_id
    nonce = context.objects.ids.nonce().hex()
    return rendered(
        template, nonce, user=user, title=title, crumbs=crumbs, status=status, values=values
    )


def rendered(
    template: str,
    nonce: str,
    *,
    user: str,
    title: str,
    crumbs: Sequence[Crumb] = (),
    status: int = 200,
    values: Mapping[str, object] = MappingProxyType({}),
) -> Page:
    """Returns a page; see `render`."""
    content = (
        environment()
        .get_template(template)
        .render(nonce=nonce, user=user, title=title, crumbs=crumbs, **values)
    )
    return Page(content, status, nonce)


@cache
def environment() -> Environment:
    """Returns the templates. They escape all values, and a name that has no value is an error."""
    made = Environment(
        loader=PackageLoader("tarn_api.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "name": _name,
        "plain": printable,
        "text": _text,
        "size": shown_size,
        "subject": lambda message: first_line(message)[:_SUBJECT_MAX],
        "time": time_of,
        "day": _machine_time,
    }
    made.globals |= {
        "asset": assets.url,
        "to": links.to,
        "to_repository": links.to_repository,
    }
    return made


async def compile_templates() -> None:
    """Compiles all templates, one after the other in a thread: otherwise the first view of each page would."""
    made = environment()
    for name in made.list_templates():
        await asyncio.to_thread(made.get_template, name)


def _name(text: str) -> Markup:
    """Returns a name or another short text of a user: on one line, with what is invisible or changes the direction
    shown as escapes, and apart from the direction of the text around it."""
    return Markup("<bdi>{}</bdi>").format(escape(printable(text)))


def _text(line: str) -> Markup:
    """Returns a line of a user's text, as `_name` does; tabs stay."""
    shown = "\t".join(printable(each) for each in line.split("\t"))
    return Markup("<bdi>{}</bdi>").format(escape(shown))


def first_line(message: str) -> str:
    """Returns the first line of the message of a commit."""
    return (message.splitlines() or [""])[0]


def time_of(time_us: int) -> str:
    """Returns a time in Unix microseconds for people, in UTC."""
    when = datetime.fromtimestamp(shown_time_us(time_us) // 1_000_000, UTC)
    return when.strftime("%Y-%m-%d %H:%M:%S UTC")


def _machine_time(time_us: int) -> str:
    return iso_seconds(shown_time_us(time_us))
