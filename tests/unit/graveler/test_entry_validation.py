"""graveler stores no entry that a reader could not show, whoever sends it and by whichever rpc."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from graveler_service import Service, running_service
from lake import MAIN, entry
from lake_links import Bucket, issue, link, written

from tarn.client.diffs import DiffClient
from tarn.client.quotas import QuotaClient
from tarn.client.values import ObjectVersion
from tarn.core.condition import WriteCondition
from tarn.core.entry import (
    HEAD_BYTES,
    TIME_US_MAX,
    TOMBSTONE,
    Checksum,
    Entry,
    listed_of,
    pack,
    unpack,
)
from tarn.core.entry_check import OBJECT_BYTES_MAX
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.sizes import BYTES_MAX
from tarn.core.part_list import PartList
from tarn.core.quota import QuotaKind
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.state import OpenUpload
from tarn_proto.graveler.v1 import upload_service_pb2


@pytest.fixture
async def bucket(tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose blocks are in a bucket, so that addresses can be issued."""
    async with running_service(tmp_path, store=Bucket) as made:
        yield made


ABSENT = WriteCondition(if_none_match=True)
Way = Callable[[Service, bytes], Awaitable[object]]


async def _stage(service: Service, packed: bytes) -> object:
    return await service.stage("a", packed)


async def _stage_if(service: Service, packed: bytes) -> object:
    named = pack(replace(unpack(packed), operation_id="op")) if _is_whole(packed) else packed
    return await service.stage("a", named, condition=ABSENT)


async def _complete(service: Service, packed: bytes) -> object:
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "a", template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    if _is_whole(packed):
        made = replace(unpack(packed), operation_id=upload.upload_id)
        if any(made.address):
            made = replace(made, address=upload.address)
        packed = pack(made)
    await graveler.finish_complete_upload(admin, "lake", upload.upload_id, begun.claim, packed)
    return None


def _is_whole(packed: bytes) -> bool:
    try:
        return pack(unpack(packed)) == packed
    except TarnError:
        return False


WRITES: list[Way] = [_stage, _stage_if, _complete]


async def _upload(service: Service, packed: bytes) -> object:
    return await service.graveler.create_upload(service.admin, "lake", "main", "a", template=packed)


async def _link(service: Service, packed: bytes) -> object:
    return await issue(service, "a", template=packed)


async def _link_as(service: Service, packed: bytes) -> object:
    issued = await issue(service, "a")
    await written(service, issued)
    return await link(service, issued.token, path="a", template=packed)


async def refusal(work: Awaitable[object]) -> TarnError:
    with pytest.raises(TarnError) as raised:
        await work
    error = raised.value
    assert error.kind is Kind.INVALID, error.message  # the caller's mistake: not logged as a defect
    assert error.metadata["field"]
    return error


FORGED = {
    "external": {"external_address": "file:///etc/passwd", "address": bytes(16)},
    "no address": {"address": bytes(16)},
    "time": {"mtime_us": 2**63 - 1},
    "time before 1970": {"mtime_us": -(2**63)},
    "size": {"size": 2**63 - 1},
    "line break": {"content_type": "text/html\r\nSet-Cookie: a=b"},
    "no Latin-1": {"content_type": "☃"},
    "name": {"metadata": (("a\r\nX: y", "v"),)},
    "checksum": {"checksums": (Checksum("CRC32", "a\r\nb"),)},
    "parts": {"etag_parts": 2**32 - 1},
    "replaced": {"replaced_address": bytes(16)},
    "sizes of parts": {"etag_parts": 1, "parts": PartList.of([5]).encode()},
}


@pytest.mark.parametrize("way", WRITES)
async def test_no_write_takes_an_entry_that_readers_cannot_show(bucket: Service, way: Way) -> None:
    whole = unpack(bucket.entry(5))
    for change in FORGED.values():
        await refusal(way(bucket, pack(replace(whole, **change))))  # type: ignore[arg-type]
    for packed in (TOMBSTONE, b"", b"junk" * 30, bucket.entry(5)[:-1], bucket.entry(5) + b"\x0e"):
        await refusal(way(bucket, packed))
    listed = await bucket.graveler.list_entries(bucket.admin, "lake", "main")
    assert not listed.paths
    await way(bucket, bucket.entry(5))
    assert await bucket.size("main", "a") == 5


@pytest.mark.parametrize("way", [_upload, _link, _link_as])
async def test_no_template_has_fields_that_readers_cannot_show(bucket: Service, way: Way) -> None:
    nothing = Entry(0, 0, bytes(16), bytes(16))
    for name in ("external", "line break", "no Latin-1", "name", "checksum", "parts"):
        await refusal(way(bucket, pack(replace(nothing, **FORGED[name]))))  # type: ignore[arg-type]
    await refusal(way(bucket, b"junk" * 30))
    await way(bucket, pack(replace(nothing, content_type="text/plain")))


def _entry_fields(message: Descriptor) -> set[str]:
    """Names of the fields of a message that hold a packed entry, also inside other messages."""
    found = set()
    for field in message.fields:
        if field.type == FieldDescriptor.TYPE_BYTES and field.name in ("entry", "template"):
            found.add(f"{message.name}.{field.name}")
        if field.message_type is not None:
            found |= _entry_fields(field.message_type)
    return found


def test_these_are_all_requests_with_an_entry(service: Service) -> None:
    """A new rpc that takes an entry belongs into the tests above."""
    found = set()
    for endpoint in service.endpoints:
        for method in endpoint.descriptor.methods:
            found |= _entry_fields(method.input_type)
    assert found == {
        "Stage.entry",
        "CreateUploadRequest.template",
        "FinishCompleteUploadRequest.entry",
        "GetPhysicalAddressRequest.template",
        "LinkPhysicalAddressRequest.template",
    }


async def test_other_bytes_do_not_pass_as_the_committed_entry(service: Service) -> None:
    """The identity says whether an entry differs, so it is that of the content."""
    await service.put("a", 5)
    await service.graveler.create_commit(service.admin, "lake", "main", "m")
    committed = service.entry(5)
    evil = service.entry(999)
    error = await refusal(service.stage("a", evil[:50] + committed[50:HEAD_BYTES]))
    assert error.metadata["field"] == "entry.identity"
    await service.stage("a", evil)
    assert (await service.graveler.diff_uncommitted(service.admin, "lake", "main")).paths == ["a"]


async def test_a_row_without_a_condition_does_not_name_an_upload(service: Service) -> None:
    """A completion takes a row that names its upload for its own."""
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "a", template=entry(0))
    error = await refusal(service.stage("a", service.entry(5, upload.upload_id)))
    assert error.metadata["field"] == "entry.operation_id"


PART = upload_service_pb2.UploadPart(part_number=1, attempt="a1", size_bytes=5, md5=bytes(16))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("part.part_number", {"part_number": 0}),
        ("part.part_number", {"part_number": 10_001}),
        ("part.size_bytes", {"size_bytes": -1}),
        ("part.size_bytes", {"size_bytes": OBJECT_BYTES_MAX + 1}),
        ("part.md5", {"md5": bytes(15)}),
        ("part.create_time", {"create_time": {"seconds": 2**62}}),
        ("part.create_time", {"create_time": {"seconds": -1}}),
        ("part.checksum", {"checksum": "AAAAAA=="}),
        ("attempt", {"attempt": "../x"}),
        ("attempt", {"attempt": ""}),
    ],
)
async def test_a_part_is_one_that_listings_can_show(
    service: Service, field: str, change: dict[str, object]
) -> None:
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "a", template=entry(0))
    part = upload_service_pb2.UploadPart()
    part.CopyFrom(PART)
    for name in change:
        part.ClearField(name)
    part.MergeFrom(upload_service_pb2.UploadPart(**change))  # type: ignore[arg-type]
    error = await refusal(graveler.record_upload_part(admin, "lake", upload.upload_id, part))
    assert error.metadata["field"] == field
    await graveler.record_upload_part(admin, "lake", upload.upload_id, PART)


async def test_a_part_has_the_checksum_of_its_upload(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    create = graveler.create_upload
    error = await refusal(
        create(admin, "lake", "main", "a", template=entry(0), checksum_algorithm="MD5")
    )
    assert error.metadata["field"] == "checksum_algorithm"
    upload = await create(admin, "lake", "main", "a", template=entry(0), checksum_algorithm="CRC32")
    part = upload_service_pb2.UploadPart()
    part.CopyFrom(PART)
    for wrong in ("", "AAAA", "AAAAAA==\r\n", "AAAAAA==-3"):
        part.checksum = wrong
        await refusal(graveler.record_upload_part(admin, "lake", upload.upload_id, part))
    part.checksum = "AAAAAA=="
    await graveler.record_upload_part(admin, "lake", upload.upload_id, part)


# ---- entries that an older release stored


async def staged_before(service: Service, **rows: Entry) -> None:
    """Stages entries as a release without the check did."""
    graveler = service.replicas.made[0]
    repository = await graveler.repositories.get("lake")
    for path, made in rows.items():
        await graveler.staging.stage(BranchName(repository, MAIN), path, pack(made))


async def test_readers_survive_entries_that_an_older_release_stored(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    whole = unpack(service.entry(5))
    await staged_before(
        service,
        late=replace(whole, mtime_us=2**63 - 1),
        early=replace(whole, mtime_us=-(2**63)),
        large=replace(whole, size=2**63 - 1),
        larger=replace(whole, size=2**63 - 2),
        line=replace(whole, content_type="a\r\nb"),
    )
    for ref in ("main", "main@"):
        page = await graveler.list_entries(admin, "lake", ref)
        assert page.paths == ["early", "large", "larger", "late", "line"]
        shown = dict(zip(page.paths, listed_of(page.entries), strict=True))
        assert shown["late"][2] == TIME_US_MAX
        assert shown["early"][2] == 0
        versions = {
            path: ObjectVersion.of(path, packed)
            for path, packed in zip(page.paths, page.entries, strict=True)
        }
        assert versions["late"].modify_time.year == 9999
        assert versions["early"].modify_time.year == 1970
        if ref == "main":
            counts = (
                await DiffClient(service.transport).summarize_uncommitted(admin, "lake", "main")
            ).counts
            assert (counts.added_count, counts.added_bytes) == (5, BYTES_MAX)
            used = (
                await QuotaClient(service.transport).get_quota(admin, QuotaKind.REPOSITORY, "lake")
            ).used
            assert (used.staged_objects, used.staged_bytes) == (5, BYTES_MAX)
            await graveler.create_commit(admin, "lake", "main", "m")
    await graveler.create_branch(admin, "lake", "dev", "main")
    await service.put("b", 1, "dev")
    await graveler.create_commit(admin, "lake", "dev", "m")
    await graveler.merge(admin, "lake", "main", "dev")
    assert len((await graveler.list_entries(admin, "lake", "main")).paths) == 6
    assert await service.size("main", "late") == 5


async def test_a_branch_with_such_entries_is_cleaned_by_deletes(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await staged_before(service, late=replace(unpack(service.entry(5)), mtime_us=2**63 - 1))
    await graveler.unstage(admin, "lake", "main", "late")
    with pytest.raises(TarnError) as raised:
        await service.size("main", "late")
    assert raised.value.reason is Reason.ENTRY_NOT_FOUND


async def test_an_address_that_an_older_replica_issued_is_linked_without_its_faults(
    bucket: Service,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    issued = await issue(bucket)
    await written(bucket, issued)
    replica = bucket.replicas.made[0]
    evil = pack(replace(Entry(0, 0, bytes(16), bytes(16)), external_address="file:///etc/passwd"))
    found = replica.uploads.get_any

    async def old(*arguments: object) -> OpenUpload:
        upload = await found(*arguments)  # type: ignore[arg-type]
        upload.record.template = evil
        return upload

    monkeypatch.setattr(replica.uploads, "get_any", old)
    error = await refusal(link(bucket, issued.token))
    assert error.metadata["field"] == "entry.external_address"
