"""The style sheet, the script and the icon: own files, named by their content, so that browsers may keep them."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from tarn_api.errors import ApiError

__all__ = ["answer", "url"]

_TYPES: Final = MappingProxyType(
    {
        "app.css": "text/css; charset=utf-8",
        "copy.js": "text/javascript; charset=utf-8",
        "feed.js": "text/javascript; charset=utf-8",
        "upload.js": "text/javascript; charset=utf-8",
        "icon.svg": "image/svg+xml",
    }
)
"""The files, and nothing else: a name in a request never becomes a path."""


@cache
def _content(name: str) -> bytes:
    return files("tarn_api.web").joinpath("static", name).read_bytes()


@cache
def _version(name: str) -> str:
    return hashlib.sha256(_content(name)).hexdigest()[:16]


def url(name: str) -> str:
    """Returns the address of a file, which changes with its content."""
    return f"/assets/{_version(name)}/{name}"


def answer(version: str, name: str) -> Response:
    """Returns a file. Another version is that of another release beside this one: it is not kept.

    Raises:
        ApiError: 404.
    """
    if name not in _TYPES:
        raise ApiError(404, "there is no such file", reason="NO_SUCH_PATH")
    is_current = version == _version(name)
    kept = "public, max-age=31536000, immutable" if is_current else "no-store"
    headers = {
        "Cache-Control": kept,
        "Content-Type": _TYPES[name],
        "Cross-Origin-Resource-Policy": "same-origin",
    }
    return Response(_content(name), headers=headers)
