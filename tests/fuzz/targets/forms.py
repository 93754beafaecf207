"""Forms of uploads from browsers: their parts, their signature, and the policy among their fields.

An input is the body of a form with the boundary `b`. It is fed as a whole and byte by byte, with the same result.
"""

from __future__ import annotations

import hmac
import random
import re

from tests.fuzz.targets import signing
from tests.fuzz.targets.refusals import gateway, headers_are_headers, sendable
from tests.support.fuzz.target import PropertyError, Target

from tarn_gateway.bodies.form import PostForm
from tarn_gateway.documents.tagging import parse_tagging_document
from tarn_gateway.http import BodyReader, Headers, Request, Response
from tarn_gateway.operations import posting
from tarn_gateway.requests.multipart import FIELDS_MAX, FORM_BYTES_MAX, FormParser
from tarn_gateway.s3error import S3Error
from tarn_gateway.signing.post_policy import SizeRange, check_policy, parse_post, verify_post
from tarn_gateway.signing.sigv4 import SigV4Policy

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
    if to := posting._redirect(fields.get("success_action_redirect", ""), "lake", "main/k", '"e"'):
        sendable(Response(303, [("Location", to)]))
    words = sorted(fields)
    for step in (_signed, _allowed):
        try:
            words.append(gateway(_REQUEST, lambda step=step: step(fields)))  # type: ignore[misc]  # a default
        except S3Error as error:
            words.append(error.code)
    return " ".join(words)


def _signed(fields: dict[str, str]) -> str:
    """The signature of a form that is accepted is that of its policy."""
    claimed = parse_post(_REQUEST, fields, signing.NOW_US, SigV4Policy())
    verify_post(claimed, fields, signing.KEY)
    if claimed.signature != _signature(fields["policy"].encode()):
        raise PropertyError("a form is accepted with the signature of another policy")
    return "signed"


def _signature(policy: bytes) -> str:
    return hmac.digest(signing.KEY, policy, "sha256").hex()


def _allowed(fields: dict[str, str]) -> str:
    if "policy" in fields:
        check_policy(fields, "lake", _NOW_US)
    return "allowed"


_POLICY_FIELD = re.compile(rb'name="policy"\r\n(?:[^\r]+\r\n)*\r\n(.*?)\r\n--b', re.DOTALL)


def _sign(rng: random.Random, data: bytes) -> bytes:
    """Puts the fields of a signature before a form: that of its policy, or of another one."""
    found = _POLICY_FIELD.search(data)
    policy = found[1] if found else b""
    fields = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{signing.ACCESS}/{signing.SCOPE}",
        "X-Amz-Date": signing.STAMP,
        "X-Amz-Signature": _signature(policy if rng.random() < 0.9 else policy + b" "),
    }
    if rng.random() < 0.3:
        del fields[rng.choice([*fields])]
    head = "".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    return head.encode() + data


TARGET = Target(
    "forms",
    _check,
    refusals=(S3Error,),
    traced=(
        "tarn.objects.forms",
        "tarn_gateway.requests.multipart",
        "tarn_gateway.signing.post_policy",
        "tarn_gateway.bodies.form",
        "tarn_gateway.operations.posting",
    ),
    mutations=(_sign,),
    tokens=(
        b"\r\n--b",
        b"--b\r\n",
        b"--b--",
        b'Content-Disposition: form-data; name="',
        b'"; filename="',
        b"file",
        b"policy",
        b"tagging",
        b"success_action_redirect",
        b"x-amz-meta-",
        b"content-type",
        b"\r\n\r\n",
        b"\\",
        b"\xff",
    ),
    input_bytes_max=4096,
    share=0.5,
)
