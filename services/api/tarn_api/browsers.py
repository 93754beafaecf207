"""What is different about browsers: they send cookies by themselves, also for pages of other sites.

`docs/design/web-sessions.md` says what is decided. Pure functions of a request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from starlette.requests import Request

from tarn_api.errors import ApiError

__all__ = [
    "ANSWER_HEADERS",
    "SECURE_NAME",
    "cookie_header",
    "ended_cookie_header",
    "is_browser",
    "is_from_here",
    "is_local",
    "refuse_other_sites",
    "secret_of",
]

ANSWER_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "X-Content-Type-Options": "nosniff",
        # An object that is a page of HTML runs no script at this origin, and no page shows an answer in a frame.
        "Content-Security-Policy": "default-src 'none'; sandbox; frame-ancestors 'none'",
    }
)
"""Of every answer. None allows another origin to read it (CORS)."""

SECURE_NAME: Final = "__Host-tarn"
_LOCAL_NAME: Final = "tarn"
_ATTRIBUTES: Final = "Path=/; HttpOnly; SameSite=Lax"
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES: Final = frozenset({"same-origin", "none"})


def secret_of(request: Request) -> str | None:
    """Returns what the session's cookie of a request holds; None if there is none.

    Raises:
        ApiError: 401: there are several, and a browser would not say which one this host has set.
    """
    name = _name(request)
    found = []
    for line in request.headers.getlist("cookie"):
        for each in line.split(";"):
            key, is_pair, value = each.strip().partition("=")
            if is_pair and key == name:
                found.append(value)
    if len(found) > 1:
        raise ApiError(401, "there are several cookies of a session", reason="UNAUTHENTICATED")
    return found[0] if found else None


def cookie_header(request: Request, secret: str) -> str:
    """Returns the header `Set-Cookie` for a session."""
    name = _name(request)
    secure = "; Secure" if name == SECURE_NAME else ""
    return f"{name}={secret}; {_ATTRIBUTES}{secure}"


def ended_cookie_header(request: Request) -> str:
    """Returns the header `Set-Cookie` that takes the cookie away."""
    return cookie_header(request, "") + "; Max-Age=0"


def is_browser(request: Request) -> bool:
    """Whether a browser says that it is one."""
    headers = request.headers
    return "sec-fetch-site" in headers or "origin" in headers


def is_from_here(request: Request) -> bool:
    """Whether a browser says that a page of this origin, or its user alone, makes it send a request."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in _OWN_SITES
    _, is_url, origin = request.headers.get("origin", "").partition("://")
    return bool(is_url) and origin.lower() == request.headers.get("host", "").lower()


def refuse_other_sites(request: Request) -> None:
    """Refuses a change that a page of another site may have made a browser send.

    Raises:
        ApiError: 403.
    """
    if request.method not in _SAFE_METHODS and not is_from_here(request):
        text = (
            "this request may come from another site: a change with the credentials of a browser needs "
            "Sec-Fetch-Site: same-origin, or an Origin of this host"
        )
        raise ApiError(403, text, reason="OTHER_SITE")


def _name(request: Request) -> str:
    """Returns the name of the cookie: browsers take `__Host-` over TLS only, from this host only."""
    return _LOCAL_NAME if is_local(request) else SECURE_NAME


def is_local(request: Request) -> bool:
    """Whether a request comes from this machine without TLS, and asks for it by a name of the loopback."""
    host = request.headers.get("host", "").lower()
    name, _, port = host.rpartition(":")
    if not name or not port.isdecimal():
        name = host
    return (
        request.scope.get("scheme", "http") != "https"
        and name in _LOCAL_NAMES
        and _is_loopback((request.scope.get("client") or ("", 0))[0])
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
