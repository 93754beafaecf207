"""The calls of S3, one attempt each. Bodies of objects use obstore, everything else uses boto3.

boto3 blocks, so its calls run in threads of this object. If the caller stops waiting, a call continues in its
thread until it is answered or times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import obstore
from obstore.store import S3Store

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.thread_work import run_in_thread
from tarn.block.s3.faults import CallError, Failure
from tarn.block.s3.names import ObjectKey
from tarn.block.s3.spool import Held, PartBody

__all__ = ["ObjectHead", "ListedObject", "PAGE_MAX", "STAMP", "Wire"]

T = TypeVar("T")

STAMP: Final = "tarn-write"
"""Metadata of every object: the write that made it. After a lost answer it tells our object from another's."""
_BUCKETS_MAX: Final = 256
PAGE_MAX: Final = 1000
"""S3's limit on one page, and on one batch of deletes."""


@dataclass(frozen=True, slots=True)
class ObjectHead:
    """The result of HEAD on an object.

    Attributes:
        size: bytes.
        mtime_us: when it was written; HEAD gives whole seconds only.
        stamp: the stamp of the write that made it; empty if Tarn did not make it.
        etag: without quotes.
    """

    size: int
    mtime_us: int
    stamp: str
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """A row of a listing."""

    key: str
    size: int
    mtime_us: int


def _seconds_us(when: datetime) -> int:
    return int(when.timestamp()) * 1_000_000


class Wire:
    """One attempt at each call. Raises the libraries' exceptions (`faults.RAISED`).

    Args:
        boto: a boto3 client with retries off.
        open_bucket: makes the obstore of a bucket.
        threads: maximum number of concurrent boto3 calls.
    """

    def __init__(self, boto: Any, open_bucket: Callable[[str], S3Store], threads: int) -> None:  # noqa: ANN401 - boto3 has no types
        self._boto = boto
        self._open_bucket = open_bucket
        self._buckets: BoundedMap[str, S3Store] = BoundedMap(_BUCKETS_MAX)
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="tarn-s3")

    def adopt(self, other: Wire) -> None:
        """Uses the clients of another wire for all further calls, and closes its threads. Running calls go on."""
        self._boto = other._boto
        self._open_bucket = other._open_bucket
        self._buckets = BoundedMap(_BUCKETS_MAX)
        other._threads.shutdown(wait=False)

    async def close(self) -> None:
        """Waits for the threads' calls, also those whose callers have left, and ends the threads."""
        await run_in_thread(partial(self._threads.shutdown, cancel_futures=True))
        self._boto.close()

    def _bucket(self, name: str) -> S3Store:
        found = self._buckets.get(name)
        if found is None:
            found = self._open_bucket(name)
            self._buckets.put(name, found)
        return found

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    # Objects

    async def put(
        self, at: ObjectKey, body: bytes | bytearray | memoryview, stamp: str, *, if_absent: bool
    ) -> None:
        """PutObject."""
        await obstore.put_async(
            self._bucket(at.bucket),
            at.key,
            body,
            attributes={STAMP: stamp},
            mode="create" if if_absent else "overwrite",
            use_multipart=False,
        )

    async def get(self, at: ObjectKey, start: int, end: int) -> tuple[memoryview, int]:
        """GetObject of `[start, end)`, clipped; also returns the whole size. PAST_END from its end on."""
        bucket = self._bucket(at.bucket)
        found = await obstore.get_async(bucket, at.key, options={"range": (start, end)})
        size = found.meta["size"]
        return memoryview(await found.bytes_async()), size

    async def head(self, at: ObjectKey) -> ObjectHead:
        """HeadObject."""
        found = await obstore.get_async(self._bucket(at.bucket), at.key, options={"head": True})
        meta = found.meta
        stamp = str(found.attributes.get(STAMP, ""))
        etag = (meta["e_tag"] or "").strip('"')
        return ObjectHead(meta["size"], _seconds_us(meta["last_modified"]), stamp, etag)

    async def page(
        self, bucket: str, prefix: str, after: str, limit: int
    ) -> tuple[list[ListedObject], bool]:
        """ListObjectsV2: returns up to `limit` rows (at most `PAGE_MAX`), and whether there are more."""

        def work() -> tuple[list[ListedObject], bool]:
            start = {"StartAfter": after} if after else {}
            page = self._boto.list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=limit, **start)
            rows = [
                ListedObject(row["Key"], row["Size"], _seconds_us(row["LastModified"]))
                for row in page.get("Contents", ())
            ]
            return rows, bool(page["IsTruncated"])

        return await self._call(work)

    async def delete(self, bucket: str, keys: Sequence[str]) -> None:
        """DeleteObjects, at most `PAGE_MAX`. Raises `CallError` if some could not be removed."""
        listed = [{"Key": key} for key in keys]

        def work() -> None:
            done = self._boto.delete_objects(
                Bucket=bucket, Delete={"Objects": listed, "Quiet": True}
            )
            for failed in done.get("Errors", ()):
                text = f"{failed.get('Code')}: {failed.get('Message')} ({failed.get('Key')})"
                denied = failed.get("Code") == "AccessDenied"
                raise CallError(Failure.REFUSED if denied else Failure.BUSY, text)

        await self._call(work)

    async def versioning(self, bucket: str) -> str:
        """GetBucketVersioning: `Enabled`, `Suspended`, or empty if the bucket never had versions."""

        def work() -> str:
            return str(self._boto.get_bucket_versioning(Bucket=bucket).get("Status", ""))

        return await self._call(work)

    async def copy(self, source: ObjectKey, at: ObjectKey, stamp: str, source_etag: str) -> str:
        """CopyObject of a source with this ETag (otherwise TAKEN); returns the ETag of the copy, without quotes."""

        def work() -> str:
            done = self._boto.copy_object(
                Bucket=at.bucket,
                Key=at.key,
                CopySource={"Bucket": source.bucket, "Key": source.key},
                CopySourceIfMatch=f'"{source_etag}"',
                MetadataDirective="REPLACE",
                Metadata={STAMP: stamp},
            )
            return str(done["CopyObjectResult"]["ETag"]).strip('"')

        return await self._call(work)

    # Multipart uploads

    async def begin(self, at: ObjectKey, stamp: str) -> str:
        """CreateMultipartUpload; returns the upload id."""

        def work() -> str:
            begun = self._boto.create_multipart_upload(
                Bucket=at.bucket, Key=at.key, Metadata={STAMP: stamp}
            )
            return str(begun["UploadId"])

        return await self._call(work)

    async def part(self, at: ObjectKey, upload_id: str, number: int, body: PartBody) -> str:
        """UploadPart; returns the ETag."""

        def send(source: object) -> str:
            done = self._boto.upload_part(
                Bucket=at.bucket,
                Key=at.key,
                UploadId=upload_id,
                PartNumber=number,
                Body=source,
            )
            return str(done["ETag"])

        def work() -> str:
            if isinstance(body, Held):
                return send(body.data)  # by one system call; a stream is sent in pieces of 16 KiB
            with body.open() as source:
                return send(source)

        return await self._call(work)

    async def copy_part(
        self,
        source: ObjectKey,
        at: ObjectKey,
        upload_id: str,
        number: int,
        span: tuple[int, int] | None,
        source_etag: str = "",
    ) -> str:
        """UploadPartCopy; returns the ETag, without quotes. LACKING: the server took it for an UploadPart.

        TAKEN: the source has another ETag than this one.
        """
        some = {"CopySourceRange": f"bytes={span[0]}-{sum(span) - 1}"} if span else {}
        if source_etag:
            some["CopySourceIfMatch"] = f'"{source_etag}"'

        def work() -> str:
            done = self._boto.upload_part_copy(
                Bucket=at.bucket,
                Key=at.key,
                UploadId=upload_id,
                PartNumber=number,
                CopySource={"Bucket": source.bucket, "Key": source.key},
                **some,
            )
            etag = str(done.get("CopyPartResult", {}).get("ETag", "")).strip('"')
            if not etag:
                raise CallError(Failure.LACKING, "UploadPartCopy")
            return etag

        return await self._call(work)

    async def complete(
        self, at: ObjectKey, upload_id: str, parts: Sequence[tuple[int, str]], *, if_absent: bool
    ) -> None:
        """CompleteMultipartUpload of `(number, ETag)`s."""
        listed = [{"PartNumber": number, "ETag": etag} for number, etag in parts]
        condition = {"IfNoneMatch": "*"} if if_absent else {}

        def work() -> None:
            self._boto.complete_multipart_upload(
                Bucket=at.bucket,
                Key=at.key,
                UploadId=upload_id,
                MultipartUpload={"Parts": listed},
                **condition,
            )

        await self._call(work)

    async def abort(self, at: ObjectKey, upload_id: str) -> None:
        """AbortMultipartUpload."""

        def work() -> None:
            self._boto.abort_multipart_upload(Bucket=at.bucket, Key=at.key, UploadId=upload_id)

        await self._call(work)

    async def unfinished(self, bucket: str, prefix: str) -> list[tuple[ObjectKey, str]]:
        """ListMultipartUploads; returns keys and upload ids, one page of them."""

        def work() -> list[tuple[ObjectKey, str]]:
            page = self._boto.list_multipart_uploads(Bucket=bucket, Prefix=prefix)
            rows = page.get("Uploads", ())
            return [(ObjectKey(bucket, row["Key"]), str(row["UploadId"])) for row in rows]

        return await self._call(work)

    # URLs for clients

    async def presigned(
        self, at: ObjectKey, seconds: int, upload_id: str, part_count: int, *, if_absent: bool
    ) -> tuple[str, list[str]]:
        """Returns a URL for PutObject, or for CompleteMultipartUpload of `upload_id`; and those for UploadPart."""
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        upload = {"UploadId": upload_id} if upload_id else {}
        whole = "complete_multipart_upload" if upload_id else "put_object"
        numbers = range(1, part_count + 1)

        def work() -> tuple[str, list[str]]:
            parts = [self._part_url(at, seconds, upload_id, number) for number in numbers]
            return self._url(whole, at, seconds, **upload, **condition), parts

        return await self._call(work)

    async def presigned_parts(
        self, at: ObjectKey, upload_id: str, numbers: Sequence[int], seconds: int
    ) -> list[str]:
        """Returns URLs for UploadPart."""
        return await self._call(
            lambda: [self._part_url(at, seconds, upload_id, number) for number in numbers]
        )

    async def presigned_read(
        self, at: ObjectKey, seconds: int, content_type: str, content_disposition: str
    ) -> str:
        """Returns a URL for GetObject, whose answer has these headers unless they are empty."""
        named = {
            "ResponseContentType": content_type,
            "ResponseContentDisposition": content_disposition,
        }
        told = {name: value for name, value in named.items() if value}
        return await self._call(lambda: self._url("get_object", at, seconds, **told))

    def _part_url(self, at: ObjectKey, seconds: int, upload_id: str, number: int) -> str:
        return self._url("upload_part", at, seconds, UploadId=upload_id, PartNumber=number)

    def _url(self, method: str, at: ObjectKey, seconds: int, **parameters: object) -> str:
        named = {"Bucket": at.bucket, "Key": at.key, **parameters}
        return str(self._boto.generate_presigned_url(method, Params=named, ExpiresIn=seconds))
