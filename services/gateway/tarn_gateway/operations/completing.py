"""CompleteMultipartUpload: compares the client's list with the recorded parts. `tarn.objects.completing` makes the
object of them, once.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.entry import Checksum, Entry, unpack
from tarn.core.entry_check import OBJECT_BYTES_MAX
from tarn.core.part_list import PartList
from tarn.objects.checksums import (
    Algorithm,
    composite_checksum,
    full_object_checksum,
    multipart_md5,
    parse_checksum,
)
from tarn.objects.completing import PlannedObject, complete_upload
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import NO_VALUES, PREFIX, SINGLE, checksum_type, parse_algorithm
from tarn_gateway.documents import xml_out
from tarn_gateway.documents.xml_in import COMPLETE_BYTES_MAX, CompletedPart, complete_parser
from tarn_gateway.http import Headers, Request, Response
from tarn_gateway.operations.conditional import requested_condition
from tarn_gateway.operations.uploads import find_upload
from tarn_gateway.requests.address import object_url
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

__all__ = ["Expected", "complete_multipart_upload", "plan_object"]

PART_BYTES_MIN: Final = 5 * 1024**2


@dataclass(frozen=True, slots=True)
class Expected:
    """The client's claims about the whole object; empty or None where it makes none."""

    algorithm: Algorithm | None = None
    value: str = ""
    kind: str = ""
    size: int | None = None


async def complete_multipart_upload(backend: Backend, request: S3Request) -> Response:
    """CompleteMultipartUpload."""
    condition = requested_condition(request)
    expected = _expected(request.headers)
    payload = backend.payload(request, head=_without_object_checksum(request.http))
    # Before the document: it is not received for an upload that does not exist.
    upload = await find_upload(backend, request, backend.opening_call(request))
    user_id = request.granted.grant.user_id
    listed = await backend.documents.read(payload, user_id, COMPLETE_BYTES_MAX, complete_parser)

    def plan(recorded: Mapping[int, pb.UploadPart]) -> PlannedObject:
        parts = _match(listed, recorded, upload)
        return PlannedObject(parts, plan_object(upload, parts, expected), _part_list(upload, parts))

    completed = await complete_upload(
        backend, request, request.repository, upload, _manifest_hash(listed), plan, condition
    )
    entry = completed.entry
    if completed.is_repeat:
        _check_claims(entry, expected)
    location = object_url(request.http, request.address)
    document = xml_out.complete_result(
        location, request.address.bucket, request.address.key, entry.etag, entry.checksums
    )
    return xml_out.answer(document)


def _expected(headers: Headers) -> Expected:
    """Reads `x-amz-checksum-*` and `x-amz-mp-object-size`.

    Raises:
        S3Error: InvalidRequest for several checksums, one that is unknown or cannot be one, another type than S3's, or
            a size that is not a number.
    """
    values = [
        (parse_algorithm(name[len(PREFIX) :]), value)
        for name, value in headers.with_prefix(PREFIX)
        if name not in NO_VALUES
    ]
    if len(values) > 1:
        raise S3Error("InvalidRequest", SINGLE)
    algorithm, value = values[0] if values else (None, "")
    whole, dash, count = value.partition("-")  # a base64 text has no dash
    if algorithm is not None and (
        parse_checksum(algorithm, whole) is None or (dash and not count.isdecimal())
    ):
        raise S3Error("InvalidRequest", f"Value for {PREFIX}{algorithm.lower()} header is invalid.")
    size = headers.get("x-amz-mp-object-size")
    if size is not None and not (size.isascii() and size.isdigit() and len(size) <= 19):
        fault = "less than zero" if size[:1] == "-" and size[1:].isdecimal() else "invalid"
        text = f"Value for x-amz-mp-object-size header is {fault}: '{size[:80]}'"
        raise S3Error("InvalidRequest", text)
    kind = checksum_type(headers)
    return Expected(algorithm, value, kind, None if size is None else int(size))


def _without_object_checksum(request: Request) -> Request:
    """Returns the same request without the checksums of the object, which do not apply to its own body."""
    pairs = [pair for pair in request.headers.pairs if not pair[0].startswith(PREFIX)]
    return Request(
        request.method,
        request.raw_path,
        request.raw_query,
        Headers(pairs),
        request.body,
        remote_addr=request.remote_addr,
        request_id=request.request_id,
        secure=request.secure,
        keep_alive=request.keep_alive,
        http_1_0=request.http_1_0,
    )


def _manifest_hash(listed: Sequence[CompletedPart]) -> bytes:
    lines = "".join(f"{part.number}:{part.etag}\n" for part in listed)
    return hashlib.sha256(lines.encode()).digest()


def _match(
    listed: Sequence[CompletedPart], recorded: Mapping[int, pb.UploadPart], upload: pb.Upload
) -> list[pb.UploadPart]:
    """Returns the recorded parts that the client lists.

    Raises:
        S3Error: InvalidPart if a number, ETag or checksum differs; InvalidArgument as `_claims_of`; BadDigest for a
            checksum of another algorithm than the upload's, which cannot be compared; InvalidRequest for none if that
            of the object is made of them.
    """
    parts = []
    for each in listed:
        part = recorded.get(each.number)
        if part is None:
            text = f"Part {each.number} was not uploaded."
            raise S3Error("InvalidPart", text, PartNumber=str(each.number))
        claimed = _claims_of(each)
        # Without an algorithm of the upload, it was checked with the part, and is not kept.
        value = _comparable(upload, each.number, claimed) if upload.checksum_algorithm else None
        if part.md5.hex() != each.etag.lower() or value not in (None, part.checksum):
            text = f"Part {each.number} has a different ETag or checksum."
            raise S3Error("InvalidPart", text, PartNumber=str(each.number), ETag=each.etag[:80])
        parts.append(part)
    return parts


def _claims_of(listed: CompletedPart) -> tuple[Algorithm, str] | None:
    """Returns the checksum that the client lists for a part.

    Raises:
        S3Error: InvalidArgument for several, or for a value that cannot be one.
    """
    if not listed.checksums:
        return None
    algorithm, value = listed.checksums[0]
    if len(listed.checksums) > 1 or parse_checksum(algorithm, value) is None:
        raise S3Error(
            "InvalidArgument",
            "Invalid Base64 or multiple checksums present in request",
            ArgumentName="Checksum",
            ArgumentValue=value[:80],
        )
    return algorithm, value


def _comparable(
    upload: pb.Upload, number: int, claimed: tuple[Algorithm, str] | None
) -> str | None:
    """Returns the checksum that is listed for a part of an upload with an algorithm; None: none is listed, and none is
    needed.

    Raises:
        S3Error: BadDigest, InvalidRequest: see `_match`.
    """
    name = upload.checksum_algorithm
    if claimed is None:
        if upload.is_full_object_checksum:
            return None
        created = f"The upload was created using a {name.lower()} checksum."
        needs = "The complete request must include the checksum for each part."
        missing = f"It was missing for part {number} in the request."
        raise S3Error("InvalidRequest", f"{created} {needs} {missing}")
    algorithm, value = claimed
    if algorithm != name:
        told = f"you specified for part {number} did not match what we received."
        raise S3Error("BadDigest", f"The {algorithm.lower()} {told}")
    return value


def plan_object(upload: pb.Upload, parts: Sequence[pb.UploadPart], expected: Expected) -> Entry:
    """Returns the entry that the parts make, without its time.

    Args:
        upload: with the headers that were sent when it began.
        parts: in the order of the object, at least one.
        expected: the client's claims about the whole object.

    Raises:
        S3Error: EntityTooSmall, EntityTooLarge; BadDigest or InvalidRequest if the object contradicts
            the claims.
    """
    for part in parts[:-1]:
        if part.size_bytes < PART_BYTES_MIN:
            raise S3Error(
                "EntityTooSmall",
                ProposedSize=str(part.size_bytes),
                MinSizeAllowed=str(PART_BYTES_MIN),
                PartNumber=str(part.part_number),
            )
    size = sum(part.size_bytes for part in parts)
    if size > OBJECT_BYTES_MAX:
        raise S3Error("EntityTooLarge", MaxSizeAllowed=str(OBJECT_BYTES_MAX))
    checksum = _checksum(upload, parts)
    entry = dataclasses.replace(
        unpack(upload.template),
        size=size,
        address=upload.address,
        md5=multipart_md5(part.md5 for part in parts),
        etag_parts=len(parts),
        checksums=() if checksum is None else (checksum,),
    )
    _check_claims(entry, expected)
    return entry


def _part_list(upload: pb.Upload, parts: Sequence[pb.UploadPart]) -> PartList:
    """Returns the parts as the entry keeps them. As in S3, with their checksums if that of the object is composite."""
    sizes = (part.size_bytes for part in parts)
    if not upload.checksum_algorithm or upload.is_full_object_checksum:
        return PartList.of(sizes)
    digests = [base64.b64decode(part.checksum) for part in parts]
    return PartList.of(sizes, upload.checksum_algorithm, digests)


def _checksum(upload: pb.Upload, parts: Sequence[pb.UploadPart]) -> Checksum | None:
    if not upload.checksum_algorithm:
        return None
    algorithm = Algorithm(upload.checksum_algorithm)
    if upload.is_full_object_checksum:
        pairs = ((part.checksum, part.size_bytes) for part in parts)
        return full_object_checksum(algorithm, pairs)
    return composite_checksum(algorithm, (part.checksum for part in parts))


def _check_claims(entry: Entry, expected: Expected) -> None:
    """Raises S3Error BadDigest or InvalidRequest if the object is not what the client says that it is."""
    if expected.size not in (None, entry.size):
        text = (
            f"The provided 'x-amz-mp-object-size' header value {expected.size} does not match what was computed: "
            f"{entry.size}"
        )
        raise S3Error("InvalidRequest", text)
    checksum = next(iter(entry.checksums), None)
    kind = "" if checksum is None else "COMPOSITE" if checksum.composite else "FULL_OBJECT"
    if expected.kind not in ("", kind):
        text = "The complete request must use the same checksum mode."
        text = f"The upload was created using the {kind or 'null'} checksum mode. {text}"
        raise S3Error("InvalidRequest", text)
    if expected.algorithm is None:
        return
    if checksum is None or checksum.algorithm != expected.algorithm:
        text = f"The upload was not begun with the checksum algorithm {expected.algorithm}."
        raise S3Error("InvalidRequest", text)
    # Clients may omit the number of parts from a composite checksum.
    if expected.value not in (checksum.value, checksum.value.partition("-")[0]):
        text = f"The {expected.algorithm} you specified did not match the calculated checksum."
        raise S3Error("BadDigest", text)
