"""Reads the storage namespace of a repository of lakeFS: a folder, or a prefix of a bucket. Nothing is written there.

Addresses come from the repository's metadata, which whoever could write to the bucket may have made. So only what lies
in the namespace is read, and what lies below a prefix that the caller has allowed: otherwise an address could lead to
any file of this machine, or to any object that the key of the caller opens.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from tarn.block.port import CHUNK_BYTES
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["BucketSource", "FolderSource", "Source", "absent", "opened_source"]

_T = TypeVar("_T")

_S3: Final = "s3://"
_LOCAL: Final = "local://"
_GONE: Final = frozenset({"404", "NoSuchKey", "NotFound"})
_FORBIDDEN: Final = 403
_BEHIND_THE_END: Final = 416


class Source(Protocol):
    """Where the files of a repository are. Addresses are relative to the storage namespace, or whole URIs."""

    async def size(self, address: str) -> int:
        """Returns the bytes of a file.

        Raises:
            TarnError: NOT_FOUND; DENIED: the address is outside; UNAVAILABLE.
        """
        ...

    async def read(self, address: str, start: int, length: int) -> bytes:
        """Returns a part of a file, shorter at its end; raises as `size`."""
        ...

    def stream(self, address: str) -> AsyncGenerator[bytes, None]:
        """Yields a file in chunks; raises as `size`."""
        ...


def absent(address: str) -> TarnError:
    """Returns the error for a file that is not there."""
    text = f"{address[:300]!a} is not in the storage namespace of lakeFS"
    return TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text)


def _outside(address: str, advice: str) -> TarnError:
    text = f"address {address[:300]!a} is outside of the storage namespace; {advice}"
    return TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)


def _unreadable(address: str, error: Exception) -> TarnError:
    text = f"{address[:300]!a} of lakeFS cannot be read: {error}"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)


class FolderSource:
    """A folder, as lakeFS's `local` block store has one for each repository.

    Args:
        root: the folder of the repository.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def _open(self, address: str) -> int:
        path = Path(address.removeprefix(_LOCAL)) if address.startswith(_LOCAL) else Path(address)
        path = self._root / path
        try:
            place = path.resolve()
            if not place.is_relative_to(self._root):
                raise _outside(
                    address, "copy the object into the repository in lakeFS, and dump it again"
                )
            found = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError, ValueError) as error:
            raise absent(address) from error
        except (OSError, RuntimeError) as error:
            raise _unreadable(address, error) from error
        if not stat.S_ISREG(os.fstat(found).st_mode):
            os.close(found)
            raise absent(address)
        return found

    async def size(self, address: str) -> int:
        """See `Source.size`."""

        def work() -> int:
            opened = self._open(address)
            try:
                return os.fstat(opened).st_size
            finally:
                os.close(opened)

        return await asyncio.to_thread(work)

    async def read(self, address: str, start: int, length: int) -> bytes:
        """See `Source.read`."""

        def work() -> bytes:
            opened = self._open(address)
            try:
                return os.pread(opened, length, start)
            except OSError as error:
                raise _unreadable(address, error) from error
            finally:
                os.close(opened)

        return await asyncio.to_thread(work)

    async def stream(self, address: str) -> AsyncGenerator[bytes, None]:
        """See `Source.stream`."""
        opened = await asyncio.to_thread(self._open, address)
        try:
            while chunk := await asyncio.to_thread(os.read, opened, CHUNK_BYTES):
                yield chunk
        except OSError as error:
            raise _unreadable(address, error) from error
        finally:
            os.close(opened)


class BucketSource:
    """A prefix of a bucket.

    Args:
        client: of boto3.
        namespace: `s3://bucket/prefix`, as lakeFS shows the storage namespace.
        allowed: further prefixes that addresses of imported objects may have, such as `s3://other/raw/`.
    """

    def __init__(self, client: Any, namespace: str, allowed: Sequence[str] = ()) -> None:  # noqa: ANN401
        self._client = client
        self._namespace = namespace.rstrip("/") + "/"
        self._allowed = (self._namespace, *allowed)

    def _place(self, address: str) -> dict[str, str]:
        uri = address if "://" in address else self._namespace + address
        if not uri.startswith(self._allowed) or ".." in uri.split("/"):
            raise _outside(address, "allow its prefix by --allow")
        bucket, _, key = uri.removeprefix(_S3).partition("/")
        return {"Bucket": bucket, "Key": key}

    async def size(self, address: str) -> int:
        """See `Source.size`."""
        found = await self._call(address, self._client.head_object)
        return int(found["ContentLength"])

    async def read(self, address: str, start: int, length: int) -> bytes:
        """See `Source.read`."""
        from botocore.exceptions import ClientError

        span = f"bytes={start}-{start + length - 1}"

        def part(**place: str) -> bytes:
            try:
                found = self._client.get_object(**place, Range=span)
            except ClientError as error:
                if error.response["ResponseMetadata"]["HTTPStatusCode"] == _BEHIND_THE_END:
                    return b""
                raise
            with found["Body"] as opened:
                body: bytes = opened.read()
            return body

        return await self._call(address, part)

    async def stream(self, address: str) -> AsyncGenerator[bytes, None]:
        """See `Source.stream`."""
        found = await self._call(address, self._client.get_object)
        with found["Body"] as body:
            while chunk := await self._call(address, lambda **_: body.read(CHUNK_BYTES)):
                yield chunk

    async def _call(self, address: str, call: Callable[..., _T]) -> _T:
        from botocore.exceptions import BotoCoreError, ClientError

        place = self._place(address)
        try:
            return await asyncio.to_thread(call, **place)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _GONE:
                raise absent(address) from error
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == _FORBIDDEN:
                text = f"{address[:300]!a} of lakeFS may not be read with this key: {error}"
                raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text) from error
            raise _unreadable(address, error) from error
        except (BotoCoreError, OSError) as error:
            raise _unreadable(address, error) from error


def opened_source(
    place: str, *, endpoint: str = "", profile: str = "", allowed: Sequence[str] = ()
) -> Source:
    """Opens a folder, or `s3://bucket/prefix` with the credentials that boto3 finds.

    Raises:
        TarnError: NOT_FOUND: there is no such folder.
    """
    if place.startswith(_S3):
        import boto3
        from botocore.config import Config

        settings = Config(
            s3={"addressing_style": "path"} if endpoint else {},
            retries={"mode": "standard", "total_max_attempts": 10},
            max_pool_connections=32,
        )
        session = boto3.Session(profile_name=profile or None)
        client = session.client("s3", endpoint_url=endpoint or None, config=settings)
        return BucketSource(client, place, allowed)
    root = Path(place)
    if not root.is_dir():
        text = f"there is no folder {place}; name the storage namespace: a folder, or s3://bucket/prefix"
        raise TarnError(Kind.NOT_FOUND, Reason.BLOCK_NOT_FOUND, text)
    return FolderSource(root)
