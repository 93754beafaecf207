"""Addresses that clients write to themselves: who may link what, when, and how often."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from graveler_service import Service, reason_of, running_service
from lake import Running
from lake_links import (
    BODY,
    ETAG,
    PATH,
    Bucket,
    address_of,
    issue,
    link,
    written,
    written_again,
)
from lake_rules import WRITE, protect

from tarn.block.port import BlockInfo, BlockKey, BlockNotFoundError
from tarn.core.condition import WriteCondition
from tarn.core.entry import TIME_US_MAX, Entry, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, physical_path
from tarn.core.levels import LEVEL_FIRST, FeatureGate
from tarn_graveler.records.branches import BranchName
from tarn_graveler.uploads.links import LINK_SECONDS, WrittenObject
from tarn_graveler.uploads.records import RecordedAttempts
from tarn_graveler.uploads.state import Uploads
from tarn_proto.graveler.v1 import link_service_pb2 as pb
from tarn_proto.graveler.v1 import settings_service_pb2 as settings_pb
from tarn_proto.store.v1 import journal_pb2 as journal_pb

OTHER_ETAG = hashlib.md5(b"other bytes", usedforsecurity=False).hexdigest()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    async with running_service(tmp_path, store=Bucket) as service:
        yield service


async def test_an_object_is_written_past_tarn_and_linked(service: Service) -> None:
    none = bytes(16)
    metadata = (("by", "client"),)
    template = pack(Entry(0, 0, none, none, content_type="text/csv", metadata=metadata))
    issued = await issue(service, template=template)
    bucket = service.replicas.blocks
    assert isinstance(bucket, Bucket)
    ((key, seconds, parts),) = bucket.asked
    assert issued.physical_address == f"{key.namespace}/{key.path}"
    assert (seconds, parts) == (LINK_SECONDS, 0)
    assert dict(issued.headers) == {"If-None-Match": "*"}
    await written(service, issued)
    assert await reason_of(service.graveler.lookup(service.admin, "lake", "main", PATH)) is (
        Reason.ENTRY_NOT_FOUND
    )
    packed = await link(service, issued.token)
    found = await service.graveler.lookup(service.admin, "lake", "main", PATH)
    assert found.entry == packed
    made = unpack(packed)
    assert (made.size, made.etag, made.content_type) == (len(BODY), ETAG, "text/csv")
    assert made.metadata == metadata
    assert key.path.endswith(made.address.hex())


async def test_the_event_of_a_link_says_who_asked_and_that_it_was_a_link(tmp_path: Path) -> None:
    async with running_service(tmp_path, store=Bucket, keeps_events=True) as service:
        issued = await issue(service)
        await written(service, issued)
        await link(service, issued.token)
        found = await service.replica.repositories.get("lake")
        branch = (await service.replica.branches.fresh(BranchName(found, BranchId("main")))).branch
        keys = service.replica.repositories.keys_of(found)
        tokens = [keys.token(BranchId("main"), each) for each in branch.tokens]
        scan = service.replicas.kv.scan_companions
        rows = [row for token in tokens for row in await scan(token, b"", None, 10)]
        user = await service.auth.get_user(service.admin, "root")
    (event,) = (journal_pb.JournalEvent.FromString(row.value) for row in rows)
    assert event.operation == journal_pb.JOURNAL_OPERATION_LINK
    assert event.user_uid == user.user_uid


async def test_a_link_whose_end_fails_is_repeated_after_a_pause(
    service: Service, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once, while the store has the same trouble."""
    issued = await issue(service)
    await written(service, issued)
    failed = asyncio.Event()
    finish = Uploads.finish_complete

    async def failing(*_: object, **__: object) -> None:
        failed.set()
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store does not answer")

    monkeypatch.setattr(Uploads, "finish_complete", failing)
    linking = running.start(link(service, issued.token))
    async with asyncio.timeout(5.0):
        await failed.wait()
    monkeypatch.setattr(Uploads, "finish_complete", finish)
    for _ in range(100):
        await asyncio.sleep(0)
        service.clock.advance(0)  # ends a pause of no length
    assert not linking.done()
    service.clock.advance(1)
    packed = await linking
    assert (await service.graveler.lookup(service.admin, "lake", "main", PATH)).entry == packed


async def test_the_upload_of_parts_is_named(service: Service) -> None:
    """A front signs further parts of it, and completes it."""
    issued = await issue(service, part_count=2)
    assert issued.physical_address.endswith(issued.bucket_upload_id.removeprefix("upload of "))
    assert issued.bucket_upload_id
    assert not (await issue(service)).bucket_upload_id


async def test_the_link_may_name_the_type_and_metadata(service: Service) -> None:
    """Clients of REST know them only then."""
    asked = Entry(0, 0, bytes(16), bytes(16), content_type="text/csv", metadata=(("a", "1"),))
    issued = await issue(service, template=pack(asked))
    await written(service, issued)
    named = replace(asked, content_type="text/plain", metadata=(("b", "2"),))
    with pytest.raises(TarnError, match="content"):
        await link(service, issued.token, template=pack(replace(asked, content_type="a\nb")))
    for template in (pack(named), pack(asked)):  # the second one gets the first answer
        entry = unpack(await link(service, issued.token, template=template))
        assert (entry.content_type, entry.metadata) == ("text/plain", (("b", "2"),))
        assert entry.size == len(BODY)


async def test_the_link_may_name_the_time_of_the_object(service: Service) -> None:
    issued = await issue(service)
    await written(service, issued)
    for wrong in (
        Timestamp(seconds=-1),
        Timestamp(nanos=-1),
        Timestamp(seconds=TIME_US_MAX // 1_000_000 + 1),
        Timestamp(seconds=1 << 62),
    ):
        with pytest.raises(TarnError, match="modify_time is not a time") as raised:
            await link(service, issued.token, modify_time=wrong)
        assert raised.value.metadata["field"] == "modify_time"
    for time in (Timestamp(), Timestamp(seconds=7)):  # the second one gets the first answer
        assert unpack(await link(service, issued.token, modify_time=time)).mtime_us == 0
    other = await issue(service)
    await written(service, other)
    latest = Timestamp(seconds=TIME_US_MAX // 1_000_000, nanos=999_999_000)
    assert unpack(await link(service, other.token, modify_time=latest)).mtime_us == TIME_US_MAX


async def test_a_token_is_used_once_and_its_answer_is_repeated(service: Service) -> None:
    issued = await issue(service)
    await written(service, issued)
    first = await link(service, issued.token)
    await service.put(PATH, 7)  # another client overwrites it
    assert await link(service, issued.token) == first
    assert await service.size("main", PATH) == 7, "the newer object stays"
    other = link(service, issued.token, size=1)
    assert await reason_of(other) is Reason.LINK_USED


@pytest.mark.parametrize("other", ["path", "branch", "caller", "damaged", "empty", "page token"])
async def test_a_token_is_bound_to_its_caller_and_path(service: Service, other: str) -> None:
    issued = await issue(service)
    await written(service, issued)
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    token = issued.token
    options: dict[str, object] = {}
    if other == "path":
        options["path"] = "raw/b"
    elif other == "branch":
        options["branch"] = "dev"
    elif other == "caller":
        options["call"] = await service.as_user("bob", "Developer")
    elif other == "damaged":
        token = token[:-2] + ("AA" if token[-2:] != "AA" else "BB")
    elif other == "empty":
        token = ""
    else:
        listed = await service.graveler.list_branches(service.admin, "lake", page_size=1)
        token = listed.next_page_token
        assert token
    with pytest.raises(TarnError) as raised:
        await link(service, token, **options)  # type: ignore[arg-type]
    assert raised.value.kind is Kind.INVALID
    assert raised.value.metadata["field"] == "token"
    await link(service, issued.token)  # the token itself is still good


async def test_an_address_is_linked_without_its_token(service: Service) -> None:
    """Clients of the REST interface send back the address alone."""
    issued = await issue(service)
    address = address_of(issued)
    assert await reason_of(link(service, address=address)) is Reason.BLOCK_NOT_FOUND
    await written(service, issued)
    first = await link(service, address=address)
    assert unpack(first).address == address
    await service.put(PATH, 7)  # another client overwrites it
    assert await link(service, address=address) == first == await link(service, issued.token)
    assert await service.size("main", PATH) == 7, "the newer object stays"
    assert await reason_of(link(service, address=address, size=1)) is Reason.LINK_USED


@pytest.mark.parametrize(
    "other", ["path", "branch", "caller", "block", "upload", "invented", "short", "both"]
)
async def test_an_address_is_bound_to_its_caller_and_path(service: Service, other: str) -> None:
    issued = await issue(service)
    await written(service, issued)
    await service.graveler.create_branch(service.admin, "lake", "dev", "main")
    address, token = address_of(issued), ""
    options: dict[str, object] = {}
    if other == "path":
        options["path"] = "raw/b"
    elif other == "branch":
        options["branch"] = "dev"
    elif other == "caller":
        options["call"] = await service.as_user("bob", "Developer")
    elif other == "block":
        await service.put("raw/b", 7)
        found = await service.graveler.lookup(service.admin, "lake", "main", "raw/b")
        address, options["path"] = unpack(found.entry).address, "raw/b"
    elif other == "upload":
        upload = await service.graveler.create_upload(
            service.admin, "lake", "main", PATH, template=pack(Entry(0, 0, bytes(16), bytes(16)))
        )
        address = bytes.fromhex(upload.upload_id)
    elif other == "invented":
        address = address[:-1] + bytes([address[-1] ^ 1])
    elif other == "short":
        address = address[:-1]
    else:
        token = issued.token
    with pytest.raises(TarnError) as raised:
        await link(service, token, address=address, **options)  # type: ignore[arg-type]
    assert raised.value.kind is Kind.INVALID
    assert raised.value.metadata["field"] == "address"
    await link(service, address=address_of(issued))  # the address itself is still good


@pytest.mark.parametrize(
    ("size", "etag"), [(len(BODY) + 1, ETAG), (len(BODY), "0" * 32), (len(BODY), ETAG + "-1")]
)
async def test_another_size_or_etag_is_refused(service: Service, size: int, etag: str) -> None:
    issued = await issue(service)
    await written(service, issued)
    assert (
        await reason_of(link(service, issued.token, size=size, etag=etag)) is Reason.LINK_MISMATCH
    )
    await link(service, issued.token)  # nothing was claimed


@pytest.mark.parametrize(
    ("size", "etag"),
    [(-1, ETAG), (5 * 1024**4 + 1, ETAG), (1, ""), (1, "x" * 32), (1, f"{ETAG}-0")],
)
async def test_claims_without_sense_are_refused(service: Service, size: int, etag: str) -> None:
    issued = await issue(service)
    refused = link(service, issued.token, size=size, etag=etag)
    assert await reason_of(refused) is Reason.INVALID_ARGUMENT


async def test_nothing_is_linked_before_it_is_written(service: Service) -> None:
    issued = await issue(service)
    assert await reason_of(link(service, issued.token)) is Reason.BLOCK_NOT_FOUND
    await written(service, issued)
    await link(service, issued.token)


async def test_an_address_ends_with_its_time(service: Service) -> None:
    late, used = await issue(service), await issue(service, "raw/b")
    for each in (late, used):
        await written(service, each)
    first = await link(service, used.token, path="raw/b")
    service.clock.advance(LINK_SECONDS + 1)
    assert await reason_of(link(service, late.token)) is Reason.LINK_EXPIRED
    assert await link(service, used.token, path="raw/b") == first, "an answer may be repeated"


async def test_a_condition_is_kept(service: Service) -> None:
    await service.put(PATH, 7)
    issued = await issue(service)
    await written(service, issued)
    absent = WriteCondition(if_none_match=True)
    assert (
        await reason_of(link(service, issued.token, condition=absent)) is Reason.PRECONDITION_FAILED
    )
    assert await service.size("main", PATH) == 7
    await link(service, issued.token)  # the claim was given up
    assert await service.size("main", PATH) == len(BODY)


async def test_a_protected_branch_takes_no_link(service: Service) -> None:
    issued = await issue(service)
    await written(service, issued)
    await protect(service, settings_pb.Protection(pattern="main", blocked=WRITE))
    assert await reason_of(link(service, issued.token)) is Reason.BRANCH_PROTECTED
    await protect(service)
    await link(service, issued.token)


async def test_an_issued_address_is_no_multipart_upload(service: Service) -> None:
    issued = await issue(service)
    uploads = service.graveler
    page = await uploads.list_uploads(service.admin, "lake", "main")
    assert list(page.uploads) == []
    upload_id = base64.urlsafe_b64decode(issued.token + "==")[17:].decode()
    for step in (
        uploads.get_upload(service.admin, "lake", "main", PATH, upload_id),
        uploads.begin_complete_upload(service.admin, "lake", upload_id, bytes(32)),
        uploads.abort_upload(service.admin, "lake", upload_id),
    ):
        assert await reason_of(step) is Reason.UPLOAD_NOT_FOUND
    await written(service, issued)
    await link(service, issued.token)


async def test_readers_and_strangers_get_no_address(service: Service) -> None:
    reader = await service.as_user("eve", "Analyst")
    for caller in (reader, service.anonymous):
        with pytest.raises(TarnError) as raised:
            await service.graveler.get_physical_address(caller, "lake", "main", PATH)
        assert raised.value.kind in (Kind.DENIED, Kind.UNAUTHENTICATED)
    for branch, reason in (("nope", Reason.BRANCH_NOT_FOUND), ("main~1", Reason.REF_NOT_WRITABLE)):
        asked = service.graveler.get_physical_address(service.admin, "lake", branch, PATH)
        assert await reason_of(asked) is reason


@pytest.mark.parametrize("part_count", [-1, 1001])
async def test_the_number_of_parts_is_bounded(service: Service, part_count: int) -> None:
    assert await reason_of(issue(service, part_count=part_count)) is Reason.INVALID_ARGUMENT


async def test_a_store_that_is_no_bucket_issues_nothing(tmp_path: Path) -> None:
    async with running_service(tmp_path) as service:
        with pytest.raises(TarnError) as raised:
            await issue(service)
        assert raised.value.kind is Kind.UNIMPLEMENTED
        assert "S3 endpoint" in raised.value.message


def test_the_etag_of_parts_is_kept() -> None:
    assert WrittenObject(5, f"{ETAG}-3").digest != WrittenObject(5, ETAG).digest


# ---- addresses to which the client may write again


def bucket_of(service: Service) -> Bucket:
    assert isinstance(service.replicas.blocks, Bucket)
    return service.replicas.blocks


async def linked_block(service: Service, packed: bytes) -> BlockKey:
    namespace = (await service.graveler.get_repository(service.admin, "lake")).storage_namespace
    return BlockKey(namespace, physical_path(unpack(packed).address))


async def test_what_a_client_writes_after_its_link_changes_no_object(service: Service) -> None:
    issued = await issue(service, rewritable=True)
    await written(service, issued)
    first = await link(service, issued.token)
    block = await linked_block(service, first)
    assert not issued.physical_address.endswith(block.path), "its URL leads elsewhere"
    with pytest.raises(BlockNotFoundError):  # nobody pays for it twice
        await bucket_of(service).stat(bucket_of(service).asked[0][0])
    await written(service, issued, b"other bytes")
    assert await bucket_of(service).read(block) == BODY
    assert await link(service, issued.token) == first
    changed = link(service, issued.token, size=11, etag="0" * 32)
    assert await reason_of(changed) is Reason.LINK_USED
    assert await bucket_of(service).read(block) == BODY


async def test_without_conditional_writes_every_single_put_is_copied(service: Service) -> None:
    bucket_of(service).binds_writes = False
    for parts, rewritable, is_copied in ((0, False, True), (0, True, True), (1, True, False)):
        path = f"raw/{parts}-{rewritable}"
        issued = await issue(service, path, part_count=parts, rewritable=rewritable)
        await written(service, issued)
        block = await linked_block(service, await link(service, issued.token, path=path))
        assert issued.physical_address.endswith(block.path) is not is_copied


async def test_a_write_during_the_link_is_refused_and_may_be_linked_by_its_own_etag(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at the block and the copy of it. The claim is given up, because nothing was staged."""
    issued = await issue(service, rewritable=True)
    await written(service, issued)
    copy = Bucket.copy_written

    async def after_a_write(*args: Any) -> None:
        monkeypatch.undo()
        await written_again(service, issued)
        await copy(*args)

    monkeypatch.setattr(Bucket, "copy_written", after_a_write)
    assert await reason_of(link(service, issued.token)) is Reason.LINK_MISMATCH
    assert await reason_of(link(service, issued.token)) is Reason.LINK_MISMATCH
    packed = await link(service, issued.token, size=11, etag=OTHER_ETAG)
    assert await bucket_of(service).read(await linked_block(service, packed)) == b"other bytes"


async def test_a_link_that_failed_does_not_bind_the_next_one_to_its_bytes(
    service: Service,
) -> None:
    """A link whose condition fails has copied already. Nothing names that copy."""
    await service.put(PATH, 7)
    issued = await issue(service, rewritable=True)
    await written(service, issued)
    absent = WriteCondition(if_none_match=True)
    failed = link(service, issued.token, condition=absent)
    assert await reason_of(failed) is Reason.PRECONDITION_FAILED
    await written_again(service, issued)
    packed = await link(service, issued.token, size=11, etag=OTHER_ETAG)
    assert await bucket_of(service).read(await linked_block(service, packed)) == b"other bytes"


async def test_a_copy_that_arrives_late_replaces_no_linked_object(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bucket does not answer, so the link gives up; the client writes other bytes and links them. Then the bucket
    makes the first copy after all."""
    targets: list[BlockKey] = []

    async def late(self: Bucket, source: BlockKey, target: BlockKey, size: int, etag: str) -> None:
        targets.append(target)
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket does not answer")

    issued = await issue(service, rewritable=True)
    await written(service, issued)
    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "copy_written", late)
        assert await reason_of(link(service, issued.token)) is Reason.UNAVAILABLE
    await written_again(service, issued)
    packed = await link(service, issued.token, size=11, etag=OTHER_ETAG)
    (target,) = targets
    await bucket_of(service).delete_many(target.namespace, [target.path])
    await bucket_of(service).put(target, BODY)
    assert await bucket_of(service).read(await linked_block(service, packed)) == b"other bytes"


async def test_a_link_beside_one_that_ends_gets_its_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has removed what was copied, after this one has read the record."""
    issued = await issue(service, rewritable=True)
    await written(service, issued)
    answers: list[bytes] = []
    stat = Bucket.stat

    async def after_the_other(self: Bucket, key: BlockKey) -> BlockInfo:
        monkeypatch.undo()
        answers.append(await link(service, issued.token))
        return await stat(self, key)

    monkeypatch.setattr(Bucket, "stat", after_the_other)
    assert await link(service, issued.token) == answers[0]


async def test_what_cannot_be_removed_is_left_to_a_collection(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(self: Bucket, namespace: str, paths: list[str]) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket does not answer")

    issued = await issue(service, rewritable=True)
    await written(service, issued)
    monkeypatch.setattr(Bucket, "delete_many", failing)
    packed = await link(service, issued.token)
    assert (await service.graveler.lookup(service.admin, "lake", "main", PATH)).entry == packed


async def staged_without_answer(
    service: Service, issued: pb.GetPhysicalAddressResponse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Links an object; the row is written, and its link is not recorded."""

    async def failing(*_: object, unless_added: bool) -> bool:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store does not answer")

    async def no_sleep(*_: object) -> None:
        pass

    await written(service, issued)
    with monkeypatch.context() as patched:
        patched.setattr(type(service.clock), "sleep", no_sleep)
        patched.setattr(RecordedAttempts, "complete", failing)
        assert await reason_of(link(service, issued.token)) is Reason.OUTCOME_UNKNOWN


async def test_an_object_that_may_be_linked_is_not_refused_because_its_block_is_gone(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The object is staged, its link is not recorded, and then it is erased. "Nothing was linked" would be untrue."""
    issued = await issue(service)
    await staged_without_answer(service, issued, monkeypatch)
    packed = (await service.graveler.lookup(service.admin, "lake", "main", PATH)).entry
    key = await linked_block(service, packed)
    await bucket_of(service).delete_many(key.namespace, [key.path])
    assert await reason_of(link(service, issued.token)) is Reason.OUTCOME_UNKNOWN


@pytest.mark.parametrize("reason", [Reason.BLOCK_NOT_FOUND, Reason.UNAVAILABLE])
async def test_a_copy_that_fails_after_an_earlier_link_may_have_staged_is_no_refusal(
    service: Service, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    """What was written goes between the look at it and its copy. The claim is given up, for the next link."""
    issued = await issue(service, rewritable=True)
    await staged_without_answer(service, issued, monkeypatch)

    async def failing(*_: object) -> None:
        if reason is Reason.BLOCK_NOT_FOUND:
            raise BlockNotFoundError(BlockKey("file:///lake", "gone"))
        raise TarnError(Kind.UNAVAILABLE, reason, "the bucket does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "copy_written", failing)
        assert await reason_of(link(service, issued.token)) is Reason.OUTCOME_UNKNOWN
    packed = await link(service, issued.token)
    assert (await service.graveler.lookup(service.admin, "lake", "main", PATH)).entry == packed


async def test_an_object_that_may_be_linked_is_not_refused_because_the_client_wrote_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued = await issue(service, rewritable=True)
    await staged_without_answer(service, issued, monkeypatch)
    await written_again(service, issued)
    assert await reason_of(link(service, issued.token)) is Reason.OUTCOME_UNKNOWN


async def test_a_copy_that_failed_is_made_by_the_next_link(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the bucket does not answer")

    issued = await issue(service, rewritable=True)
    await written(service, issued)
    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "copy_written", failing)
        assert await reason_of(link(service, issued.token)) is Reason.UNAVAILABLE
    await link(service, issued.token)


async def roots_of(service: Service) -> set[bytes]:
    repository = await service.replica.repositories.get("lake")
    found: set[bytes] = set()
    cursor = ""
    while True:
        page = await service.replica.roots.page(repository, cursor, 3)
        found.update(page.addresses)
        cursor = page.cursor
        if not cursor:
            return found


async def test_the_written_object_and_its_copy_are_roots(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of an attempt that may be staged stays the same, and may be staged days later, by a repeated link."""
    issued = await issue(service, rewritable=True)
    assert address_of(issued) in await roots_of(service)
    await staged_without_answer(service, issued, monkeypatch)
    await service.put(PATH, 7)
    (copied,) = bucket_of(service).copied
    address = bytes.fromhex(copied.path.rpartition("/")[2])
    assert address != address_of(issued)
    assert {address, address_of(issued)} <= await roots_of(service)
    assert unpack(await link(service, issued.token)).address == address


async def test_an_address_that_is_copied_waits_for_the_level(service: Service) -> None:
    """A replica of the first level would link the address itself, and its roots would not keep the copy."""
    for endpoint in service.endpoints:
        if hasattr(endpoint.handler, "LinkPhysicalAddress"):
            cast("Any", endpoint.handler)._features = FeatureGate.at(LEVEL_FIRST)
    assert await reason_of(issue(service, rewritable=True)) is Reason.FEATURE_LEVEL
    bucket_of(service).binds_writes = False
    issued = await issue(service)
    await written(service, issued)
    block = await linked_block(service, await link(service, issued.token))
    assert issued.physical_address.endswith(block.path)
