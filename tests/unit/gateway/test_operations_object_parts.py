"""Reads of one part of an object, and GetObjectAttributes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from gateway_lake import GatewayLake
from s3_multipart import begin, complete, crc32, listed, md5, part, sum_part

from tarn.core.entry import pack, unpack, with_parts
from tarn.core.entry_check import PARTS_MAX
from tarn.core.part_list import PartList
from tarn.objects import copying
from tarn.objects.bodies import digest_block
from tarn.objects.uploads import upload_block
from tarn_gateway.operations import completing
from tarn_proto.graveler.v1 import upload_service_pb2 as pb

MIB5 = 5 * 1024**2
BODIES = (b"a" * MIB5, b"b" * MIB5, b"the end")
WHOLE = b"".join(BODIES)
SUMS = {"x-amz-checksum-mode": "ENABLED"}
EVERY = "ETag,Checksum,ObjectParts,StorageClass,ObjectSize"


async def upload_three(
    lake: GatewayLake, headers: dict[str, str] | None = None, step: int = 1
) -> Any:
    """Makes `main/big` of three parts; returns the answer. The numbers of the parts are `step` apart."""
    upload = await begin(lake, headers=headers)
    numbers = range(step, 3 * step + 1, step)
    for number, body in zip(numbers, BODIES, strict=True):
        await (sum_part if headers else part)(lake, upload, number, body)
    pairs = zip(numbers, map(md5, BODIES), strict=True)
    sums = [crc32(body) for body in BODIES if headers]
    done = await complete(lake, upload, listed(*pairs, crc32s=sums))
    assert done.status == 200
    return done


async def attributes(
    lake: GatewayLake, names: str = EVERY, key: str = "main/big", **more: str
) -> Any:
    headers = {f"x-amz-{name.replace('_', '-')}": value for name, value in more.items()}
    headers["x-amz-object-attributes"] = names
    return await lake.ask("GET", f"/lake/{key}", "attributes", headers=headers)


@pytest.mark.parametrize("step", [1, 7])
@pytest.mark.parametrize("kind", ["", "COMPOSITE", "FULL_OBJECT"])
async def test_each_part_is_read_by_its_place(lake: GatewayLake, kind: str, step: int) -> None:
    begun = {"x-amz-checksum-algorithm": "CRC32", "x-amz-checksum-type": kind} if kind else {}
    done = await upload_three(lake, begun, step)
    start = 0
    for number, body in enumerate(BODIES, 1):
        got = await lake.ask("GET", "/lake/main/big", f"partNumber={number}", headers=SUMS)
        head = await lake.ask("HEAD", "/lake/main/big", f"partNumber={number}", headers=SUMS)
        assert got.body == body
        for reply in (got, head):
            assert reply.status == 206
            last = start + len(body) - 1
            assert reply.headers["content-range"] == f"bytes {start}-{last}/{len(WHOLE)}"
            assert reply.headers["content-length"] == str(len(body))
            assert reply.headers["x-amz-mp-parts-count"] == "3"
            assert [reply.headers["etag"]] == done.all("ETag")
            expected = crc32(body) if kind == "COMPOSITE" else None
            assert reply.headers.get("x-amz-checksum-crc32") == expected
        start += len(body)
    assert start == len(WHOLE)
    plain = await lake.ask("HEAD", "/lake/main/big", headers=SUMS)
    assert (plain.status, "x-amz-mp-parts-count" in plain.headers) == (200, False)


@pytest.mark.parametrize("number", ["4", "10000"])
async def test_a_part_that_the_object_does_not_have_is_416(lake: GatewayLake, number: str) -> None:
    await upload_three(lake)
    got = await lake.ask("GET", "/lake/main/big", f"partNumber={number}")
    assert (got.status, got.code) == (416, "InvalidPartNumber")
    assert b"<ActualPartCount>3</ActualPartCount>" in got.body
    assert (await lake.ask("HEAD", "/lake/main/big", f"partNumber={number}")).status == 416


@pytest.mark.parametrize("number", ["0", "10001", "-1", "x", "", "1.0", "%D9%A1"])
async def test_what_is_no_part_number_is_refused_before_anything_is_read(
    lake: GatewayLake, number: str
) -> None:
    got = await lake.ask("GET", "/lake/main/big", f"partNumber={number}")
    assert (got.status, got.code) == (400, "InvalidArgument")
    assert "lookup" not in lake.graveler.calls


async def test_a_part_and_a_range_exclude_each_other(lake: GatewayLake) -> None:
    await upload_three(lake)
    got = await lake.ask("GET", "/lake/main/big", "partNumber=1", headers={"Range": "bytes=0-1"})
    assert (got.status, got.code) == (400, "InvalidRequest")


async def test_an_object_that_was_put_whole_is_one_part(lake: GatewayLake) -> None:
    await lake.ask(
        "PUT", "/lake/main/a", body=b"text", headers={"x-amz-checksum-crc32": "O4unxw=="}
    )
    got = await lake.ask("GET", "/lake/main/a", "partNumber=1", headers=SUMS)
    assert (got.status, got.body) == (206, b"text")
    assert got.headers["content-range"] == "bytes 0-3/4"
    assert got.headers["x-amz-checksum-crc32"] == "O4unxw=="
    assert "x-amz-mp-parts-count" not in got.headers
    beyond = await lake.ask("GET", "/lake/main/a", "partNumber=2")
    assert (beyond.status, beyond.code) == (416, "InvalidPartNumber")


async def test_an_empty_object_is_one_empty_part(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=b"")
    got = await lake.ask("GET", "/lake/main/a", "partNumber=1")
    assert (got.status, got.body, "content-range" in got.headers) == (200, b"", False)


async def test_an_empty_last_part_is_read(lake: GatewayLake) -> None:
    upload = await begin(lake)
    for number, body in ((1, BODIES[0]), (2, b"")):
        await part(lake, upload, number, body)
    await complete(lake, upload, listed((1, md5(BODIES[0])), (2, md5(b""))))
    got = await lake.ask("GET", "/lake/main/big", "partNumber=2")
    assert (got.status, got.body, got.headers["x-amz-mp-parts-count"]) == (206, b"", "2")


async def test_conditions_come_before_the_part(lake: GatewayLake) -> None:
    (etag,) = (await upload_three(lake)).all("ETag")
    for headers, status in (({"If-Match": '"0"'}, 412), ({"If-None-Match": etag}, 304)):
        for number in (1, 9):
            got = await lake.ask("GET", "/lake/main/big", f"partNumber={number}", headers=headers)
            assert got.status == status


@pytest.mark.parametrize("kept", [b"", b"\0", PartList.of([MIB5, MIB5, 8]).encode()])
async def test_an_object_without_a_list_that_is_its_own_is_one_part(
    lake: GatewayLake, kept: bytes
) -> None:
    """An earlier release kept none; a damaged one must neither fail nor show other bytes."""
    await upload_three(lake, {"x-amz-checksum-algorithm": "CRC32"})
    branch = lake.graveler.repos["lake"].branches["main"]
    branch["big"] = with_parts(branch["big"], kept)
    got = await lake.ask("GET", "/lake/main/big", "partNumber=1")
    assert (got.status, got.body) == (206, WHOLE)
    assert "x-amz-mp-parts-count" not in got.headers
    assert (await lake.ask("GET", "/lake/main/big", "partNumber=2")).status == 416
    told = await attributes(lake)
    assert (told.all("PartsCount"), told.all("Part"), told.all("MaxParts")) == (["3"], [], [])


async def test_parts_are_read_through_a_view(lake: GatewayLake) -> None:
    await upload_three(lake)
    lake.graveler.point("sales", "lake", "main")
    got = await lake.ask("GET", "/sales/big", "partNumber=3")
    assert (got.status, got.body) == (206, BODIES[2])
    headers = {"x-amz-object-attributes": "ObjectParts"}
    told = await lake.ask("GET", "/sales/big", "attributes", headers=headers)
    assert told.all("Size") == [str(len(body)) for body in BODIES]


@pytest.mark.parametrize("by_bytes", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
async def test_a_copy_is_one_part(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch, by_bytes: bool, replaced: bool
) -> None:
    await upload_three(lake, {"x-amz-checksum-algorithm": "CRC32"})
    if by_bytes:
        monkeypatch.setattr(copying, "YOUNG", replace(copying.YOUNG, staging_us=0))
    headers = {"x-amz-copy-source": "/lake/main/big"}
    if replaced:
        headers |= {"x-amz-metadata-directive": "REPLACE", "x-amz-meta-a": "b"}
    assert (await lake.ask("PUT", "/lake/dev/copy", headers=headers)).status == 200
    assert unpack(lake.graveler.staged[-1].entry).parts == b"", "graveler takes none from callers"
    got = await lake.ask("GET", "/lake/dev/copy", "partNumber=1")
    assert (got.status, got.body) == (206, WHOLE)
    assert "x-amz-mp-parts-count" not in got.headers
    assert (await lake.ask("GET", "/lake/dev/copy", "partNumber=2")).status == 416


async def test_the_ranges_of_all_parts_are_the_uploaded_bytes(lake: GatewayLake) -> None:
    """The checksums that are told for the parts are those of the ranges that are told."""
    await upload_three(lake, {"x-amz-checksum-algorithm": "CRC32"})
    told = await attributes(lake, "ObjectParts")
    entry = lake.entry("lake", "main", "big")
    sizes = [int(size) for size in told.all("Size")]
    starts = itertools.accumulate([0, *sizes[:-1]])
    for start, size, value, body in zip(
        starts, sizes, told.all("ChecksumCRC32"), BODIES, strict=True
    ):
        sums = await digest_block(lake.blocks, lake.block("lake", entry), size, start=start)
        assert (sums.md5.hex(), value) == (md5(body), crc32(body))


# GetObjectAttributes


async def test_attributes_are_those_that_are_asked_for(lake: GatewayLake) -> None:
    await upload_three(lake, {"x-amz-checksum-algorithm": "CRC32"})
    head = await lake.ask("HEAD", "/lake/main/big", headers=SUMS)
    told = await attributes(lake)
    assert told.status == 200
    assert told.headers["last-modified"] == head.headers["last-modified"]
    assert told.all("ETag") == [head.headers["etag"].strip('"')]
    assert told.all("ObjectSize") == [str(len(WHOLE))]
    assert told.all("StorageClass") == ["STANDARD"]
    whole, sign, count = head.headers["x-amz-checksum-crc32"].partition("-")
    assert (sign, count) == ("-", "3")
    assert told.all("ChecksumCRC32") == [whole, *map(crc32, BODIES)]
    assert told.all("ChecksumType") == ["COMPOSITE"]
    assert told.all("PartsCount") == ["3"]
    assert told.all("PartNumber") == ["1", "2", "3"]
    tags = {
        "ETag": "ETag",
        "Checksum": "Checksum",
        "ObjectParts": "PartsCount",
        "StorageClass": "StorageClass",
        "ObjectSize": "ObjectSize",
    }
    for name in tags:
        one = await attributes(lake, f"{name}, {name}")
        assert [each for each, tag in tags.items() if one.all(tag)] == [name]


async def test_parts_are_listed_in_pages(lake: GatewayLake) -> None:
    await upload_three(lake)
    marker, seen = "0", []
    while True:
        page = await attributes(lake, "ObjectParts", max_parts="2", part_number_marker=marker)
        seen.append(page.all("PartNumber"))
        assert (page.all("MaxParts"), page.all("PartNumberMarker")) == (["2"], [marker])
        (marker,) = page.all("NextPartNumberMarker")
        if page.all("IsTruncated") == ["false"]:
            break
    assert seen == [["1", "2"], ["3"]]
    for more in ({"part_number_marker": "9"}, {"max_parts": "0"}):
        nothing = await attributes(lake, "ObjectParts", **more)
        assert (nothing.all("PartNumber"), nothing.all("IsTruncated")) == ([], ["false"])
    high = await attributes(lake, "ObjectParts", max_parts="5000")
    assert high.all("MaxParts") == ["1000"]


async def test_an_object_that_was_put_whole_has_no_parts(lake: GatewayLake) -> None:
    await lake.ask(
        "PUT", "/lake/main/a", body=b"text", headers={"x-amz-checksum-crc32": "O4unxw=="}
    )
    told = await attributes(lake, key="main/a")
    assert told.all("ObjectParts") == []
    assert (told.all("ChecksumCRC32"), told.all("ChecksumType")) == (["O4unxw=="], ["FULL_OBJECT"])
    root = await attributes(lake, key="main/")
    assert (root.status, root.all("ObjectSize")) == (200, ["0"])


@pytest.mark.parametrize(
    ("names", "more"),
    [
        ("ETag,Owner", {}),
        ("etag", {}),
        ("ETag,", {}),
        ("ObjectParts", {"max_parts": "-1"}),
        ("ObjectParts", {"max_parts": "many"}),
        ("ObjectParts", {"part_number_marker": "-1"}),
    ],
)
async def test_attributes_that_s3_does_not_have_are_refused(
    lake: GatewayLake, names: str, more: dict[str, str]
) -> None:
    told = await attributes(lake, names, **more)
    assert (told.status, told.code) == (400, "InvalidArgument")
    assert "lookup" not in lake.graveler.calls


async def test_attributes_are_named(lake: GatewayLake) -> None:
    told = await attributes(lake, "")
    assert (told.status, told.code) == (400, "InvalidRequest")
    assert (
        b"x-amz-object-attributes header specifying the attributes to be retrieved is" in told.body
    )


@pytest.mark.parametrize("key", ["main/absent", "nowhere/a", "nowhere/", "main"])
async def test_attributes_of_what_is_not_there(lake: GatewayLake, key: str) -> None:
    told = await attributes(lake, key=key)
    assert (told.status, told.code) == (404, "NoSuchKey")


async def test_attributes_need_the_right_to_read(lake: GatewayLake) -> None:
    await upload_three(lake)
    headers = {"x-amz-object-attributes": "ETag"}
    denied = await lake.ask(
        "GET", "/lake/main/big", "attributes", headers=headers, key="AKIAWRITER"
    )
    assert (denied.status, denied.code) == (403, "AccessDenied")


# What the completion keeps


async def test_an_entry_without_room_keeps_no_parts(lake: GatewayLake) -> None:
    """Its headers take nearly all that an entry may have."""
    long = {"Content-Disposition": "d" * 6000, "Cache-Control": "c" * 5400}
    upload = await begin(lake, headers=long)
    for number, body in enumerate(BODIES, 1):
        await part(lake, upload, number, body)
    branch = lake.graveler.repos["lake"].branches["main"]
    names = listed(*((number, md5(body)) for number, body in enumerate(BODIES, 1)))
    assert (await complete(lake, upload, names)).status == 200
    assert len(branch["big"]) <= 12 * 1024
    assert pack(unpack(branch["big"])) == branch["big"]


async def test_a_repeated_completion_with_another_claim_is_refused(lake: GatewayLake) -> None:
    upload = await begin(lake)
    await part(lake, upload, 1, b"text")
    names = listed((1, md5(b"text")))
    assert (await complete(lake, upload, names, {"x-amz-mp-object-size": "4"})).status == 200
    assert (await complete(lake, upload, names, {"x-amz-mp-object-size": "4"})).status == 200
    again = await complete(lake, upload, names, {"x-amz-mp-object-size": "5"})
    assert (again.status, again.code) == (400, "InvalidRequest")


async def test_an_object_of_ten_thousand_parts(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are written as UploadPart writes them, without a request for each."""
    monkeypatch.setattr(completing, "PART_BYTES_MIN", 1)
    upload = await begin(lake)
    begun = lake.graveler.uploads[upload]
    key = upload_block(begun.record)
    bodies = [b"%d" % (number % 10) for number in range(1, PARTS_MAX + 1)]
    for number, body in enumerate(bodies, 1):
        async with await lake.blocks.uploads.open_part(key, upload, number, "a") as writer:
            await writer.write(body)
            await writer.finish()
        begun.parts[number] = pb.UploadPart(
            part_number=number,
            attempt=writer.receipt,
            size_bytes=len(body),
            md5=bytes.fromhex(md5(body)),
        )
    etags = [(number, md5(body)) for number, body in enumerate(bodies, 1)]
    done = await complete(lake, upload, listed(*etags))
    assert (done.status, done.all("ETag")[0][-7:]) == (200, '-10000"')
    last = await lake.ask("GET", "/lake/main/big", f"partNumber={PARTS_MAX}")
    assert (last.status, last.body) == (206, bodies[-1])
    assert last.headers["x-amz-mp-parts-count"] == str(PARTS_MAX)
    page = await attributes(lake, "ObjectParts", part_number_marker="9500")
    assert page.all("PartNumber") == [str(number) for number in range(9501, PARTS_MAX + 1)]
    first = await attributes(lake, "ObjectParts")
    assert (len(first.all("Part")), first.all("IsTruncated")) == (1000, ["true"])
