"""Multipart uploads: begin, abort, and the two listings. Graveler keeps their state."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass, field
from typing import Final

from tarn.core.entry import Checksum
from tarn.core.entry_check import PARTS_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId
from tarn.core.refs import branch_to_write
from tarn.objects.checksums import Algorithm
from tarn.objects.headers import NOTHING, with_headers
from tarn.objects.uploads import abort_upload, begin_upload
from tarn.rpc.wire.call import Call
from tarn_gateway.backend import Backend
from tarn_gateway.bodies.checksums import checksum_type, parse_algorithm
from tarn_gateway.documents import xml_out
from tarn_gateway.http import Headers, Response
from tarn_gateway.operations.putting import lineage_of
from tarn_gateway.operations.refs import branch_roots, within
from tarn_gateway.requests.object_headers import parse_object_headers
from tarn_gateway.requests.query import url_encoding
from tarn_gateway.requests.tagging import parse_tagging
from tarn_gateway.s3error import S3Error
from tarn_gateway.s3request import S3Request
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

__all__ = [
    "abort_multipart_upload",
    "create_multipart_upload",
    "find_upload",
    "list_multipart_uploads",
    "list_parts",
]

PAGE_MAX: Final = 1000
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")


async def create_multipart_upload(backend: Backend, request: S3Request) -> Response:
    """CreateMultipartUpload: fixes headers and checksum algorithm of the object."""
    headers = request.headers
    branch, path = request.branch, request.path
    if not path:
        raise S3Error("InvalidArgument", "The key must name an object on a branch.")
    empty = dataclasses.replace(NOTHING, tags=parse_tagging(headers))
    template = with_headers(empty, parse_object_headers(headers), lineage_of(headers))
    algorithm, full_object = _checksum_plan(headers)
    upload = await begin_upload(
        backend,
        request,
        request.repository,
        branch,
        path,
        template,
        algorithm=algorithm,
        is_full_object=full_object,
    )
    answer = []
    if algorithm is not None:
        answer.append(("x-amz-checksum-algorithm", str(algorithm)))
        answer.append(("x-amz-checksum-type", "FULL_OBJECT" if full_object else "COMPOSITE"))
    return xml_out.answer(
        xml_out.initiate_result(request.address.bucket, request.address.key, upload.upload_id),
        answer,
    )


def _checksum_plan(headers: Headers) -> tuple[Algorithm | None, bool]:
    """Returns the algorithm of an upload, and whether its checksum covers the whole object.

    Raises:
        S3Error: InvalidRequest for a combination that S3 does not have.
    """
    name, kind = headers.text("x-amz-checksum-algorithm"), checksum_type(headers)
    if not name:
        if kind:
            with_ = "can only be used with the x-amz-checksum-algorithm header."
            text = f"The x-amz-checksum-type header {with_}"
            raise S3Error("InvalidRequest", text)
        return None, False
    algorithm = parse_algorithm(name)
    # S3's defaults: CRC64NVME is only over the whole object, SHA only over the parts.
    full_object = kind == "FULL_OBJECT" or (not kind and algorithm is Algorithm.CRC64NVME)
    if full_object and algorithm in (Algorithm.SHA1, Algorithm.SHA256):
        raise _without("FULL_OBJECT", algorithm)
    if not full_object and algorithm is Algorithm.CRC64NVME:
        raise _without("COMPOSITE", algorithm)
    return algorithm, full_object


def _without(kind: str, algorithm: Algorithm) -> S3Error:
    name = algorithm.lower()
    text = f"The {kind} checksum type cannot be used with the {name} checksum algorithm."
    return S3Error("InvalidRequest", text)


async def find_upload(backend: Backend, request: S3Request, call: Call) -> pb.Upload:
    """Returns the upload that the request names; it may be complete already.

    Raises:
        S3Error: NoSuchUpload for a string that is not an upload id.
        TarnError: UPLOAD_NOT_FOUND, also if the upload belongs to another key.
    """
    upload_id = request.query.text("uploadId")
    if not _UPLOAD_ID.fullmatch(upload_id):
        raise S3Error("NoSuchUpload")
    return await backend.graveler.get_upload(
        call, request.repository, request.branch, request.path, upload_id
    )


async def abort_multipart_upload(backend: Backend, request: S3Request) -> Response:
    """AbortMultipartUpload."""
    upload = await find_upload(backend, request, backend.opening_call(request))
    await abort_upload(backend, request, request.repository, upload)
    return Response(204)


async def list_parts(backend: Backend, request: S3Request) -> Response:
    """ListParts."""
    query = request.query
    max_parts = query.integer("max-parts", PAGE_MAX, least=0, most=PAGE_MAX)
    marker = query.integer("part-number-marker", 0, least=0, most=PARTS_MAX)
    opening = backend.opening_call(request)
    upload = await find_upload(backend, request, opening)
    parts: list[xml_out.ListedPart] = []
    truncated = False
    if max_parts:
        page = await backend.graveler.list_upload_parts(
            opening,
            request.repository,
            upload.upload_id,
            after_part_number=marker,
            page_size=max_parts,
        )
        parts = [_listed_part(upload, part) for part in page.parts]
        truncated = page.is_truncated
    document = xml_out.list_parts(
        request.address.bucket,
        request.address.key,
        upload.upload_id,
        parts,
        part_number_marker=marker,
        max_parts=max_parts,
        truncated=truncated,
        owner=upload.user_id,
        url_encoded=url_encoding(query),
        checksum_algorithm=upload.checksum_algorithm,
        checksum_type=_checksum_type(upload),
    )
    return xml_out.answer(document)


def _checksum_type(upload: pb.Upload) -> str:
    if not upload.checksum_algorithm:
        return ""
    return "FULL_OBJECT" if upload.is_full_object_checksum else "COMPOSITE"


def _listed_part(upload: pb.Upload, part: pb.UploadPart) -> xml_out.ListedPart:
    checksums: tuple[Checksum, ...] = ()
    if part.checksum:
        checksums = (Checksum(upload.checksum_algorithm, part.checksum),)
    mtime_us = part.create_time.ToMicroseconds()
    return xml_out.ListedPart(
        part.part_number, part.size_bytes, part.md5.hex(), mtime_us, checksums
    )


@dataclass(slots=True)
class _Uploads:
    """A page of open uploads being filled; common prefixes count as rows."""

    prefix: str
    delimiter: str
    key_marker: str
    most: int
    uploads: list[xml_out.ListedUpload] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    last: tuple[str, str] = ("", "")
    truncated: bool = False

    def __len__(self) -> int:
        return len(self.uploads) + len(self.prefixes)

    def add(self, root: str, upload: pb.Upload) -> bool:
        """Adds one upload; returns False if the page is full."""
        key = root + upload.path
        rolled = self._rolled(key)
        if rolled is not None and (rolled <= self.key_marker or rolled in self.prefixes[-1:]):
            return True
        if len(self) >= self.most:
            self.truncated = True
            return False
        if rolled is not None:
            self.prefixes.append(rolled)
            self.last = (rolled, upload.upload_id)
            return True
        create_time_us = upload.create_time.ToMicroseconds()
        row = xml_out.ListedUpload(
            key,
            upload.upload_id,
            create_time_us,
            upload.user_id,
            upload.checksum_algorithm,
            _checksum_type(upload),
        )
        self.uploads.append(row)
        self.last = (key, upload.upload_id)
        return True

    def _rolled(self, key: str) -> str | None:
        at = key.find(self.delimiter, len(self.prefix)) if self.delimiter else -1
        return None if at < 0 else key[: at + len(self.delimiter)]


async def list_multipart_uploads(backend: Backend, request: S3Request) -> Response:
    """ListMultipartUploads: of one branch, or of all branches that match the prefix, in the order of keys.

    Common prefixes are computed here, because open uploads are few: a page reads each of them.
    """
    query = request.query
    shown = len(request.place.root)  # what a view leaves out of each key
    prefix, key_marker = query.text("prefix"), query.text("key-marker")
    prefix = request.place.root + prefix
    key_marker = request.place.root + key_marker if key_marker else ""
    id_marker = query.text("upload-id-marker") if key_marker else ""
    if id_marker and not _UPLOAD_ID.fullmatch(id_marker):
        raise S3Error(
            "InvalidArgument",
            "Invalid uploadId marker",
            ArgumentName="upload-id-marker",
            ArgumentValue=id_marker[:80],
        )
    most = query.integer("max-uploads", PAGE_MAX, least=0, most=PAGE_MAX)
    page = _Uploads(prefix, query.text("delimiter"), key_marker, most)
    call = backend.opening_call(request, backend.bounds.list_timeout_s)
    if most:
        for root, path_prefix in await _roots(backend, request, call, prefix):
            path = within(root, key_marker)
            if path is not None:
                after = (path, id_marker if path else "")
                await _add_branch(backend, request, call, page, root, path_prefix, after)
            if page.truncated:
                break
    next_key, next_id = page.last if page.truncated else ("", "")
    listing = xml_out.UploadListing(
        request.address.bucket,
        [upload._replace(key=upload.key[shown:]) for upload in page.uploads],
        [each[shown:] for each in page.prefixes],
        prefix=prefix[shown:],
        delimiter=page.delimiter,
        max_uploads=most,
        truncated=page.truncated,
        url_encoded=url_encoding(query),
        key_marker=key_marker[shown:],
        upload_id_marker=id_marker,
        next_key_marker=next_key[shown:],
        next_upload_id_marker=next_id,
    )
    return xml_out.answer(xml_out.list_uploads(listing))


async def _roots(
    backend: Backend, request: S3Request, call: Call, prefix: str
) -> list[tuple[str, str]]:
    """Returns `<branch>/` of the branches to search, and the prefix of paths in each."""
    ref, slash, path_prefix = prefix.partition("/")
    if not slash:
        return [(root, "") for root in await branch_roots(backend, request, call, prefix)]
    if not ref:
        return []
    try:
        return [(f"{branch_to_write(ref)}/", path_prefix)]
    except TarnError as error:
        if error.reason is Reason.REF_NOT_WRITABLE:
            return []  # a commit has no uploads
        raise


async def _add_branch(
    backend: Backend,
    request: S3Request,
    call: Call,
    page: _Uploads,
    root: str,
    prefix: str,
    after: tuple[str, str],
) -> None:
    while True:
        found = await backend.graveler.list_uploads(
            call,
            request.repository,
            BranchId(root[:-1]),
            prefix=prefix,
            after_path=after[0],
            after_upload_id=after[1],
        )
        for upload in found.uploads:
            if not page.add(root, upload):
                return
        if not found.is_truncated:
            return
        if not found.uploads:
            text = "a truncated page of uploads is empty"
            raise TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
        after = (found.uploads[-1].path, found.uploads[-1].upload_id)
