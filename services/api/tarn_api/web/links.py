"""Addresses of pages. All are made here, from quoted parts, so no text of a user is ever an address."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlencode

__all__ = ["HOME", "SIGN_IN", "local_target", "to", "to_repository"]

HOME: Final = "/"
SIGN_IN: Final = "/sign-in"
_TARGET_MAX: Final = 4096


def to(*segments: str, **query: str) -> str:
    """Returns the address of a page.

    Args:
        segments: of its path; each is quoted.
        query: parameters; empty ones are left out, and `from_` is `from`.
    """
    path = "".join(f"/{quote(each, safe='')}" for each in segments)
    values = [(name.rstrip("_"), value) for name, value in query.items() if value]
    return f"{path}?{urlencode(values, quote_via=quote)}" if values else path


def to_repository(repository: str, *segments: str, **query: str) -> str:
    """Returns the address of a page of a repository."""
    return to("repositories", repository, *segments, **query)


def local_target(target: str) -> str:
    r"""Returns where to go after a sign-in: the target if it is a path of this origin, otherwise the first page.

    Browsers read `//host` and `/\host` as another host, and leave out tabs and line breaks before they look.
    """
    is_local = (
        len(target) <= _TARGET_MAX
        and target.startswith("/")
        and not target.startswith(("//", "/api/"))
        and "\\" not in target
        and target.isascii()
        and target.isprintable()
        and " " not in target
    )
    return target if is_local else HOME
