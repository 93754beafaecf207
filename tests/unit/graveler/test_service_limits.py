"""The limits of graveler's services, tested at the bound, and the state after a refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from graveler_service import Service, reason_of
from lake import entry

from tarn.core.commit import AUTHOR_TIME
from tarn.core.condition import WriteCondition
from tarn.core.entry import pack, unpack
from tarn.core.errors import Reason
from tarn_proto.graveler.v1 import upload_service_pb2 as uploads
from tarn_proto.graveler.v1.commit_service_pb2 import Commit

HASH = bytes(32)


# --- entries


async def test_many_deletes_have_each_their_own_outcome(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await service.put("b", 1)
    outcomes = await graveler.unstage_many(
        admin, "lake", "main", ["b", "", "x" * 1025, "none", "a"]
    )
    reasons = [error and error.reason for error in outcomes]
    assert reasons == [None, Reason.INVALID_ARGUMENT, Reason.KEY_TOO_LONG, None, None]
    for path in ("a", "b"):
        found = graveler.lookup(admin, "lake", "main", path)
        assert await reason_of(found) is Reason.ENTRY_NOT_FOUND


async def test_a_thousand_paths_are_deleted_at_once_and_no_more(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("0", 1)
    paths = [str(number) for number in range(1001)]
    assert await reason_of(graveler.unstage_many(admin, "lake", "main", paths)) is (
        Reason.INVALID_ARGUMENT
    )
    assert await service.size("main", "0") == 1
    assert await graveler.unstage_many(admin, "lake", "main", paths[:1000]) == [None] * 1000
    assert await reason_of(graveler.lookup(admin, "lake", "main", "0")) is Reason.ENTRY_NOT_FOUND


async def test_a_tag_takes_no_write_of_any_kind(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await graveler.create_commit(admin, "lake", "main", "m")
    await graveler.create_tag(admin, "lake", "v1", "main")
    for work in (
        service.stage("a", service.entry(2), "v1"),
        graveler.unstage(admin, "lake", "v1", "a"),
        graveler.unstage_many(admin, "lake", "v1", ["a"]),
    ):
        assert await reason_of(work) is Reason.REF_NOT_WRITABLE
    for work in (
        service.stage("a", service.entry(2), "nowhere"),
        graveler.unstage(admin, "lake", "nowhere", "a"),
        graveler.unstage_many(admin, "lake", "nowhere", ["a"]),
    ):
        assert await reason_of(work) is Reason.BRANCH_NOT_FOUND
    assert await service.size("v1", "a") == 1


async def test_a_delimiter_has_at_most_1024_bytes(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    listed = await graveler.list_entries(admin, "lake", "main", delimiter="ü" * 512)
    assert list(listed.paths) == ["a"]
    too_long = graveler.list_entries(admin, "lake", "main", delimiter="ü" * 512 + "x")
    assert await reason_of(too_long) is Reason.INVALID_ARGUMENT


# --- commits


async def test_message_and_metadata_of_a_commit_are_bounded(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    before = (await graveler.get_commit(admin, "lake", "main")).commit_id
    message = "ü" * 32_768
    long = graveler.create_commit(admin, "lake", "main", message + "x", allow_empty=True)
    assert await reason_of(long) is Reason.INVALID_ARGUMENT
    metadata = {"ü": "v" * 32_767, "w": "x" * 32_766}
    large = graveler.create_commit(
        admin, "lake", "main", "m", metadata=metadata | {"w": "x" * 32_767}, allow_empty=True
    )
    assert await reason_of(large) is Reason.METADATA_TOO_LARGE
    assert (await graveler.get_commit(admin, "lake", "main")).commit_id == before
    made = await graveler.create_commit(
        admin, "lake", "main", message, metadata=metadata, allow_empty=True
    )
    assert made.commit.message == message
    assert dict(made.commit.metadata) == metadata


async def test_a_commit_has_the_time_of_its_author_beside_its_own(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    time = Timestamp(seconds=-1, nanos=5_000)

    async def commit(**options: Any) -> Commit:
        made = await graveler.create_commit(
            admin, "lake", "main", "m", allow_empty=True, metadata={"job": "1"}, **options
        )
        return made.commit

    plain = await commit()
    assert not plain.HasField("author_time")
    made = await commit(author_time=time)
    assert made.author_time == time
    assert dict(made.metadata) == {"job": "1"}, "the field tells it"
    assert made.create_time.ToMicroseconds() == service.clock.now_us()
    assert await graveler.get_commit(admin, "lake", "main") == made
    # The log goes by the time of the commit.
    page = await graveler.list_commits(admin, "lake", "main", since=made.create_time)
    assert made in page.commits
    assert (
        made
        not in (await graveler.list_commits(admin, "lake", "main", until=made.create_time)).commits
    )
    for odd in (Timestamp(seconds=1 << 40), Timestamp(nanos=-1)):
        assert await reason_of(commit(author_time=odd)) is Reason.INVALID_ARGUMENT
    assert await graveler.get_commit(admin, "lake", "main") == made


async def test_no_caller_writes_the_metadata_that_holds_the_time_of_the_author(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    metadata = {AUTHOR_TIME: "2026-11-01T12:30:00.000000Z"}
    for work in (
        graveler.create_commit(admin, "lake", "main", "m", metadata=metadata, allow_empty=True),
        graveler.merge(admin, "lake", "main", "main", metadata=metadata, allow_empty=True),
        graveler.revert(admin, "lake", "main", "main", metadata=metadata, allow_empty=True),
        graveler.cherry_pick(admin, "lake", "main", "main", metadata=metadata, allow_empty=True),
    ):
        assert await reason_of(work) is Reason.INVALID_ARGUMENT


# --- tags, branches and repositories


async def test_a_tag_is_made_once_and_deleted_once(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    first = await graveler.create_tag(admin, "lake", "v1", "main")
    await graveler.create_commit(admin, "lake", "main", "m", allow_empty=True)
    assert await reason_of(graveler.create_tag(admin, "lake", "v1", "main")) is Reason.TAG_EXISTS
    assert (await graveler.get_tag(admin, "lake", "v1")).commit_id == first.commit_id
    await graveler.delete_tag(admin, "lake", "v1")
    assert await reason_of(graveler.delete_tag(admin, "lake", "v1")) is Reason.TAG_NOT_FOUND


async def test_a_repository_s_name_is_taken_once(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    again = graveler.create_repository(admin, "lake")
    assert await reason_of(again) is Reason.REPOSITORY_EXISTS
    assert await service.size("main", "a") == 1
    for namespace in ("nowhere", "mem://" + "x" * 2_000):
        odd = graveler.create_repository(admin, "pond", storage_namespace=namespace)
        assert await reason_of(odd) is Reason.INVALID_ARGUMENT
    gone = graveler.get_repository(admin, "pond")
    assert await reason_of(gone) is Reason.REPOSITORY_NOT_FOUND


async def test_repositories_are_listed_in_pages_by_prefix(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for name in ("pond-b", "pond-a", "sea", "pond"):
        await graveler.create_repository(admin, name)
    await graveler.delete_repository(admin, "pond-b")
    found: list[str] = []
    token, more = "", True
    while more:
        page = await graveler.list_repositories(admin, page_size=2, page_token=token)
        assert len(page.repositories) <= 2
        found += [repository.repository_id for repository in page.repositories]
        token = page.next_page_token
        more = bool(token)
    assert found == ["lake", "pond", "pond-a", "sea"]
    only = await graveler.list_repositories(admin, prefix="pond-")
    assert [repository.repository_id for repository in only.repositories] == ["pond-a"]


@pytest.mark.parametrize("sort", ["branch", "tag"])
async def test_names_are_listed_in_pages_by_prefix(service: Service, sort: str) -> None:
    graveler, admin = service.graveler, service.admin
    names = ["b", "b1", "b2", "c", "zz"]
    for name in reversed(names):
        if sort == "branch":
            await graveler.create_branch(admin, "lake", name, "main")
        else:
            await graveler.create_tag(admin, "lake", name, "main")

    async def page(token: str, size: int, prefix: str = "") -> tuple[list[str], str]:
        if sort == "branch":
            branches = await graveler.list_branches(
                admin, "lake", prefix=prefix, page_token=token, page_size=size
            )
            return [each.branch_id for each in branches.branches], branches.next_page_token
        tags = await graveler.list_tags(
            admin, "lake", prefix=prefix, page_token=token, page_size=size
        )
        return [each.tag_id for each in tags.tags], tags.next_page_token

    expected = sorted([*names, "main"] if sort == "branch" else names)
    for size in (1, 2, 3, 100):
        found: list[str] = []
        token = ""
        while True:
            lines, token = await page(token, size)
            assert len(lines) <= size
            found += lines
            if not token:
                break
        assert found == expected
    assert await page("", 10, "b") == (["b", "b1", "b2"], "")
    first, token = await page("", 2, "b")
    assert (first, await page(token, 2, "b")) == (["b", "b1"], (["b2"], ""))


# --- uploads


async def begin(service: Service, path: str = "big") -> uploads.Upload:
    return await service.graveler.create_upload(
        service.admin, "lake", "main", path, template=entry(0)
    )


def part(number: int, *, md5: bytes = bytes(16), size: int = 5) -> uploads.UploadPart:
    return uploads.UploadPart(part_number=number, attempt="a1", size_bytes=size, md5=md5)


@pytest.mark.parametrize(
    "wrong",
    [
        part(0),
        part(10_001),
        part(1, md5=bytes(15)),
        part(1, md5=b""),
        part(1, size=-1),
    ],
)
async def test_a_part_that_cannot_be_is_not_recorded(
    service: Service, wrong: uploads.UploadPart
) -> None:
    graveler, admin = service.graveler, service.admin
    upload = (await begin(service)).upload_id
    refused = graveler.record_upload_part(admin, "lake", upload, wrong)
    assert await reason_of(refused) is Reason.INVALID_ARGUMENT
    for number in (1, 10_000):
        await graveler.record_upload_part(admin, "lake", upload, part(number, size=0))
    listed = await graveler.list_upload_parts(admin, "lake", upload)
    assert [each.part_number for each in listed.parts] == [1, 10_000]


async def test_parts_are_listed_in_pages(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    upload = (await begin(service)).upload_id
    for number in (1, 2, 3):
        await graveler.record_upload_part(admin, "lake", upload, part(number))
    page = await graveler.list_upload_parts(admin, "lake", upload, page_size=2)
    assert ([each.part_number for each in page.parts], page.is_truncated) == ([1, 2], True)
    rest = await graveler.list_upload_parts(admin, "lake", upload, page_size=2, after_part_number=1)
    assert ([each.part_number for each in rest.parts], rest.is_truncated) == ([2, 3], False)
    none = await graveler.list_upload_parts(admin, "lake", upload, after_part_number=10_001)
    assert (list(none.parts), none.is_truncated) == ([], False)
    wrong = graveler.list_upload_parts(admin, "lake", upload, after_part_number=-1)
    assert await reason_of(wrong) is Reason.INVALID_ARGUMENT


async def test_an_upload_and_its_parts_are_told_as_they_were_recorded(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    template = pack(replace(unpack(entry(0)), content_type="text/csv"))
    begun = await graveler.create_upload(
        admin,
        "lake",
        "main",
        "big",
        template=template,
        checksum_algorithm="CRC32",
        is_full_object_checksum=True,
    )
    told = await graveler.get_upload(admin, "lake", "main", "big", begun.upload_id)
    assert told == begun
    assert list((await graveler.list_uploads(admin, "lake", "main")).uploads) == [begun]
    repository = await graveler.get_repository(admin, "lake")
    assert (told.branch_id, told.path, told.template) == ("main", "big", template)
    assert (told.checksum_algorithm, told.is_full_object_checksum) == ("CRC32", True)
    assert (told.user_id, told.storage_namespace) == ("root", repository.storage_namespace)
    assert len(told.address) == 16
    assert told.create_time.ToMicroseconds() > 0
    recorded = uploads.UploadPart(
        part_number=7, attempt="try-2", size_bytes=9, md5=bytes(range(16)), checksum="AAAAAA=="
    )
    recorded.create_time.FromMicroseconds(1_790_000_000_000_000)
    await graveler.record_upload_part(admin, "lake", begun.upload_id, recorded)
    listed = await graveler.list_upload_parts(admin, "lake", begun.upload_id)
    assert list(listed.parts) == [recorded]


async def test_a_page_of_uploads_has_a_thousand_unless_asked_otherwise(service: Service) -> None:
    for number in range(1_001):
        await begin(service, f"{number:04}")
    request = uploads.ListUploadsRequest(repository_id="lake", branch_id="main")
    descriptor = uploads.DESCRIPTOR.services_by_name["UploadService"]
    page = await service.transport.unary(descriptor, "ListUploads", request, service.admin)
    assert isinstance(page, uploads.ListUploadsResponse)
    assert (len(page.uploads), page.is_truncated) == (1_000, True)
    assert page.uploads[-1].path == "0999"


async def test_uploads_are_listed_in_pages(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for path in ("a", "b", "c"):
        await begin(service, path)
    page = await graveler.list_uploads(admin, "lake", "main", page_size=2)
    assert ([each.path for each in page.uploads], page.is_truncated) == (["a", "b"], True)
    rest = await graveler.list_uploads(admin, "lake", "main", page_size=2, after_path="a")
    assert ([each.path for each in rest.uploads], rest.is_truncated) == (["b", "c"], False)


async def test_an_upload_is_found_under_its_own_path_only(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    upload = (await begin(service)).upload_id
    assert (await graveler.get_upload(admin, "lake", "main", "big", upload)).path == "big"
    await graveler.create_branch(admin, "lake", "dev", "main")
    for branch, path in (("main", "other"), ("dev", "big")):
        found = graveler.get_upload(admin, "lake", branch, path, upload)
        assert await reason_of(found) is Reason.UPLOAD_NOT_FOUND


async def test_a_completion_is_of_its_own_upload(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    upload = await begin(service)
    short = graveler.begin_complete_upload(admin, "lake", upload.upload_id, HASH[1:])
    assert await reason_of(short) is Reason.INVALID_ARGUMENT
    claim = (await graveler.begin_complete_upload(admin, "lake", upload.upload_id, HASH)).claim
    own = upload.upload_id
    whole = replace(unpack(entry(9)), address=upload.address, operation_id=own)
    new = WriteCondition(if_none_match=True)

    async def finish(packed: bytes, condition: WriteCondition) -> None:
        await graveler.finish_complete_upload(
            admin, "lake", upload.upload_id, claim, packed, condition
        )

    another = pack(replace(whole, address=bytes(15) + b"\1"))
    assert await reason_of(finish(another, WriteCondition())) is Reason.INVALID_ARGUMENT
    named = pack(replace(whole, operation_id="another operation"))
    assert await reason_of(finish(named, new)) is Reason.INVALID_ARGUMENT
    found = graveler.lookup(admin, "lake", "main", "big")
    assert await reason_of(found) is Reason.ENTRY_NOT_FOUND
    await finish(pack(whole), new)
    assert await service.size("main", "big") == 9


async def test_an_upload_begins_on_a_branch_with_headers_of_bounded_size(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_tag(admin, "lake", "v1", "main")
    for branch in ("nowhere", "v1"):
        begun = graveler.create_upload(admin, "lake", branch, "big", template=entry(0))
        assert await reason_of(begun) is Reason.BRANCH_NOT_FOUND
    large = pack(replace(unpack(entry(0)), content_type="x" * 60_000))
    begun = graveler.create_upload(admin, "lake", "main", "big", template=large)
    assert await reason_of(begun) is Reason.METADATA_TOO_LARGE
    assert not (await graveler.list_uploads(admin, "lake", "main")).uploads
