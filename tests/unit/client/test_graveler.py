from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from tests.support.servers.toy_service import Toy, call_in, failure

from tarn.client.graveler import GravelerClient, ListingPage, Located
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import Limits, QuotaKind
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.system import SystemClock
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_to_operation
from tarn.rpc.wire.methods import unary_methods
from tarn_proto.graveler.v1 import (
    branch_service_pb2,
    commit_service_pb2,
    compaction_service_pb2,
    diff_service_pb2,
    merge_service_pb2,
    pull_request_service_pb2,
    quota_service_pb2,
    reflog_service_pb2,
    repository_service_pb2,
    settings_service_pb2,
    tag_service_pb2,
    task_service_pb2,
    upload_service_pb2,
)
from tarn_proto.graveler.v1 import entry_service_pb2 as pb


class Recorder:
    """A transport that records requests and returns given answers."""

    def __init__(self, answer: Callable[[str], Message]) -> None:
        self.requests: list[tuple[str, Message]] = []
        self.answer = answer

    async def unary(
        self, service: ServiceDescriptor, method: str, request: Message, _call: Call
    ) -> Message:
        self.requests.append((f"{service.name}/{method}", request))
        return self.answer(f"{service.name}/{method}")

    async def operate(
        self, _service: ServiceDescriptor, operation: str, request: Message, _call: Call
    ) -> Message:
        self.requests.append((operation, request))
        return self.answer(operation)

    async def close(self) -> None:
        return


FILES = [
    branch_service_pb2,
    commit_service_pb2,
    compaction_service_pb2,
    diff_service_pb2,
    merge_service_pb2,
    pb,
    reflog_service_pb2,
    repository_service_pb2,
    settings_service_pb2,
    quota_service_pb2,
    tag_service_pb2,
    task_service_pb2,
    upload_service_pb2,
]
METHODS = {
    f"{service.name}/{name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for name, method in unary_methods(service).items()
}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(lambda name: METHODS[name].response_type())


@pytest.fixture
async def toy() -> AsyncIterator[tuple[Toy, GravelerClient]]:
    toy = Toy()
    transport = InProcessTransport([toy.endpoint], SystemClock())
    yield toy, GravelerClient(transport)
    await transport.close()


async def test_lookup_gives_the_entry_and_where_its_block_lives(
    toy: tuple[Toy, GravelerClient],
) -> None:
    assert await toy[1].lookup(call_in(), "repo", "main", "a/b") == Located(b"a/b", "local://toy")


async def test_errors_of_graveler_pass(toy: tuple[Toy, GravelerClient]) -> None:
    client = toy[1]
    for work in (
        client.lookup(call_in(), "repo", "main", "fail"),
        client.stage(call_in(), "repo", "uid", "main", "fail", b"packed"),
        client.unstage(call_in(), "repo", "main", "fail"),
        client.list_entries(call_in(), "repo", "main", prefix="fail"),
    ):
        assert (await failure(work)).reason is Reason.ENTRY_NOT_FOUND


async def test_each_write_and_read_is_an_operation_of_its_own() -> None:
    answers: dict[str, Message] = {
        "lookup": pb.LookupResult(),
        "stage": pb.StageResult(),
        "unstage": pb.UnstageResult(),
    }
    recorder = Recorder(answers.__getitem__)
    client = GravelerClient(recorder)
    await client.lookup(call_in(), "repo", "main~1", "a")
    await client.stage(call_in(), "repo", "uid", "main", "b", b"packed")
    await client.unstage(call_in(), "repo", "main", "c")

    stage = pb.Stage(
        repository_id="repo", instance_uid="uid", branch_id="main", path="b", entry=b"packed"
    )
    assert recorder.requests == [
        ("lookup", pb.Lookup(repository_id="repo", ref="main~1", path="a")),
        ("stage", stage),
        ("unstage", pb.Unstage(repository_id="repo", branch_id="main", path="c")),
    ]


async def test_result_of_another_kind_acknowledges_nothing() -> None:
    client = GravelerClient(Recorder(lambda _: pb.LookupResult()))
    error = await failure(client.stage(call_in(), "repo", "uid", "main", "a", b"packed"))
    assert error.kind is Kind.INTERNAL


async def test_a_listing_of_uneven_columns_is_refused() -> None:
    page = pb.ListEntriesResponse(paths=["a", "b"], packed_entries=[b"packed"])
    error = await failure(
        GravelerClient(Recorder(lambda _: page)).list_entries(call_in(), "repo", "main")
    )
    assert error.kind is Kind.INTERNAL


async def test_changes_of_uneven_columns_are_refused() -> None:
    def answer(name: str) -> Message:
        return METHODS[name].response_type(paths=["a", "b"], left_entries=[b"packed", b""])

    client = GravelerClient(Recorder(answer))
    for work in (
        client.diff_refs(call_in(), "repo", "a", "b"),
        client.diff_uncommitted(call_in(), "repo", "main"),
    ):
        assert (await failure(work)).kind is Kind.INTERNAL


async def test_kinds_of_changes_must_be_as_many_as_paths() -> None:
    added = commit_service_pb2.DIFF_KIND_ADDED
    for kinds, entries in (([added], []), ([added, added], [b"", b""])):
        answer = commit_service_pb2.DiffRefsResponse(
            paths=["a", "b"], kinds=kinds, left_entries=entries, right_entries=entries
        )
        client = GravelerClient(Recorder(lambda _, answer=answer: answer))  # type: ignore[misc]
        work = client.diff_refs(call_in(), "repo", "a", "b", names_only=True)
        assert (await failure(work)).kind is Kind.INTERNAL


async def test_listing_tells_common_prefixes_from_entries() -> None:
    page = pb.ListEntriesResponse(
        paths=["a/", "b"],
        packed_entries=[b"", b"packed"],
        next_page_token="next",
        storage_namespace="local://lake",
    )
    recorder = Recorder(lambda _: page)
    listing = await GravelerClient(recorder).list_entries(
        call_in(), "repo", "main", prefix="", delimiter="/", after="0", page_size=2, page_token="t"
    )

    assert listing == ListingPage(["a/", "b"], [b"", b"packed"], "next", "local://lake")
    assert recorder.requests[0][1] == pb.ListEntriesRequest(
        repository_id="repo", ref="main", delimiter="/", after="0", page_size=2, page_token="t"
    )


async def test_unstage_many_has_an_outcome_for_each_path() -> None:
    moved = TarnError(Kind.CONFLICT, Reason.REF_MOVED, "moved")
    outcomes = [pb.UnstageOutcome(), pb.UnstageOutcome(error=error_to_operation(moved))]
    client = GravelerClient(Recorder(lambda _: pb.UnstageEntriesResponse(outcomes=outcomes)))

    done, failed = await client.unstage_many(call_in(), "repo", "main", ["a", "b"])

    assert done is None
    assert failed is not None
    assert (failed.kind, failed.reason) == (Kind.CONFLICT, Reason.REF_MOVED)


async def test_unstage_many_does_not_guess_missing_outcomes() -> None:
    client = GravelerClient(Recorder(lambda _: pb.UnstageEntriesResponse()))
    error = await failure(client.unstage_many(call_in(), "repo", "main", ["a"]))
    assert error.kind is Kind.INTERNAL


async def test_answer_of_another_type_is_not_believed() -> None:
    client = GravelerClient(Recorder(lambda _: pb.StageResult()))
    assert (await failure(client.get_repository(call_in(), "repo"))).kind is Kind.INTERNAL


SIDE = merge_service_pb2.MERGE_SIDE_SOURCE
DECIDED: Any = {
    "choices": [merge_service_pb2.ConflictChoice(pattern="raw/**", side=SIDE)],
    "default_side": merge_service_pb2.MERGE_SIDE_DESTINATION,
}
WRITTEN: Any = {"message": "why", "metadata": {"a": "b"}}


async def test_conflicts_are_read_to_the_end_from_the_commits_of_the_preview() -> None:
    """An empty page before the end is not the end, and a branch that moves meanwhile is not read again."""

    def page(paths: list[str], next_after: str) -> merge_service_pb2.PreviewMergeResponse:
        conflicts = [merge_service_pb2.MergeConflict(path=path) for path in paths]
        return merge_service_pb2.PreviewMergeResponse(
            source_commit_id="s",
            destination_commit_id="d",
            conflicts=conflicts,
            next_after=next_after,
        )

    rest = iter([page([], "k"), page(["x"], "")])
    recorder = Recorder(lambda _: next(rest))
    calls = iter([call_in(), call_in()])
    found = GravelerClient(recorder).all_conflicts(
        lambda: next(calls), "repo", page(["a", "b"], "b"), **DECIDED, page_size=2
    )

    assert [each.path async for each in found] == ["a", "b", "x"]
    common: Any = {
        "repository_id": "repo",
        "destination_ref": "d",
        "source_ref": "s",
        "page_size": 2,
    }
    assert [request for _, request in recorder.requests] == [
        merge_service_pb2.PreviewMergeRequest(**common, **DECIDED, after=after)
        for after in ("b", "k")
    ]


async def ask_for_commits(client: GravelerClient, call: Call) -> None:
    await client.create_commit(
        call,
        "repo",
        "main",
        "why",
        metadata={"a": "b"},
        allow_empty=True,
        author_time=Timestamp(seconds=1),
    )
    await client.get_commit(call, "repo", "main")
    await client.measure_ref(call, "repo", "main")
    await client.list_commits(
        call,
        "repo",
        "main",
        page_size=2,
        page_token="t",
        first_parent=True,
        exclude_ref="v1",
        symmetric=True,
        since=Timestamp(seconds=1),
        until=Timestamp(seconds=2),
        committer="ann",
        paths=["p"],
        prefixes=["p/"],
    )
    await client.annotate_paths(
        call, "repo", "main", prefix="p", after="a", page_size=2, page_token="t"
    )
    pages: Any = {"prefix": "p", "page_size": 2, "page_token": "t"}
    listed: Any = {**pages, "after": "q", "names_only": True}
    await client.diff_refs(call, "repo", "a", "b", **listed, from_merge_base=True)
    await client.diff_uncommitted(call, "repo", "main", **listed)
    await client.summarize_diff(
        call, "repo", "a", "b", **pages, delimiter="/", from_merge_base=True
    )
    await client.summarize_uncommitted(call, "repo", "main", **pages, delimiter="/")


async def ask_for_tasks(client: GravelerClient, call: Call) -> None:
    merge = merge_service_pb2.MergeRequest(repository_id="repo", branch_id="dev", source_ref="main")
    await client.start_merge(call, merge, task_id="t", timeout_ms=5)
    preview = merge_service_pb2.PreviewMergeRequest(repository_id="repo", source_ref="main")
    await client.start_preview(call, preview, task_id="t", timeout_ms=5)
    wish = commit_service_pb2.CreateCommitRequest(repository_id="repo", branch_id="main")
    await client.start_commit(call, wish, task_id="t", timeout_ms=5)
    revert = merge_service_pb2.RevertRequest(repository_id="repo", branch_id="dev", ref="main")
    await client.start_revert(call, revert, task_id="t", timeout_ms=5)
    pick = merge_service_pb2.CherryPickRequest(repository_id="repo", branch_id="dev", ref="main")
    await client.start_cherry_pick(call, pick, task_id="t", timeout_ms=5)
    asked = pull_request_service_pb2.MergePullRequestRequest(repository_id="repo")
    await client.start_pull_request_merge(call, asked, task_id="t", timeout_ms=5)
    await client.get_task(call, "repo", "t")
    await client.list_tasks(call, "repo", all_users=True, page_size=2, page_token="t")
    await client.cancel_task(call, "repo", "t")
    await client.wait_task(call, "repo", "t", timeout_ms=5)


async def ask_for_merges(client: GravelerClient, call: Call) -> None:
    flags: Any = {"squash": True, "allow_empty": True, "fast_forward_only": True}
    flags["expected_commit_id"] = "c"
    await client.merge(call, "repo", "main", "dev", **DECIDED, **WRITTEN, **flags)
    await client.preview_merge(call, "repo", "main", "dev", **DECIDED, after="a", page_size=2)
    pick: Any = {"is_revert": True, "parent_number": 1, "page_size": 2}
    await client.preview_pick(call, "repo", "main", "dev", **pick)
    await client.find_merge_base(call, "repo", "main", "dev")
    options: Any = {**DECIDED, **WRITTEN, "parent_number": 1, "allow_empty": True}
    options["expected_commit_id"] = "c"
    await client.create_merge_branch(
        call, "repo", "try", "main", "dev", **DECIDED, **WRITTEN, allow_empty=True
    )
    await client.revert_range(call, "repo", "main", "v1", "dev", **options, squash=True)
    await client.cherry_pick(call, "repo", "main", "dev", **options)


async def ask_for_entries(client: GravelerClient, call: Call) -> None:
    await client.unstage_many(call, "repo", "main", [])
    await client.find_erased(call, "repo", "main", "a", bytes(16))
    await client.list_entries(
        call, "repo", "main", prefix="p", delimiter="/", after="q", page_token="t"
    )
    await client.create_upload(
        call,
        "repo",
        "main",
        "a",
        template=b"t",
        checksum_algorithm="CRC32",
        is_full_object_checksum=True,
    )
    await client.get_upload(call, "repo", "main", "a", "u")
    await client.record_upload_part(call, "repo", "u", upload_service_pb2.UploadPart(part_number=1))
    await client.list_upload_parts(call, "repo", "u", after_part_number=1, page_size=2)
    await client.list_uploads(
        call, "repo", "main", prefix="p", after_path="a", after_upload_id="u", page_size=2
    )
    await client.begin_complete_upload(call, "repo", "u", b"hash", b"claim")
    await client.finish_complete_upload(call, "repo", "u", b"claim", b"packed", parts=b"p")
    await client.reopen_upload(call, "repo", "u", b"claim", may_be_staged=True)
    await client.abort_upload(call, "repo", "u")


async def test_every_rpc_of_graveler_has_its_method(recorder: Recorder) -> None:
    client, call = GravelerClient(recorder), call_in()
    await client.create_repository(
        call, "repo", storage_namespace="s", default_branch_id="main", client_namespace="c"
    )
    await client.get_repository(call, "repo")
    await client.list_repositories(call, prefix="r", page_size=2, page_token="t", after="a")
    await client.delete_repository(call, "repo", with_data=True)
    await client.get_settings(call, "repo")
    await client.set_quota(call, QuotaKind.USER, "ann", Limits(requests_per_second=1))
    await client.get_quota(call, QuotaKind.USER, "ann")
    await client.list_quotas(call, page_size=2, page_token="t")
    await client.report_requests(call, "2026-11", "5" * 32, 7)
    await client.get_request_counts(call)
    await client.get_retention(call, "repo")
    await client.set_retention(call, "repo", "{}", if_match="e")
    protection = settings_service_pb2.Protection(pattern="main", blocked=["CHANGE_KIND_WRITE"])
    await client.set_rules(
        call, "repo", protections=[protection], hidden_patterns=["t*"], if_match="e"
    )
    await client.set_read_only(call, "repo", True, if_match="e")
    await client.set_metadata(call, "repo", {"a": "b"}, if_match="e")
    await client.set_default_branch(call, "repo", "dev", expected_branch_id="main")
    await client.create_branch(call, "repo", "dev", "main")
    await client.set_branch_expiry(call, "repo", "dev", 60)
    await client.get_branch(call, "repo", "dev")
    await client.list_branches(
        call,
        "repo",
        prefix="d",
        page_size=2,
        page_token="t",
        include_hidden=True,
        after="a",
    )
    await client.delete_branch(call, "repo", "dev")
    await client.reset_branch(call, "repo", "dev", prefix="raw/")
    await client.move_branch(call, "repo", "dev", "main", expected_commit_id="c", force=True)
    await client.list_reflog(call, "repo", "dev", page_size=2, page_token="t")
    await client.list_deleted_branches(call, "repo", prefix="d", page_size=2, page_token="t")
    await client.restore_branch(call, "repo", "dev")
    await client.compact_branch(call, "repo", "dev", force=True, is_background=True)
    await client.staging_statistics(call, "repo", "dev", rows_max=5)
    await client.get_compaction_pause(call)
    assert await client.list_compactors(call) == []
    await client.begin_compaction_pause(call, 60)
    await client.end_compaction_pause(call)
    await ask_for_commits(client, call)
    await ask_for_tasks(client, call)
    await ask_for_merges(client, call)
    await ask_for_entries(client, call)
    await client.create_tag(call, "repo", "v1", "main")
    await client.get_tag(call, "repo", "v1")
    await client.list_tags(call, "repo", prefix="v", page_size=2, page_token="t", after="a")
    await client.delete_tag(call, "repo", "v1")

    assert {name for name, _ in recorder.requests} == METHODS.keys()
    for name, request in recorder.requests:
        unset = [
            field.name
            for field in request.DESCRIPTOR.fields
            if not getattr(request, field.name)
            and field.name != "paths"
            and not (field.containing_oneof and request.WhichOneof(field.containing_oneof.name))
        ]
        assert not unset, f"{name} never fills in {unset}"
