"""graveler's services as their callers see them: over the in-process transport, with the real auth."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass
from graveler_service import Service, reason_of
from lake import entry
from tests.support.plausible import request_of

from tarn.client.commits import ChangesPage
from tarn.core.condition import WriteCondition
from tarn.core.entry import ENTRY_BYTES_MAX, etag_of, pack, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.rules import OPERATE, rules_of
from tarn_proto.graveler.v1 import entry_service_pb2, merge_service_pb2

PLAUSIBLE = {
    "repository_id": "lake",
    "kind": "repository",
    "name": "lake",
    "branch_id": "b1",
    "tag_id": "t1",
    "ref": "main",
    "left_ref": "main",
    "right_ref": "main",
    "source_ref": "main",
    "source_branch_id": "main",
    "destination_branch_id": "main",
    "pull_request_id": "1",
    "destination_ref": "main",
    "target_ref": "main",
    "paths": ["a"],
    "manifest_hash": bytes(32),
}
"""Arguments that are valid except for permissions."""


async def test_every_rpc_refuses_a_call_without_a_token(service: Service) -> None:
    seen = 0
    for endpoint in service.endpoints:
        for method in endpoint.descriptor.methods:
            if method.name == OPERATE:
                continue
            request = request_of(method.input_type, PLAUSIBLE)
            with pytest.raises(TarnError) as raised:
                await service.transport.unary(
                    endpoint.descriptor, method.name, request, service.anonymous
                )
            assert raised.value.kind is Kind.UNAUTHENTICATED, method.full_name
            seen += 1
    assert seen == 122


async def test_an_empty_request_without_a_valid_token_is_refused_by_every_rpc(
    service: Service,
) -> None:
    """Of graveler and auth, but the public ones. Also with names and empty lists: a check for each item checks none."""
    seen = 0
    forged = replace(service.anonymous, caller_token="forged")
    transports = {
        endpoint.name: InProcessTransport([endpoint], service.clock)
        for endpoint in (*service.endpoints, *service.auth_endpoints)
    }
    for endpoint in (*service.endpoints, *service.auth_endpoints):
        rules = rules_of(endpoint.descriptor)
        for method in endpoint.descriptor.methods:
            if method.name == OPERATE or rules[method.name].is_public:
                continue
            of_one = {
                name: PLAUSIBLE[name]
                for name, field in method.input_type.fields_by_name.items()
                if name in PLAUSIBLE and not field.is_repeated
            }
            empty = GetMessageClass(method.input_type)()
            for request in (empty, request_of(method.input_type, of_one)):
                for call in (service.anonymous, forged):
                    with pytest.raises(TarnError) as raised:
                        await transports[endpoint.name].unary(
                            endpoint.descriptor, method.name, request, call
                        )
                    assert raised.value.kind is Kind.UNAUTHENTICATED, method.full_name
            seen += 1
    assert seen == 122 + 16
    for transport in transports.values():
        await transport.close()


async def test_every_hot_operation_refuses_a_call_without_a_token(service: Service) -> None:
    descriptor = entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"]
    place: Any = {"repository_id": "lake", "path": "a"}
    for operation, request in {
        "lookup": entry_service_pb2.Lookup(ref="main", **place),
        "stage": entry_service_pb2.Stage(branch_id="main", entry=entry(1), **place),
        "unstage": entry_service_pb2.Unstage(branch_id="main", **place),
    }.items():
        with pytest.raises(TarnError) as raised:
            await service.transport.operate(descriptor, operation, request, service.anonymous)
        assert raised.value.kind is Kind.UNAUTHENTICATED


async def test_an_analyst_reads_and_does_not_write(service: Service) -> None:
    await service.put("a", 1)
    ann = await service.as_user("ann", "Analyst")
    graveler = service.graveler
    found = await graveler.lookup(ann, "lake", "main", "a")
    assert unpack(found.entry).size == 1
    denied = Reason.ACCESS_DENIED
    assert await reason_of(service.stage("b", service.entry(1), call=ann)) is denied
    assert await reason_of(graveler.unstage(ann, "lake", "main", "a")) is denied
    assert await reason_of(graveler.create_branch(ann, "lake", "dev", "main")) is denied
    assert await reason_of(graveler.create_commit(ann, "lake", "main", "m")) is denied
    head = (await graveler.get_branch(ann, "lake", "main")).commit_id
    preview = await graveler.preview_merge(ann, "lake", "main", "main")
    assert preview.base_commit_id == head
    for work in (
        graveler.merge(ann, "lake", "main", "main", allow_empty=True),
        graveler.revert(ann, "lake", "main", "main", allow_empty=True),
        graveler.cherry_pick(ann, "lake", "main", "main", allow_empty=True),
        graveler.reset_branch(ann, "lake", "main"),
        graveler.move_branch(ann, "lake", "main", "main", expected_commit_id=head, force=True),
        graveler.restore_branch(ann, "lake", "gone"),
    ):
        assert await reason_of(work) is denied
    assert (await graveler.get_branch(ann, "lake", "main")).commit_id == head
    outcomes = await graveler.unstage_many(ann, "lake", "main", ["a"])
    assert outcomes[0] is not None
    assert outcomes[0].reason is denied
    assert await service.size("main", "a") == 1


async def test_a_reset_takes_a_prefix_or_a_path_and_never_an_empty_one(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for path in ("raw/1", "raw/2", "rest"):
        await service.put(path, 2)
    invalid = Reason.INVALID_ARGUMENT
    assert await reason_of(graveler.reset_branch(admin, "lake", "main", prefix="")) is invalid
    assert await reason_of(graveler.reset_branch(admin, "lake", "main", path="")) is invalid
    too_long = graveler.reset_branch(admin, "lake", "main", prefix="x" * 1025)
    assert await reason_of(too_long) is Reason.KEY_TOO_LONG
    with pytest.raises(ValueError, match="not both"):
        await graveler.reset_branch(admin, "lake", "main", prefix="raw/", path="rest")
    ann = await service.as_user("ann", "Analyst")
    denied = graveler.reset_branch(ann, "lake", "main", prefix="raw/")
    assert await reason_of(denied) is Reason.ACCESS_DENIED
    assert await service.size("main", "raw/1") == 2

    await graveler.reset_branch(admin, "lake", "main", path="raw/1")
    gone = graveler.lookup(admin, "lake", "main", "raw/1")
    assert await reason_of(gone) is Reason.ENTRY_NOT_FOUND
    assert await service.size("main", "raw/2") == 2
    await graveler.reset_branch(admin, "lake", "main", prefix="raw/")
    left = await graveler.diff_uncommitted(admin, "lake", "main")
    assert "rest" in left.paths
    assert not [path for path in left.paths if path.startswith("raw/")]


async def test_a_conditional_stage_is_judged_with_the_write(service: Service) -> None:
    named = [service.entry(n, f"op-{n}") for n in (1, 2)]
    new = WriteCondition(if_none_match=True)
    assert await service.stage("a", named[0], condition=new) is False
    refused = service.stage("a", named[1], condition=new)
    assert await reason_of(refused) is Reason.PRECONDITION_FAILED
    later = pack(replace(unpack(named[0]), mtime_us=1))
    assert await service.stage("a", later, condition=new) is True
    match = WriteCondition(if_match=etag_of(named[0]))
    assert await service.stage("a", named[1], condition=match) is False
    assert await service.size("main", "a") == 2
    nameless = service.stage("b", service.entry(1), condition=new)
    assert await reason_of(nameless) is Reason.INVALID_ARGUMENT
    needless = service.stage("b", named[0])
    assert await reason_of(needless) is Reason.INVALID_ARGUMENT
    endless = WriteCondition(if_match="x" * 129)
    long = service.stage("b", named[0], condition=endless)
    assert await reason_of(long) is Reason.INVALID_ARGUMENT


async def test_branch_tag_commit_and_diff_agree(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await service.put("b", 1)
    first = (await graveler.create_commit(admin, "lake", "main", "first")).commit
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.create_tag(admin, "lake", "v1", "main")
    await service.put("b", 2, "dev")
    await service.put("c", 3, "dev")
    await graveler.unstage(admin, "lake", "dev", "a")
    pending = await graveler.diff_uncommitted(admin, "lake", "dev")
    assert pending == ChangesPage(
        ["a", "b", "c"],
        [service.entry(1), service.entry(1), b""],
        [b"", service.entry(2), service.entry(3)],
        "",
        left_commit_id=first.commit_id,
    )
    second = (await graveler.create_commit(admin, "lake", "dev", "second")).commit
    between = await graveler.diff_refs(admin, "lake", "v1", "dev")
    assert between == replace(pending, right_commit_id=second.commit_id)
    log = (await graveler.list_commits(admin, "lake", "dev")).commits
    assert [commit.message for commit in log] == ["second", "first", "Repository created"]
    assert log[1].commit_id == first.commit_id
    assert second.parent_ids == [first.commit_id]
    assert await service.size("v1", "b") == 1
    assert await service.size("dev~1", "a") == 1
    assert await service.size(second.commit_id[:16], "c") == 3


async def test_a_preview_pages_through_the_conflicts_of_the_commits_that_it_read(
    service: Service,
) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    for branch, size in (("main", 1), ("dev", 2)):
        for path in "abcde":
            await service.put(path, size, branch)
        await graveler.create_commit(admin, "lake", branch, "m")
    raised = merge_service_pb2.ConflictChoice(
        pattern="b", side=merge_service_pb2.MERGE_SIDE_DESTINATION
    )
    preview = await graveler.preview_merge(
        admin, "lake", "main", "dev", choices=[raised], page_size=1
    )
    assert (preview.conflict_count, preview.next_after) == (4, "a")
    # A branch that moves between two pages mixes nothing in.
    await graveler.merge(
        admin, "lake", "dev", "main", default_side=merge_service_pb2.MERGE_SIDE_SOURCE
    )
    pages = graveler.all_conflicts(lambda: admin, "lake", preview, choices=[raised], page_size=1)
    found = [each async for each in pages]
    assert [each.path for each in found] == ["a", "c", "d", "e"]
    assert {each.base_entry for each in found} == {b""}
    assert {each.source_entry for each in found} == {service.entry(2)}
    assert {each.destination_entry for each in found} == {service.entry(1)}


async def test_the_merge_bases_of_two_refs_are_found(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")

    async def found() -> list[str]:
        answer = await graveler.find_merge_base(admin, "lake", "main", "dev")
        heads = [await graveler.get_branch(admin, "lake", name) for name in ("main", "dev")]
        assert [each.commit_id for each in heads] == [
            answer.destination_commit_id,
            answer.source_commit_id,
        ]
        return list(answer.base_commit_ids)

    async def commit(branch: str) -> str:
        made = await graveler.create_commit(admin, "lake", branch, branch, allow_empty=True)
        return made.commit.commit_id

    start = (await graveler.get_commit(admin, "lake", "main")).commit_id
    assert await found() == [start]
    ours, theirs = await commit("main"), await commit("dev")
    assert await found() == [start]
    # Each branch merges the commit that the other one had: two merge bases.
    await graveler.merge(admin, "lake", "main", theirs)
    await graveler.merge(admin, "lake", "dev", ours)
    assert sorted(await found()) == sorted([ours, theirs])
    await graveler.merge(admin, "lake", "dev", "main")
    assert await found() == [(await graveler.get_branch(admin, "lake", "main")).commit_id]
    lost = graveler.find_merge_base(admin, "lake", "main", "nowhere")
    assert await reason_of(lost) is Reason.REF_NOT_FOUND


async def test_a_squash_that_is_sent_twice_makes_one_commit(service: Service) -> None:
    """It leaves no trace of its source in the history, so only the listing can tell."""
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await service.put("a", 1, "dev")
    await graveler.create_commit(admin, "lake", "dev", "m")
    first = await graveler.merge(admin, "lake", "main", "dev", squash=True)
    second = graveler.merge(admin, "lake", "main", "dev", squash=True)
    assert await reason_of(second) is Reason.NOTHING_TO_MERGE
    assert (await graveler.get_branch(admin, "lake", "main")).commit_id == first.commit_id
    empty = await graveler.merge(admin, "lake", "main", "dev", squash=True, allow_empty=True)
    assert empty.parent_ids == [first.commit_id]


async def test_a_fast_forward_is_not_squashed(service: Service) -> None:
    """It would bring the history that a squash is to leave out."""
    graveler, admin = service.graveler, service.admin
    await graveler.create_branch(admin, "lake", "dev", "main")
    await service.put("a", 1, "dev")
    await graveler.create_commit(admin, "lake", "dev", "m")
    both = graveler.merge(admin, "lake", "main", "dev", squash=True, fast_forward_only=True)
    assert await reason_of(both) is Reason.INVALID_ARGUMENT
    assert await reason_of(graveler.lookup(admin, "lake", "main", "a")) is Reason.ENTRY_NOT_FOUND


async def test_missing_and_read_only_refs_are_refused(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    commit = (await graveler.create_commit(admin, "lake", "main", "m")).commit
    await graveler.create_tag(admin, "lake", "v1", "main")
    for ref, reason in (
        ("v1", Reason.REF_NOT_WRITABLE),
        (commit.commit_id, Reason.REF_NOT_WRITABLE),
        ("main~1", Reason.REF_NOT_WRITABLE),
        ("nope", Reason.BRANCH_NOT_FOUND),
    ):
        assert await reason_of(service.stage("x", service.entry(1), ref)) is reason
        assert await reason_of(graveler.unstage(admin, "lake", ref, "a")) is reason
    assert await reason_of(graveler.lookup(admin, "lake", "nope", "a")) is Reason.REF_NOT_FOUND
    assert await reason_of(graveler.lookup(admin, "lake", "main~9", "a")) is Reason.REF_NOT_FOUND
    assert await reason_of(graveler.lookup(admin, "lake", "main", "x")) is Reason.ENTRY_NOT_FOUND
    assert await reason_of(graveler.lookup(admin, "none", "main", "a")) is (
        Reason.REPOSITORY_NOT_FOUND
    )


async def test_an_entry_for_another_instance_of_a_repository_is_refused(service: Service) -> None:
    stage = service.graveler.stage(service.admin, "lake", "0" * 32, "main", "a", service.entry(1))
    assert await reason_of(stage) is Reason.REPOSITORY_NOT_FOUND


async def test_a_deleted_repository_is_gone_and_its_name_free(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await service.put("a", 1)
    await graveler.delete_repository(admin, "lake")
    assert await reason_of(graveler.get_repository(admin, "lake")) is Reason.REPOSITORY_NOT_FOUND
    await graveler.create_repository(admin, "lake")
    assert await reason_of(graveler.lookup(admin, "lake", "main", "a")) is Reason.ENTRY_NOT_FOUND


async def test_a_namespace_serves_one_repository_for_good(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_repository(admin, "one", storage_namespace="mem://here")
    again = graveler.create_repository(admin, "two", storage_namespace="mem://here")
    assert await reason_of(again) is Reason.REPOSITORY_EXISTS


async def test_a_default_branch_stays(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    with pytest.raises(TarnError) as raised:
        await graveler.delete_branch(admin, "lake", "main")
    assert raised.value.kind is Kind.FAILED_PRECONDITION
    await graveler.create_branch(admin, "lake", "dev", "main")
    await graveler.delete_branch(admin, "lake", "dev")
    assert await reason_of(graveler.get_branch(admin, "lake", "dev")) is Reason.BRANCH_NOT_FOUND


async def test_branches_and_tags_do_not_share_names(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    await graveler.create_tag(admin, "lake", "v1", "main")
    assert await reason_of(graveler.create_branch(admin, "lake", "v1", "main")) is (
        Reason.TAG_EXISTS
    )
    assert await reason_of(graveler.create_tag(admin, "lake", "main", "main")) is (
        Reason.BRANCH_EXISTS
    )
    assert [t.tag_id for t in (await graveler.list_tags(admin, "lake")).tags] == ["v1"]
    await graveler.delete_tag(admin, "lake", "v1")
    assert await reason_of(graveler.get_tag(admin, "lake", "v1")) is Reason.TAG_NOT_FOUND


async def test_an_upload_s_answer_is_replayed_and_never_staged_again(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    upload = await graveler.create_upload(admin, "lake", "main", "big", template=entry(0))
    begun = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    made = entry(9, upload.upload_id)
    whole = pack(replace(unpack(made), address=upload.address))
    busy = graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    assert await reason_of(busy) is Reason.UPLOAD_BUSY
    abort = graveler.abort_upload(admin, "lake", upload.upload_id)
    assert await reason_of(abort) is Reason.UPLOAD_BUSY
    large = pack(replace(unpack(whole), content_type="x" * ENTRY_BYTES_MAX))
    refused = graveler.finish_complete_upload(admin, "lake", upload.upload_id, begun.claim, large)
    assert await reason_of(refused) is Reason.METADATA_TOO_LARGE
    await graveler.finish_complete_upload(admin, "lake", upload.upload_id, begun.claim, whole)
    assert await service.size("main", "big") == 9
    await service.put("big", 10)
    again = await graveler.begin_complete_upload(admin, "lake", upload.upload_id, bytes(32))
    assert again.completed_entry == whole
    assert again.claim == b""
    assert await service.size("main", "big") == 10
    await graveler.finish_complete_upload(admin, "lake", upload.upload_id, begun.claim, whole)
    assert await service.size("main", "big") == 10


async def test_uploads_are_listed_until_they_end(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    made = [
        await graveler.create_upload(admin, "lake", "main", path, template=entry(0))
        for path in ("b", "a!", "a", "a")
    ]
    page = await graveler.list_uploads(admin, "lake", "main")
    assert [upload.path for upload in page.uploads] == ["a", "a", "a!", "b"]
    first = page.uploads[0]
    rest = await graveler.list_uploads(
        admin, "lake", "main", after_path="a", after_upload_id=first.upload_id
    )
    assert [upload.path for upload in rest.uploads] == ["a", "a!", "b"]
    after_a = await graveler.list_uploads(admin, "lake", "main", after_path="a")
    assert [upload.path for upload in after_a.uploads] == ["a!", "b"]
    for upload in made:
        await graveler.abort_upload(admin, "lake", upload.upload_id)
    assert not (await graveler.list_uploads(admin, "lake", "main")).uploads
    gone = graveler.get_upload(admin, "lake", "main", "b", made[0].upload_id)
    assert await reason_of(gone) is Reason.UPLOAD_NOT_FOUND


async def test_concurrent_puts_and_commits_lose_nothing(service: Service) -> None:
    async def write(writer: int) -> None:
        for number in range(20):
            await service.put(f"{writer}/{number}", 1)

    async def commit() -> None:
        for _ in range(10):
            try:
                await service.graveler.create_commit(service.admin, "lake", "main", "c")
            except TarnError as error:
                if error.reason is not Reason.NOTHING_TO_COMMIT:
                    raise
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for writer in range(5):
            group.create_task(write(writer))
        group.create_task(commit())
        group.create_task(commit())
    page = await service.graveler.list_entries(service.admin, "lake", "main")
    assert len(page.entries) == 100


async def test_listings_begin_after_a_name(service: Service) -> None:
    graveler, admin = service.graveler, service.admin
    for name in ("a", "b", "c"):
        await graveler.create_branch(admin, "lake", name, "main")
        await graveler.create_tag(admin, "lake", f"t-{name}", "main")
        await graveler.create_repository(admin, f"sea-{name}")
    page = await graveler.list_branches(admin, "lake", after="a", page_size=1)
    assert [each.branch_id for each in page.branches] == ["b"]
    # The token belongs to this listing, and leads on.
    rest = {"page_token": page.next_page_token, "page_size": 9}
    more = await graveler.list_branches(admin, "lake", after="a", **rest)  # type: ignore[arg-type]
    assert [each.branch_id for each in more.branches] == ["c", "main"]
    with pytest.raises(TarnError, match="page_token"):
        await graveler.list_branches(admin, "lake", **rest)  # type: ignore[arg-type]
    tags = (await graveler.list_tags(admin, "lake", after="t-a", prefix="t-")).tags
    assert [each.tag_id for each in tags] == ["t-b", "t-c"]
    found = (await graveler.list_repositories(admin, after="sea-a")).repositories
    assert [each.repository_id for each in found] == ["sea-b", "sea-c"]
