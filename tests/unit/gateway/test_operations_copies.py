"""CopyObject: by reference, by bytes, and conditions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gateway_lake import GatewayLake
from s3_multipart import begin, crc32, md5

from tarn.core.collection import LIMITS
from tarn.core.entry import Checksum, identity_of, pack
from tarn.objects import copying

SMALL = b"hello, lake\n"
LARGE = bytes(range(256)) * 1024  # 256 KiB


def source(key: str, **headers: str) -> dict[str, str]:
    return {"x-amz-copy-source": key} | {
        f"x-amz-{name.replace('_', '-')}": value for name, value in headers.items()
    }


async def test_a_source_of_a_deleted_repository_of_the_same_name_is_not_copied_by_reference(
    lake: GatewayLake,
) -> None:
    """Its blocks are in another namespace, so the copy would have none."""
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    lake.graveler.repos["lake"].namespace = "local://the-other-life"
    answer = await lake.ask("PUT", "/lake/dev/b", headers=source("/lake/main/a"))
    assert answer.status == 503
    assert (await lake.ask("HEAD", "/lake/dev/b")).status == 404


@pytest.mark.parametrize("bucket", ["Under_Score", "my-buc@k&()t", "2001:0db8", "x" * 300])
@pytest.mark.parametrize("is_part", [False, True])
async def test_a_source_in_a_bucket_that_cannot_be_is_an_invalid_argument(
    lake: GatewayLake, bucket: str, is_part: bool
) -> None:
    query = f"partNumber=1&uploadId={await begin(lake, 'dev/b')}" if is_part else ""
    answer = await lake.ask("PUT", "/lake/dev/b", query, headers=source(f"{bucket}/a"))
    assert (answer.status, answer.code) == (400, "InvalidArgument")
    assert answer.message == "Invalid copy source bucket name"


async def test_a_copy_inside_a_repository_moves_no_bytes(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers={"x-amz-meta-job": "1"})
    lake.clock.advance(60)
    copied = await lake.ask("PUT", "/lake/dev/b", headers=source("/lake/main/a"))
    assert copied.status == 200
    assert copied.all("ETag") == [f'"{md5(SMALL)}"']
    old, new = lake.entry("lake", "main", "a"), lake.entry("lake", "dev", "b")
    assert (new.address, new.metadata) == (old.address, (("job", "1"),))
    assert new.mtime_us == old.mtime_us + 60_000_000
    assert len(await lake.blocks_of("lake")) == 1


async def test_a_copy_that_graveler_does_not_note_moves_bytes(lake: GatewayLake) -> None:
    """A replica of an earlier version serves the lookup: the block may be deleted online."""
    lake.graveler.is_old_version = True
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    copied = await lake.ask("PUT", "/lake/dev/b", headers=source("/lake/main/a"))
    assert copied.status == 200
    old, new = lake.entry("lake", "main", "a"), lake.entry("lake", "dev", "b")
    assert old.address != new.address
    assert len(await lake.blocks_of("lake")) == 2


async def test_the_gateway_says_which_addresses_it_made(lake: GatewayLake) -> None:
    """A copy by reference stages an address of another entry; a copy of bytes, one that was made for it."""
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    await lake.ask("PUT", "/lake/dev/b", headers=source("/lake/main/a"))
    lake.graveler.is_old_version = True
    await lake.ask("PUT", "/lake/dev/c", headers=source("/lake/main/a"))
    told = [(put.path, put.is_new_address) for put in lake.graveler.staged]
    assert told == [(each, each != "b") for each in "abc"]
    assert lake.graveler.staged_by == ["t1.gateway"] * 3


async def test_a_copy_of_an_object_whose_block_is_old_moves_its_bytes(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection may judge the old block before the copy is staged (rule 11). Here a minute stands for hours."""
    assert copying.YOUNG.staging_us < LIMITS.staging_us
    monkeypatch.setattr(copying, "YOUNG", replace(LIMITS, staging_us=60_000_000))
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers={"x-amz-meta-job": "1"})
    lake.clock.advance(58)
    assert (await lake.ask("PUT", "/lake/dev/young", headers=source("/lake/main/a"))).status == 200
    old = lake.entry("lake", "main", "a")
    assert lake.entry("lake", "dev", "young").address == old.address
    lake.clock.advance(2)
    assert (await lake.ask("PUT", "/lake/dev/b", headers=source("/lake/main/a"))).status == 200
    new = lake.entry("lake", "dev", "b")
    assert new.address != old.address
    assert (new.metadata, new.etag) == (old.metadata, old.etag)
    assert (await lake.ask("GET", "/lake/dev/b")).body == SMALL
    assert len(await lake.blocks_of("lake")) == 2


async def test_a_copy_of_an_address_from_the_future_moves_its_bytes(
    lake: GatewayLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its age cannot be told. Here the limit lies a minute back, so that an address of now is beyond it."""
    monkeypatch.setattr(copying, "YOUNG", replace(copying.YOUNG, ahead_us=-60_000_000))
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    headers = source("/lake/main/a")
    assert (await lake.ask("PUT", "/lake/dev/b", headers=headers)).status == 200
    assert lake.entry("lake", "dev", "b").address != lake.entry("lake", "main", "a").address


@pytest.mark.parametrize("target", ["/lake/dev/b", "/pond/main/b"])
async def test_a_copy_lacks_what_graveler_noted_about_the_write_of_its_source(
    lake: GatewayLake, target: str
) -> None:
    """Else a repeated conditional copy would not be recognized, and its block removed."""
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    plain = lake.entry("lake", "main", "a")
    noted = replace(plain, operation_id="o", judged_move_us=7, replaced_address=b"a" * 16)
    lake.graveler.repos["lake"].branches["main"]["a"] = pack(noted)
    assert (await lake.ask("PUT", target, headers=source("lake/main/a"))).status == 200
    _, repository, branch, path = target.split("/")
    new = lake.entry(repository, branch, path)
    assert (new.operation_id, new.judged_move_us, new.replaced_address) == ("", 0, b"")
    assert identity_of(pack(new)) == identity_of(pack(plain))


async def test_a_copy_may_replace_metadata(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers={"x-amz-meta-job": "1"})
    plain = await lake.ask("PUT", "/lake/main/a", headers=source("lake/main/a"))
    assert (plain.status, plain.code) == (400, "InvalidRequest")
    headers = source("lake/main/a", metadata_directive="REPLACE", meta_job="2")
    assert (await lake.ask("PUT", "/lake/main/a", headers=headers)).status == 200
    assert lake.entry("lake", "main", "a").metadata == (("job", "2"),)
    odd = source("lake/main/a", metadata_directive="MOVE")
    assert (await lake.ask("PUT", "/lake/main/b", headers=odd)).code == "InvalidArgument"


async def test_a_copy_may_ask_for_a_checksum(lake: GatewayLake) -> None:
    await lake.ask("PUT", "/lake/main/a", body=LARGE)
    headers = source("lake/main/a", checksum_algorithm="CRC32")
    copied = await lake.ask("PUT", "/lake/main/b", headers=headers)
    assert copied.all("ChecksumCRC32") == [crc32(LARGE)]
    assert lake.entry("lake", "main", "b").checksums == (Checksum("CRC32", crc32(LARGE)),)


@pytest.mark.parametrize("body", [b"", SMALL, LARGE * 20])
async def test_a_copy_between_repositories_moves_bytes(lake: GatewayLake, body: bytes) -> None:
    lake.create("pond")
    headers = {"x-amz-checksum-crc32": crc32(body)}
    await lake.ask("PUT", "/lake/main/a", body=body, headers=headers)
    assert (await lake.ask("PUT", "/pond/main/b", headers=source("lake/main/a"))).status == 200
    new = lake.entry("pond", "main", "b")
    assert new.address != lake.entry("lake", "main", "a").address
    assert new.checksums == (Checksum("CRC32", crc32(body)),)
    assert (await lake.ask("GET", "/pond/main/b")).body == body


async def test_who_may_not_read_a_source_may_not_copy_it(lake: GatewayLake) -> None:
    """This holds for objects and parts, in the same repository and in another one."""
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    begun = await lake.ask("POST", "/lake/dev/big", "uploads")
    part = f"partNumber=1&uploadId={begun.all('UploadId')[0]}"
    for target, query in (("/lake/dev/b", ""), ("/pond/main/b", ""), ("/lake/dev/big", part)):
        before = len(lake.graveler.calls)
        headers = source("lake/main/a")
        reply = await lake.ask("PUT", target, query, headers=headers, key="AKIAWRITER")
        assert (reply.status, reply.code) == (403, "AccessDenied"), target
        assert not {"lookup", "stage"} & set(lake.graveler.calls[before:])


async def test_a_copy_is_conditional_on_its_source(lake: GatewayLake) -> None:
    etag = (await lake.ask("PUT", "/lake/main/a", body=SMALL)).headers["etag"]
    good = source("lake/main/a", copy_source_if_match=etag)
    assert (await lake.ask("PUT", "/lake/main/b", headers=good)).status == 200
    bad = source("lake/main/a", copy_source_if_none_match=etag)
    reply = await lake.ask("PUT", "/lake/main/c", headers=bad)
    assert (reply.status, reply.code) == (412, "PreconditionFailed")


@pytest.mark.parametrize(
    ("target", "key", "status", "code"),
    [
        ("/lake/main/b", "lake/main/missing", 404, "NoSuchKey"),
        ("/lake/main/b", "lake/nobranch/a", 404, "NoSuchKey"),
        ("/lake/main/b", "river/main/a", 404, "NoSuchBucket"),
        ("/lake/main/b", "river/a", 404, "NoSuchBucket"),
        ("/lake/main/b", "lake", 400, "InvalidArgument"),
        ("/lake/main/b", "lake/main", 404, "NoSuchKey"),
        ("/lake/main/b", "lake/main/a?versionId=7", 501, "NotImplemented"),
        ("/lake/v1/b", "lake/main/a", 405, "MethodNotAllowed"),
        ("/lake/nobranch/b", "lake/main/a", 404, "NoSuchBucket"),
        ("/pond/nobranch/b", "lake/main/a", 404, "NoSuchBucket"),
        ("/lake/main/", "lake/main/a", 400, "InvalidArgument"),
    ],
)
async def test_impossible_copies_are_refused_and_store_nothing(
    lake: GatewayLake, target: str, key: str, status: int, code: str
) -> None:
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    reply = await lake.ask("PUT", target, headers=source(key))
    assert (reply.status, reply.code) == (status, code)
    assert await lake.blocks_of("pond") == []
    assert len(await lake.blocks_of("lake")) == 1


async def test_a_copy_is_conditional_on_its_destination(lake: GatewayLake) -> None:
    lake.create("pond")
    await lake.ask("PUT", "/lake/main/a", body=SMALL)
    headers = source("lake/main/a") | {"If-None-Match": "*"}
    assert (await lake.ask("PUT", "/lake/main/b", headers=headers)).status == 200
    refused = await lake.ask("PUT", "/lake/main/b", headers=headers)
    assert (refused.status, refused.code) == (412, "PreconditionFailed")
    across = await lake.ask("PUT", "/pond/main/b", headers=headers)
    assert across.status == 200
    assert (await lake.ask("PUT", "/pond/main/b", headers=headers)).status == 412
    assert len(await lake.blocks_of("pond")) == 1  # the refused copy's bytes are gone


async def test_a_copy_does_not_carry_the_operation_of_its_source(lake: GatewayLake) -> None:
    attempt = {"If-None-Match": "*", "amz-sdk-invocation-id": "0123-abcd"}
    await lake.ask("PUT", "/lake/main/a", body=SMALL, headers=attempt)
    assert lake.entry("lake", "main", "a").operation_id == "0123-abcd"
    await lake.ask("PUT", "/lake/main/b", headers=source("lake/main/a"))
    assert lake.entry("lake", "main", "b").operation_id == ""
