"""Reads and writes objects through the S3 endpoint, for `tarn fs`.

The client is boto3, as for many users, so the commands also test the endpoint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from tarn.core.errors import TarnError
from tarn.core.ids import parse_path
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.local_files import FileRefusedError, files_below, new_file, why
from tarn_cli.objects.transfer import Advance, Transfer
from tarn_cli.objects.uri import ObjectUri
from tarn_cli.s3_failures import about, exit_of_code
from tarn_cli.settings import Settings

__all__ = ["WORKERS_MAX", "ListingLine", "Objects"]

WORKERS_MAX = 64
_DELETE_KEYS_MAX = 1000

Client = Any  # boto3 has no types

_TEXT = "([ -%'-;=?-~]+)"  # printable ASCII that XML writes as it is
_PLAIN_OBJECT = re.compile(
    f"<Key>{_TEXT}</Key><LastModified>{_TEXT}</LastModified><ETag>&quot;{_TEXT}&quot;</ETag>"
    "<Size>([0-9]+)</Size><StorageClass>STANDARD</StorageClass>"
)


class ListingLine(NamedTuple):
    """A line of a listing.

    Attributes:
        path: path of an object, or a common prefix.
        size: bytes; None for a common prefix.
        modified: time of the last write; None for a common prefix.
        etag: without quotes; empty for a common prefix.
    """

    path: str
    size: int | None = None
    modified: datetime | None = None
    etag: str = ""


_path_of = attrgetter("path")


def _take_contents(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Reads the objects of a listing's document, and leaves the rest of it to botocore, whose parser looks for each
    member of the model in each object. A handler of botocore's event `before-parse`."""
    body = response_dict["body"]
    found = _plain_contents(body) or _contents(body)
    if found is not None:
        customized_response_dict["Contents"], response_dict["body"] = found


def _plain_contents(body: bytes) -> tuple[list[dict[str, str]], bytes] | None:
    """`_contents` of a document as Tarn's endpoint writes it, without the XML parser, which takes five times as long.
    None for any other form."""
    if not body.isascii() or b"<!" in body:
        return None
    head, _, rest = body.decode().partition("<Contents>")
    middle, end, tail = rest.rpartition("</Contents>")
    objects = []
    for each in middle.split("</Contents><Contents>") if end else ():
        found = _PLAIN_OBJECT.fullmatch(each)
        if found is None:
            return None
        key, time, etag, size = found.groups()
        objects.append({"Key": key, "LastModified": time, "ETag": f'"{etag}"', "Size": size})
    return (objects, (head + tail).encode()) if objects else None


def _contents(body: bytes) -> tuple[list[dict[str, str]], bytes] | None:
    """The objects of a listing's document, and the document without them; None if it has none, or is no listing."""
    from xml.etree.ElementTree import Element, ParseError, fromstring, tostring

    try:
        root = fromstring(body)  # noqa: S314 - botocore parses the same with the same
    except ParseError:
        return None  # botocore says what is wrong, and tries again
    contents, others = list[Element](), list[Element]()
    for each in root:
        (contents if each.tag.endswith("Contents") else others).append(each)
    if root.tag.endswith("Error") or not contents:
        return None
    root[:] = others
    objects = [{part.tag.rpartition("}")[2]: part.text or "" for part in each} for each in contents]
    return objects, tostring(root)


class Objects:
    """Objects of all repositories.

    Args:
        settings: endpoint and key pair.
        workers: number of threads that will use this object.

    Raises:
        CliError: DENIED, no credentials are set; NOT_FOUND, the file of the endpoint's authorities does not exist.
    """

    def __init__(self, settings: Settings, workers: int = 1) -> None:
        import boto3
        from boto3.s3.transfer import TransferConfig
        from botocore.config import Config

        settings.require_key()
        options = Config(
            s3={"addressing_style": "path"},  # a repository is not a host name
            retries={"mode": "standard", "max_attempts": 3},  # outlives a worker that ends
            max_pool_connections=workers + 1,
            connect_timeout=10,
            read_timeout=120,
        )
        try:
            self._client: Client = boto3.session.Session().client(
                "s3",
                endpoint_url=settings.endpoint,
                aws_access_key_id=settings.access_key_id,
                aws_secret_access_key=settings.secret_access_key,
                region_name="us-east-1",
                config=options,
                verify=settings.endpoint_authorities(),
            )
        except ValueError as error:  # botocore's, for an endpoint that is no URL
            text = f"the S3 endpoint {settings.endpoint!r} is not a URL"
            raise CliError(Exit.USAGE, text, "expected e.g. http://127.0.0.1:8000") from error
        # The wildcard has it run before botocore's own handlers, one of which parses the whole document, too.
        self._client.meta.events.register("before-parse.*.ListObjectsV2", _take_contents)
        self._parallel = TransferConfig(max_concurrency=workers)
        # With several files, each uses one thread: the files are transferred concurrently.
        self._serial = TransferConfig(use_threads=False)

    def head(self, uri: ObjectUri) -> dict[str, Any]:
        """The answer of HeadObject."""
        with about(uri):
            answer: dict[str, Any] = self._client.head_object(Bucket=uri.repository, Key=uri.key)
        return answer

    def tags(self, uri: ObjectUri) -> dict[str, str]:
        """The tags of an object."""
        with about(uri):
            answer = self._client.get_object_tagging(Bucket=uri.repository, Key=uri.key)
        return {each["Key"]: each["Value"] for each in answer["TagSet"]}

    def read(self, uri: ObjectUri, chunk_bytes: int) -> Iterator[bytes]:
        """The bytes of an object, in chunks."""
        with about(uri):
            body = self._client.get_object(Bucket=uri.repository, Key=uri.key)["Body"]
            yield from body.iter_chunks(chunk_bytes)

    def listing(self, uri: ObjectUri, *, recursive: bool) -> Iterator[ListingLine]:
        """Objects at or below a prefix, in byte order; one level with common prefixes unless recursive."""
        pages = self._client.get_paginator("list_objects_v2").paginate(
            Bucket=uri.repository, Prefix=uri.key, Delimiter="" if recursive else "/"
        )
        cut = len(uri.ref) + 1
        with about(uri):
            for page in pages:
                found = [
                    ListingLine(each["Prefix"][cut:]) for each in page.get("CommonPrefixes", [])
                ]
                found += [
                    ListingLine(
                        each["Key"][cut:],
                        int(each["Size"]),
                        datetime.fromisoformat(each["LastModified"]),
                        each["ETag"].strip('"'),
                    )
                    for each in page.get("Contents", [])
                ]
                yield from sorted(found, key=_path_of)

    def upload_stream(self, source: Any, uri: ObjectUri, content_type: str) -> None:  # noqa: ANN401 - any binary file
        """Uploads a binary file, read until its end."""
        with about(uri):
            self._client.upload_fileobj(
                source, uri.repository, uri.key, ExtraArgs=_extra(content_type)
            )

    def upload(self, source: Path, uri: ObjectUri, content_type: str, advance: Advance) -> None:
        """Uploads one file, its parts concurrently."""
        with about(uri):
            self._client.upload_file(
                str(source),
                uri.repository,
                uri.key,
                ExtraArgs=_extra(content_type),
                Callback=advance,
                Config=self._parallel,
            )

    def uploads(self, source: Path, folder: ObjectUri) -> Iterator[Transfer]:
        """Transfers of every file below a local folder; those of what cannot be an object fail alone."""
        prefix = folder.path if not folder.path or folder.path.endswith("/") else f"{folder.path}/"
        for path, found in files_below(source):
            to = ObjectUri(
                folder.repository, folder.ref, prefix + path.relative_to(source).as_posix()
            )
            yield self._upload_of(path, found, to)

    def _upload_of(self, path: Path, found: int | str, to: ObjectUri) -> Transfer:
        def start(advance: Advance) -> None:
            if isinstance(found, str):
                raise FileRefusedError(found)
            try:
                parse_path(to.path)
                with about(to), path.open("rb") as file:
                    self._client.upload_fileobj(
                        file, to.repository, to.key, Callback=advance, Config=self._serial
                    )
            except TarnError as error:  # of the name
                raise FileRefusedError(error.message) from error
            except OSError as error:
                raise FileRefusedError(why(error)) from error

        return Transfer(str(path), found if isinstance(found, int) else 0, start)

    def download(self, uri: ObjectUri, target: Path, advance: Advance) -> None:
        """Downloads one object, its ranges concurrently.

        Raises:
            FileRefusedError: the file system cannot hold such a file, or something else is there.
        """
        self._download(uri, target.parent, [target.name], advance, self._parallel)

    def downloads(self, folder: ObjectUri, target: Path) -> Iterator[Transfer]:
        """Transfers of every object below a prefix that ends with `/`, or is empty; those of what cannot be a file fail
        alone. Empty objects whose path ends with `/` are the folders of other tools; they are skipped."""
        files: list[
            str
        ] = []  # Each begins with the one before it, and may be a folder in the path of the next.
        for each in self.listing(folder, recursive=True):
            size = each.size or 0
            if not size and each.path.endswith("/"):
                continue
            while files and not each.path.startswith(files[-1]):
                files.pop()
            at = next((file for file in files if each.path.startswith(f"{file}/")), "")
            files.append(each.path)
            yield self._download_of(replace(folder, path=each.path), folder.path, target, size, at)

    def _download_of(
        self, uri: ObjectUri, prefix: str, target: Path, size: int, at: str
    ) -> Transfer:
        """The transfer of one object; `at` is the object that is the file in place of a folder of its path."""

        def start(advance: Advance) -> None:
            if at:
                raise FileRefusedError(f"the object {at} is in place of its folder")
            parts = uri.path.removeprefix(prefix).split("/")
            self._download(uri, target, parts, advance, self._serial)

        return Transfer(uri.path, size, start)

    def _download(
        self, uri: ObjectUri, folder: Path, parts: list[str], advance: Advance, config: object
    ) -> None:
        with new_file(folder, parts) as file, about(uri):
            self._client.download_fileobj(
                uri.repository, uri.key, file, Callback=advance, Config=config
            )

    def remove(self, uri: ObjectUri) -> None:
        """Removes one object; succeeds if there is none, as in S3."""
        with about(uri):
            self._client.delete_object(Bucket=uri.repository, Key=uri.key)

    def removals(self, uri: ObjectUri, advance: Advance) -> Iterator[Callable[[], int]]:
        """Batches of work that remove all objects with a prefix; each returns how many it removed."""
        found = self.listing(uri, recursive=True)
        while batch := [f"{uri.ref}/{each.path}" for each in islice(found, _DELETE_KEYS_MAX)]:
            yield self._removal_of(uri.repository, batch, advance)

    def _removal_of(self, bucket: str, keys: list[str], advance: Advance) -> Callable[[], int]:
        def start() -> int:
            wanted = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
            with about(f"{bucket}/{keys[0]}"):
                answer = self._client.delete_objects(Bucket=bucket, Delete=wanted)
            failed = answer.get("Errors", [])
            advance(len(keys) - len(failed))
            if failed:
                code = str(failed[0].get("Code", ""))
                first = f"{bucket}/{failed[0]['Key']}: {failed[0].get('Message', code)}"
                text = f"{len(failed)} objects were not removed; {first}"
                raise CliError(exit_of_code(code), text, reason=code)
            return len(keys)

        return start


def _extra(content_type: str) -> dict[str, str]:
    return {"ContentType": content_type} if content_type else {}
