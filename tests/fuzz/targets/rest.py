"""Requests of the REST endpoint: paths, parameters, cookies, key pairs and JSON.

An input is a method, a target and headers, one a line, an empty line, and a body.
"""

from __future__ import annotations

from starlette.requests import Request
from tests.support.fuzz.target import PropertyError, Target

from tarn_api import browsers, signing_in
from tarn_api.errors import ApiError
from tarn_api.requests import Routes, decode_body, decode_parameters
from tarn_rest.operations import OPERATIONS

__all__ = ["TARGET"]

_ROUTES = Routes(OPERATIONS)
_BASE = b"/api/v1/"


def _check(data: bytes) -> str:
    head, _, body = data.partition(b"\n\n")
    first, *lines = head.split(b"\n")
    method, _, target = first.partition(b" ")
    path, _, query = target.partition(b"?")
    headers = [(name.lower(), value) for name, _, value in (each.partition(b":") for each in lines)]
    request = Request(
        {
            "type": "http",
            "method": method.decode("latin-1"),
            "path": "",
            "raw_path": path,
            # llhttp refuses others.
            "query_string": bytes(each for each in query if each < 128),
            "headers": headers,
            "client": ("127.0.0.1", 1),
        }
    )
    said = [_said(lambda: _site(request)), _said(lambda: _credentials(request))]
    try:
        operation, values = _ROUTES.find(request.method, path.removeprefix(_BASE))
        said.append(operation.id)
        if any("/" in template and not value for template, value in values.items()):
            raise PropertyError("a parameter of a path is empty")
        at = decode_parameters(operation, values, request)
        for name, value in values.items():
            if getattr(at, name, value) not in (value, int(value) if value.isdecimal() else value):
                raise PropertyError(f"{name} of the path is another one")
        if operation.body is not None:
            decode_body(operation, body)
    except ApiError as error:
        said.append(_status(error))
    return " ".join(said)


def _said(step: object) -> str:
    assert callable(step)
    try:
        return str(step())
    except ApiError as error:
        return _status(error)


def _status(error: ApiError) -> str:
    if error.status not in (400, 401, 403, 404, 405):
        raise PropertyError(f"a request is answered {error.status}")
    return str(error.status)


def _site(request: Request) -> str:
    if not browsers.is_from_here(request):
        return "elsewhere"
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "")
    host = request.headers.get("host", "")
    if site not in ("same-origin", "none") and not (
        site is None and origin.lower().endswith(f"://{host.lower()}")
    ):
        raise PropertyError("a request of another site is taken for one of this")
    return "here"


def _credentials(request: Request) -> str:
    secret = browsers.secret_of(request)
    if secret is not None and f"tarn={secret}" not in ";".join(request.headers.getlist("cookie")):
        raise PropertyError("a secret that no cookie holds")
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        key, _ = signing_in._pair(value)
        if not key or ":" in key:
            raise PropertyError("the key id of a pair ends elsewhere")
        return "basic"
    return "none" if secret is None else "cookie"


TARGET = Target(
    "rest",
    _check,
    (),
    ("tarn_api.requests", "tarn_api.browsers", "tarn_api.signing_in"),
    (),
    (
        b"GET /api/v1/",
        b"POST /api/v1/",
        b"repositories/",
        b"branches/",
        b"refs/",
        b"?amount=",
        b"&prefix=",
        b"%2F",
        b"%ff",
        b"\ncookie:__Host-tarn=",
        b"; tarn=",
        b"\nhost:localhost:1",
        b"\norigin:http://",
        b"\nsec-fetch-site:same-origin",
        b"\nauthorization:Basic ",
        b"\nrange:bytes=",
        b'{"name":"',
        b'","source":"',
    ),
    input_bytes_max=4096,
    share=0.5,
)
