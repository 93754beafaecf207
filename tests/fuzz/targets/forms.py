"""Forms of uploads from browsers: their parts, and the policy among their fields.

An input is the body of a form with the boundary `b`. It is fed as a whole and byte by byte, with the same result.
"""

from __future__ import annotations

from tests.fuzz.targets.refusals import gateway, headers_are_headers

from tarn.testing.fuzz.target import PropertyError, Target
from tarn_gateway.bodies.form import PostForm
from tarn_gateway.documents.tagging import parse_tagging_document
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.requests.multipart import FIELDS_MAX, FORM_BYTES_MAX, FormParser
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.post_policy import SizeRange, check_policy

__all__ = ["TARGET"]

_REQUEST = Request("POST", b"/lake", b"", Headers([]), BodyReader(0))
_NOW_US = 1_764_000_000_000_000

_Parsed = tuple[dict[str, str], str | None, bytes] | str


def _parsed(pieces: list[bytes]) -> _Parsed:
    parser = FormParser(b"b")
    try:
        file = b"".join([bytes(parser.feed(piece)) for piece in pieces])
        parser.finish()
    except S3Error as error:
        return error.code
    return parser.fields, parser.filename, file


def _check(data: bytes) -> str:
    whole = _parsed([data])
    if whole != _parsed([data[at : at + 1] for at in range(len(data))]):
        raise PropertyError("the pieces of a form change what it says")
    if isinstance(whole, str):
        return whole
    fields, _, file = whole
    if len(fields) > FIELDS_MAX or sum(map(len, fields.values())) > FORM_BYTES_MAX:
        raise PropertyError("the fields of a form have no bound")
    if b"\r\n--b" in file:
        raise PropertyError("a file holds its own end")
    form = PostForm(fields, SizeRange(), _REQUEST, FormParser(b"b"), b"")
    headers_are_headers(gateway(_REQUEST, form.headers))
    if "tagging" in fields:
        gateway(_REQUEST, lambda: parse_tagging_document(fields["tagging"].encode()))
    if "policy" in fields:
        gateway(_REQUEST, lambda: check_policy(fields, "lake", _NOW_US))
    return " ".join(sorted(fields))


TARGET = Target(
    "forms",
    _check,
    refusals=(S3Error,),
    traced=(
        "tarn_gateway.requests.multipart",
        "tarn_gateway.signing.post_policy",
        "tarn_gateway.bodies.form",
    ),
    tokens=(
        b"\r\n--b",
        b"--b\r\n",
        b"--b--",
        b'Content-Disposition: form-data; name="',
        b'"; filename="',
        b"file",
        b"policy",
        b"tagging",
        b"x-amz-meta-",
        b"content-type",
        b"\r\n\r\n",
        b"\\",
        b"\xff",
    ),
    input_bytes_max=4096,
    share=0.5,
)
