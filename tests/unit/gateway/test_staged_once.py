"""A request stages its entry once, with the requested properties, or not at all."""

from __future__ import annotations

import base64
import zlib
from urllib.parse import quote

import pytest
from gateway_lake import GatewayLake

from tarn.core.entry import Entry, pack
from tarn_gateway.operations.completing import Expected, plan_object
from tarn_gateway.s3error import S3Error
from tarn_proto.graveler.v1 import upload_service_pb2 as upload_pb

SMALL = b"one small body"
NEWER = pack(Entry(7, 1, bytes(16), bytes(16)))


def crc32(body: bytes) -> str:
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


class Contended(dict[str, bytes]):
    """A branch on which another client overwrites a path as soon as an entry is staged there."""

    def __init__(self, entries: dict[str, bytes], path: str) -> None:
        super().__init__(entries)
        self._path = path

    def __setitem__(self, path: str, entry: bytes) -> None:
        super().__setitem__(path, entry)
        if path == self._path:
            self._path = ""
            super().__setitem__(path, NEWER)


@pytest.mark.parametrize(
    ("method", "source", "headers", "body"),
    [
        ("PUT", "", {}, SMALL),
        ("PUT", "", {"if-none-match": "*"}, SMALL),
        ("PUT", "lake/main/source", {}, b""),
        ("PUT", "lake/main/source", {"x-amz-metadata-directive": "REPLACE"}, b""),
        ("PUT", "pond/main/source", {}, b""),
    ],
)
async def test_a_newer_write_survives_the_request_that_it_follows(
    lake: GatewayLake, method: str, source: str, headers: dict[str, str], body: bytes
) -> None:
    lake.create("pond")
    for repository in ("lake", "pond"):
        await lake.ask("PUT", f"/{repository}/main/source", body=SMALL)
    branches = lake.graveler.repos["lake"].branches
    branches["main"] = Contended(branches["main"], "a")
    copied = {"x-amz-copy-source": source} if source else {}
    reply = await lake.ask(method, "/lake/main/a", headers=headers | copied, body=body)
    assert reply.status == 200
    assert pack(lake.entry("lake", "main", "a")) == NEWER


async def test_a_write_whose_condition_is_broken_is_refused_before_anything_is_staged(
    lake: GatewayLake,
) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    blocks, calls = await lake.blocks_of("lake"), len(lake.graveler.calls)
    for headers in ({"if-none-match": "*"}, {"if-match": '"0123"'}):
        reply = await lake.ask("PUT", "/lake/main/a", headers=headers, body=SMALL)
        assert (reply.status, reply.code) == (412, "PreconditionFailed")
    assert "stage" not in lake.graveler.calls[calls:]
    assert await lake.blocks_of("lake") == blocks


async def test_a_copy_between_repositories_has_the_checksum_that_was_asked_for(
    lake: GatewayLake,
) -> None:
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    headers = {"x-amz-copy-source": "lake/main/a", "x-amz-checksum-algorithm": "CRC32"}
    assert (await lake.ask("PUT", "/pond/main/b", headers=headers)).status == 200
    (checksum,) = lake.entry("pond", "main", "b").checksums
    assert (checksum.algorithm, checksum.value) == ("CRC32", crc32(SMALL))


async def test_a_continuation_token_with_anything_added_is_refused(lake: GatewayLake) -> None:
    for path in ("a", "b", "c"):
        await lake.ask("PUT", f"/lake/main/{path}", body=SMALL)
    page = await lake.ask("GET", "/lake", "list-type=2&prefix=main/&max-keys=1")
    (token,) = page.all("NextContinuationToken")
    query = f"list-type=2&prefix=main/&continuation-token={quote(token, safe='')}"
    assert (await lake.ask("GET", "/lake", query)).all("Key")[-2:] == ["main/b", "main/c"]
    assert (await lake.ask("GET", "/lake", f"{query}%21")).status == 400


def test_an_object_has_at_most_five_tebibytes() -> None:
    half = 5 * 1024**4 // 2
    upload = upload_pb.Upload(template=NEWER, address=bytes(16))
    expected = Expected(None, "", "", None)

    def parts(*sizes: int) -> list[upload_pb.UploadPart]:
        return [
            upload_pb.UploadPart(part_number=number, size_bytes=size, md5=bytes(16))
            for number, size in enumerate(sizes, 1)
        ]

    assert plan_object(upload, parts(half, half), expected).size == 2 * half
    with pytest.raises(S3Error) as raised:
        plan_object(upload, parts(half, half, 1), expected)
    assert raised.value.code == "EntityTooLarge"
