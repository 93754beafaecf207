"""The form of an upload from a browser: its fields, which are read first, and the file, which is read as a payload."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from tarn.objects.checksums import BodySums
from tarn.objects.incoming import Write, WriteByThread
from tarn_gateway.bodies.checksums import Promised, parse_claims
from tarn_gateway.bodies.payload import Payload, PayloadPolicy
from tarn_gateway.http import BodyError, Headers, Request
from tarn_gateway.requests.header_table import ALL, row_of
from tarn_gateway.requests.multipart import FORM_BYTES_MAX, FormParser, boundary_of
from tarn_gateway.requests.object_headers import NAME, SYSTEM, UNSAFE
from tarn_gateway.s3error import S3Error, from_tarn_error
from tarn_gateway.signing.post_policy import SizeRange, missing_field

__all__ = ["FormReader", "PostForm"]

HEAD_S: Final = 20.0
"""Seconds in which the fields must have arrived, as the head of a request."""
READING_MAX: Final = 64
"""Forms whose fields are being received, before anything is known about their senders."""

_OPERATION: Final = "PostObject"
_FILENAME: Final = "${filename}"
_RENAMED: Final = {"acl": "x-amz-acl"}
_AUTHORIZATION: Final = frozenset(
    {"x-amz-algorithm", "x-amz-credential", "x-amz-date", "x-amz-signature"}
)
_TOKEN: Final = "x-amz-security-token"  # noqa: S105 - the name of a field
_KEPT: Final = frozenset({"host", "content-length", "transfer-encoding"})
_OWNERS: Final = frozenset({"x-amz-expected-bucket-owner"})


@dataclass(slots=True)
class PostForm:
    """A form whose fields are received, and whose file is not.

    Attributes:
        fields: values by lower-case name; `key` is the one that the file will have.
        sizes: what the policy allows; set after it was checked.
    """

    fields: dict[str, str]
    sizes: SizeRange
    _request: Request
    _parser: FormParser
    _begun: bytes | bytearray

    def headers(self) -> Headers:
        """Returns the headers that the fields stand for, with those of the request that say how it is sent.

        Raises:
            S3Error: NotImplemented for a header that a form has as a field; InvalidArgument for a value that no header
                can have.
        """
        sent = self._request.headers
        for name in sent.amz_names:
            row = row_of(name)
            if name == _TOKEN or (
                row is not None and row.honoured_by != ALL and row.honours(_OPERATION)
            ):
                text = f"{name} is a field of the form, not a header of its request."
                raise S3Error("NotImplemented", text, Header=name)
        pairs = [pair for pair in sent.pairs if pair[0] in _KEPT or pair[0] in _OWNERS]
        for field, value in self.fields.items():
            name = _RENAMED.get(field, field)
            if (
                name == _TOKEN
                or name in _AUTHORIZATION
                or not (name.startswith("x-amz-") or name in {*SYSTEM, "content-md5"})
            ):
                continue
            text = value.encode().decode("latin-1")
            if UNSAFE.search(text) or not NAME.fullmatch(name) or row_of(name) is None:
                raise S3Error(
                    "InvalidArgument",
                    f"The field {field[:80]!r} is not accepted.",
                    ArgumentName=field[:80],
                )
            pairs.append((name, text))
        return Headers(pairs)

    def payload(self, policy: PayloadPolicy) -> Payload:
        """Returns the file.

        Raises:
            S3Error: EntityTooLarge; InvalidDigest, InvalidRequest for a checksum; AccessDenied over http, if that must
                not be.
        """
        request, most = self._request, self.sizes.most
        if not request.secure and not policy.unsigned_over_http:
            raise S3Error("AccessDenied", "Unsigned payloads are accepted over TLS only.")
        if most is not None:
            policy = replace(policy, object_bytes_max=min(most, policy.object_bytes_max))
        length = request.body.length
        # The file is at least the body without the most that may be around it.
        if length is not None and length - 2 * FORM_BYTES_MAX - 1024 > policy.object_bytes_max:
            raise S3Error("EntityTooLarge", MaxSizeAllowed=str(policy.object_bytes_max))
        promised = Promised(parse_claims(request.headers, has_trailers=False))
        return _FilePayload(self, promised, policy)

    async def read(self) -> bytes | bytearray:
        """Returns the next bytes of the file; empty at its end, once the whole form was received.

        Raises:
            S3Error: errors of `FormParser.feed` and `FormParser.finish`.
            BodyError: the rest will not arrive.
        """
        piece, self._begun = self._begun, b""
        while not piece:
            received = await self._request.body.read()
            if not received:
                self._parser.finish()
                return b""
            piece = self._parser.feed(received)
        return piece


class _FilePayload(Payload):
    """The file of a form, as the body of an object."""

    __slots__ = ("_form",)

    def __init__(self, form: PostForm, promised: Promised, policy: PayloadPolicy) -> None:
        super().__init__(form._request, None, None, promised, policy)  # noqa: SLF001
        self._form = form

    async def _read(self) -> bytes | memoryview:
        try:
            return memoryview(await self._form.read())
        except BodyError as error:
            raise from_tarn_error(error) from error

    async def pump(self, write: Write, by_thread: WriteByThread | None = None) -> BodySums:  # noqa: ARG002 - see below
        """As `Payload.pump`; never by a thread, which takes all bytes that come for those of the object."""
        return await super().pump(write)

    def _finish(self) -> BodySums:
        sums = super()._finish()
        least = self._form.sizes.least
        if sums.size < least:
            raise S3Error(
                "EntityTooSmall",
                "Your proposed upload is smaller than the minimum allowed size",
                ProposedSize=str(sums.size),
                MinSizeAllowed=str(least),
            )
        return sums


class FormReader:
    """Receives the fields of forms; one for each gateway."""

    def __init__(self) -> None:
        self.reading = 0

    async def read(self, request: Request) -> PostForm:
        """Receives the fields of a form, up to the first byte of its file.

        Raises:
            S3Error: SlowDown: too many are being received; RequestTimeout; InvalidArgument without a key or with
                another authentication beside the form's; errors of `FormParser.feed`.
        """
        if "authorization" in request.headers:
            text = "The request is authenticated both by its form and by its Authorization header."
            raise S3Error("InvalidArgument", text, ArgumentName="Authorization")
        parser = FormParser(boundary_of(request.headers))
        with self._slot():
            try:
                async with asyncio.timeout(HEAD_S):
                    begun = await _fields(request, parser)
            except TimeoutError:
                text = f"The fields of the form did not arrive within {HEAD_S:g} s."
                raise S3Error("RequestTimeout", text) from None
            except BodyError as error:
                raise from_tarn_error(error) from error
        fields = parser.fields
        key = fields.get("key")
        if not key:
            raise missing_field("key")
        if parser.filename is not None:
            # Browsers may send a path; S3 takes the last part of it.
            fields["key"] = key.replace(
                _FILENAME, parser.filename.replace("\\", "/").rpartition("/")[2]
            )
        if "\x00" in fields["key"]:
            raise S3Error("InvalidArgument", "The key holds a NUL character.", ArgumentName="key")
        return PostForm(fields, SizeRange(), request, parser, begun)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if self.reading >= READING_MAX:
            raise S3Error("SlowDown", "Too many forms are being received; try again.")
        self.reading += 1
        try:
            yield
        finally:
            self.reading -= 1


async def _fields(request: Request, parser: FormParser) -> bytes | bytearray:
    """Returns the first bytes of the file."""
    begun: bytes | bytearray = b""
    while not parser.in_file:
        piece = await request.body.read()
        begun = parser.feed(piece)
        if not piece:
            parser.finish()
    return begun
