"""Every ref that a request names is authorised, and a page token is valid only for its caller.

The built-in roles cover a whole repository; the caller here has a policy for one sandbox in it.
"""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest
from google.protobuf.descriptor import Descriptor, MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from graveler_service import Service, reason_of
from lake import entry
from tests.support.plausible import NESTED

from tarn.client.collections import CollectionClient
from tarn.core.access import policy
from tarn.core.access.policy import Role, Statement
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, UserId
from tarn.core.quota import Limits, QuotaKind
from tarn.rpc.rules import OPERATE
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.pagination import Argument, PageTokens
from tarn_auth import authorizer
from tarn_graveler.graph.walk import LISTED
from tarn_graveler.handlers.log import said_position
from tarn_graveler.views.log import Position
from tarn_proto.graveler.v1 import entry_service_pb2
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb
from tarn_proto.graveler.v1.collection_service_pb2 import COLLECTION_PHASE_MARK
from tarn_proto.graveler.v1.merge_service_pb2 import PreviewMergeRequest

REFS = {
    "ref", "left_ref", "right_ref", "source_ref", "destination_ref", "target_ref", "branch_id", "tag_id",
    "since_ref", "exclude_ref", "source_branch_id", "destination_branch_id",
}  # fmt: skip
"""Fields that name a branch, a tag, a commit or an expression of them."""

OTHERS = {
    "repository_id", "instance_uid", "storage_namespace", "client_namespace", "default_branch_id", "path", "paths",
    "prefix", "delimiter", "after", "page_size", "page_token", "first_parent", "message", "metadata", "allow_empty",
    "template", "checksum_algorithm", "is_full_object_checksum", "upload_id", "part", "after_part_number", "is_erasure",
    "after_path", "after_upload_id", "manifest_hash", "claim", "entry", "condition",
    "symmetric", "since", "until", "committer", "prefixes", "author_time",
    "choices", "default_side", "squash", "fast_forward_only", "parent_number", "expected_commit_id", "force",
    "from_merge_base", "names_only", "is_background", "is_revert",
    "if_match", "rules_json", "hidden_patterns", "protections", "read_only", "include_hidden", "expected_branch_id",
    "restore_id", "lines", "modify_time",
    "task_id", "all_users", "timeout_ms", "rows_max", "validate_only",
    "start_id", "after_sequence", "wait_ms", "after_repository_id", "after_branch_id",
    "run_id", "mark_run_id", "phase", "block_ids", "is_complete", "totals", "hold", "metarange_ids", "commits", "tags",
    "part_count", "rewritable", "parts", "token", "size_bytes", "etag", "kind", "name", "limits", "is_copy_source",
    "is_new_address", "with_data", "grace", "purged_count", "purged_bytes", "time_to_live",
    "bucket_id", "views_only", "public_read", "plan_id", "addresses", "address", "resume", "duration_s",
    "may_be_staged",
    "report", "month", "source", "total",
    "pull_request_id", "title", "description", "states", "author", "from_branch", "into_branch", "body", "verdict",
    "expected_source_commit_id", "expected_destination_commit_id", "reviewer", *NESTED,
}  # fmt: skip
"""Fields that name no ref. `upload_id` leads to the branch of the upload, see below."""

OPTIONAL = {
    *("CreateBranchRequest.source_ref", "CreateTagRequest.source_ref"),
    *("CreateBucketViewRequest.ref", "PointBucketViewRequest.ref"),
}
"""Fields that stand for the default branch if they are empty."""

COMPARED = {"GetUploadRequest.branch_id"}
"""Fields that are compared with the upload's own branch, which is authorised."""

SANDBOX, MAIN, TAG = "sandbox", "main", "sandbox-tag"
STATEMENTS = (
    Statement(True, ("WriteBuckets",), ("bucket/sales",)),
    Statement(True, ("WriteRules",), ("repository/lake",)),
    Statement(
        True,
        ("WriteRepo", "CompactRepo", "ManageCompaction", "EraseData"),
        ("repository/lake/branch/sandbox*", "repository/lake/tag/sandbox*"),
    ),
    Statement(
        True,
        ("ReadRepo",),
        ("repository/lake", "repository/lake/ref/sandbox*", "repository/lake/branch/sandbox*"),
    ),
)


@pytest.fixture
async def eve(service: Service, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A user who may do everything in a sandbox and nothing elsewhere."""

    def scoped(roles: tuple[Role, ...], user_id: UserId) -> tuple[Statement, ...]:
        return STATEMENTS if user_id == "eve" else policy.statements_of(roles, user_id)

    monkeypatch.setattr(authorizer, "statements_of", scoped)
    await service.put("secret", 7)
    await service.graveler.create_commit(service.admin, "lake", MAIN, "secrets")
    # An empty sandbox, created at the first commit.
    await service.graveler.create_branch(service.admin, "lake", SANDBOX, "main~1")
    return await service.as_user("eve", "Analyst")


async def outcome(work: Awaitable[Message | None]) -> Reason | None:
    """Returns the reason why a call, or one of its paths, is refused; None if it is not."""
    try:
        answer = await work
    except TarnError as error:
        return error.reason
    for each in getattr(answer, "outcomes", ()):
        if each.HasField("error"):
            return Reason(each.error.reason)
    return None


def methods(service: Service) -> Iterator[tuple[ServiceDescriptor, MethodDescriptor]]:
    for endpoint in service.endpoints:
        for method in endpoint.descriptor.methods:
            if method.name != OPERATE:
                yield endpoint.descriptor, method


def requests(service: Service) -> Iterator[tuple[Descriptor, Callable[[Message, Call], Any]]]:
    """Yields every request type of every rpc and operation of the stream, with a function that sends it."""
    for of, method in methods(service):

        def unary(request: Message, call: Call, of: Any = of, name: str = method.name) -> Any:
            return service.transport.unary(of, name, request, call)

        yield method.input_type, unary
        for nested in [each for each in method.input_type.fields if each.name in NESTED]:

            def wrapped(
                request: Message,
                call: Call,
                outer: Any = method.input_type,
                field: str = nested.name,
                unary: Any = unary,
            ) -> Any:
                return unary(GetMessageClass(outer)(**{field: request}), call)

            yield cast("Descriptor", nested.message_type), wrapped
    stream = entry_service_pb2.DESCRIPTOR.services_by_name["EntryService"]
    for field in entry_service_pb2.Operation.DESCRIPTOR.oneofs_by_name["operation"].fields:

        def operate(request: Message, call: Call, name: str = field.name) -> Any:
            return service.transport.operate(stream, name, request, call)

        yield cast("Descriptor", field.message_type), operate


def plausible(of: Descriptor, uid: str, refs: dict[str, str], upload_id: str = "") -> Message:
    """Returns a request that is valid except for permissions."""
    values: dict[str, Any] = {
        "repository_id": "lake",
        "bucket_id": "sales",
        "instance_uid": uid,
        "path": "a",
        "paths": ["a"],
        "entry": entry(1),
        "template": entry(0),
        "manifest_hash": bytes(32),
        "upload_id": upload_id,
        **refs,
    }
    known = {name: value for name, value in values.items() if name in of.fields_by_name}
    return GetMessageClass(of)(**known)


def in_sandbox(of: Descriptor) -> dict[str, str]:
    """Returns refs in the sandbox for a request; a ref to be created gets an unused name."""
    refs = {name: SANDBOX for name in of.fields_by_name if name in REFS}
    if of.name.startswith("Create") and "source_ref" in refs:
        refs |= {name: f"sandbox-{of.name}" for name in ("branch_id", "tag_id") if name in refs}
    if of.name in {"GetTagRequest", "DeleteTagRequest"}:
        refs["tag_id"] = TAG
    return refs


async def test_every_ref_of_every_request_is_authorised(service: Service, eve: Call) -> None:
    """A new rpc or field fails here until it is listed as a ref or not, and authorised if it is a ref."""
    uid = (await service.graveler.get_repository(service.admin, "lake")).instance_uid
    walked = set()
    for index, (of, send) in enumerate(requests(service)):
        fields = set(of.fields_by_name)
        assert fields <= REFS | OTHERS, f"{of.name}: say of {fields - REFS - OTHERS} if it is a ref"
        refs = in_sandbox(of)
        for name in refs:
            elsewhere = (
                ["main", "main~1", "main@", "main@{0}"] if name.endswith("ref") else ["main"]
            )
            if f"{of.name}.{name}" in OPTIONAL:
                elsewhere.append("")  # the default branch, which is main
            for ref in elsewhere:
                work = send(plausible(of, uid, {**refs, name: ref}), eve)
                allowed = {Reason.ACCESS_DENIED}
                if f"{of.name}.{name}" in COMPARED:
                    allowed.add(Reason.UPLOAD_NOT_FOUND)
                assert await outcome(work) in allowed, f"{of.name}.{name} = {ref!r}"
                walked.add((index, of.name, name))
        # The refusals above were caused by those refs: in the sandbox nothing is denied.
        if refs:
            told = await outcome(send(plausible(of, uid, refs), eve))
            assert told is not Reason.ACCESS_DENIED, of.name
            await service.graveler.set_default_branch(service.admin, "lake", MAIN)
    assert len(walked) == 72, sorted(walked)


async def test_an_upload_is_authorised_by_its_own_branch(service: Service, eve: Call) -> None:
    upload = await service.graveler.create_upload(
        service.admin, "lake", MAIN, "a", template=entry(0)
    )
    walked = 0
    for of, send in requests(service):
        if "upload_id" in of.fields_by_name:
            request = plausible(of, "", in_sandbox(of), upload.upload_id)
            assert await outcome(send(request, eve)) is Reason.ACCESS_DENIED, of.name
            walked += 1
    assert walked == 7


async def test_main_cannot_be_read_through_a_branch_or_tag_of_it(
    service: Service, eve: Call
) -> None:
    graveler = service.graveler
    for source in ("main", "", "main~1", "main@", "main@{0}", "main@{0 seconds ago}"):
        branch = graveler.create_branch(eve, "lake", "sandbox-1", source)
        assert await reason_of(branch) is Reason.ACCESS_DENIED
        tag = graveler.create_tag(eve, "lake", "sandbox-1", source)
        assert await reason_of(tag) is Reason.ACCESS_DENIED
    made = (await graveler.get_branch(service.admin, "lake", MAIN)).commit_id
    by_id = graveler.create_branch(eve, "lake", "sandbox-1", made)
    assert await reason_of(by_id) is Reason.ACCESS_DENIED
    await graveler.create_branch(eve, "lake", "sandbox-1", SANDBOX)
    secret = graveler.lookup(eve, "lake", "sandbox-1", "secret")
    assert await reason_of(secret) is Reason.ENTRY_NOT_FOUND


async def test_a_merge_needs_read_permission_for_its_source_and_write_for_its_branch(
    service: Service, eve: Call
) -> None:
    """Otherwise a merge into a branch of one's own would show the content of any other."""
    graveler, denied = service.graveler, Reason.ACCESS_DENIED
    secrets = (await graveler.get_branch(service.admin, "lake", MAIN)).commit_id
    await graveler.create_branch(eve, "lake", "sandbox-1", SANDBOX)
    for ref in (MAIN, secrets):
        assert await reason_of(graveler.merge(eve, "lake", SANDBOX, ref)) is denied
        assert await reason_of(graveler.preview_merge(eve, "lake", SANDBOX, ref)) is denied
        assert await reason_of(graveler.preview_merge(eve, "lake", ref, SANDBOX)) is denied
        for sides in ((SANDBOX, ref), (ref, SANDBOX)):
            asked = graveler.preview_pick(eve, "lake", *sides, is_revert=True)
            assert await reason_of(asked) is denied
        assert await reason_of(graveler.find_merge_base(eve, "lake", SANDBOX, ref)) is denied
        assert await reason_of(graveler.find_merge_base(eve, "lake", ref, SANDBOX)) is denied
        assert await reason_of(graveler.cherry_pick(eve, "lake", SANDBOX, ref)) is denied
        assert await reason_of(graveler.revert(eve, "lake", SANDBOX, ref)) is denied
        wish: Any = {"repository_id": "lake", "branch_id": SANDBOX, "ref": ref}
        revert = graveler.start_revert(eve, merge_pb.RevertRequest(**wish))
        assert await reason_of(revert) is denied
        since = merge_pb.RevertRequest(**{**wish, "ref": SANDBOX, "since_ref": ref})
        assert await reason_of(graveler.start_revert(eve, since)) is denied
        pick = graveler.start_cherry_pick(eve, merge_pb.CherryPickRequest(**wish))
        assert await reason_of(pick) is denied
        move = graveler.move_branch(eve, "lake", SANDBOX, ref, expected_commit_id=secrets)
        assert await reason_of(move) is denied
    assert await reason_of(graveler.merge(eve, "lake", MAIN, SANDBOX)) is denied
    assert await reason_of(graveler.reset_branch(eve, "lake", MAIN)) is denied
    # Within the sandbox all of it is allowed.
    await service.stage("a", service.entry(1), "sandbox-1", call=eve)
    await graveler.create_commit(eve, "lake", "sandbox-1", "a")
    merged = await graveler.merge(eve, "lake", SANDBOX, "sandbox-1")
    assert len(merged.parent_ids) == 2
    assert await reason_of(graveler.lookup(eve, "lake", SANDBOX, "secret")) is (
        Reason.ENTRY_NOT_FOUND
    )


# ---- page tokens


async def commits(service: Service, call: Call, ref: str, token: str = "") -> Any:
    page = {"page_size": 1, "page_token": token}
    return await service.graveler.list_commits(call, "lake", ref, **page)  # type: ignore[arg-type]


async def refused(work: Awaitable[object]) -> bool:
    with pytest.raises(TarnError) as raised:
        await work
    found = raised.value
    return (found.kind, found.reason) == (Kind.INVALID, Reason.INVALID_PAGE_TOKEN)


async def test_a_page_token_serves_only_its_caller_and_arguments(
    service: Service, eve: Call
) -> None:
    ann = await service.as_user("ann", "Analyst")
    token = (await commits(service, ann, MAIN)).next_page_token
    assert [each.message for each in (await commits(service, ann, MAIN, token)).commits] == [
        "Repository created"
    ]
    again = await service.auth.create_credential(service.admin, user_id="ann")
    assert again is not None  # another key of the same user is the same caller
    assert await refused(commits(service, service.admin, MAIN, token))
    assert await refused(commits(service, ann, SANDBOX, token))
    assert await refused(commits(service, eve, SANDBOX, token))
    assert await reason_of(commits(service, eve, MAIN, token)) is Reason.ACCESS_DENIED
    first = service.graveler.list_commits(ann, "lake", MAIN, first_parent=True, page_token=token)
    assert await refused(first)


async def test_a_forged_page_token_is_refused(service: Service, eve: Call) -> None:
    """The token of history names commits: with a forged token a caller could read any of them."""
    made = (await service.graveler.get_branch(service.admin, "lake", MAIN)).commit_id
    arguments: dict[str, Argument] = {
        "repository": "lake",
        "ref": SANDBOX,
        "first_parent": False,
        "exclude_ref": "",
        "symmetric": False,
        "since": b"-",
        "until": b"-",
        "committer": "",
        "paths": "[[], []]",
    }
    for key in (bytes(32), bytes(range(32))):
        forged = PageTokens((key,), "eve", "CommitService.ListCommits", **arguments).encode(
            said_position(Position(((CommitId(made), LISTED),)))
        )
        assert await refused(commits(service, eve, SANDBOX, forged))
    await service.graveler.create_commit(service.admin, "lake", SANDBOX, "own", allow_empty=True)
    own = (await commits(service, eve, SANDBOX)).next_page_token
    packed = base64.urlsafe_b64decode(own + "=" * (-len(own) % 4))
    other = said_position(Position(((CommitId(made), LISTED),))).encode()
    assert len(packed[17:]) == len(other)
    assert packed[17:] != other
    swapped = base64.urlsafe_b64encode(packed[:17] + other).decode()
    assert await refused(commits(service, eve, SANDBOX, swapped))
    assert (await commits(service, eve, SANDBOX, own)).commits


async def test_every_listing_s_token_is_of_its_caller(service: Service, eve: Call) -> None:
    """Checks every rpc that takes a page token."""
    ann = await service.as_user("ann", "Analyst")
    for name in ("a", "b"):
        await service.put(name, 1)
        await service.graveler.create_tag(service.admin, "lake", f"t{name}", MAIN)
        await service.graveler.create_branch(service.admin, "lake", f"b{name}", MAIN)
        await service.graveler.create_repository(service.admin, f"lake-{name}")
        limits = Limits(branches=9)
        await service.graveler.set_quota(
            service.admin, QuotaKind.REPOSITORY, f"lake-{name}", limits
        )
        await service.graveler.create_branch(service.admin, "lake", f"gone-{name}", MAIN)
        await service.graveler.delete_branch(service.admin, "lake", f"gone-{name}")
        await service.graveler.create_pull_request(
            service.admin, "lake", f"b{name}", MAIN, f"merge b{name}"
        )
        await service.graveler.comment_pull_request(service.admin, "lake", "1", name)
    walked = []
    for of, method in methods(service):
        fields = method.input_type.fields_by_name
        if "page_token" not in fields:
            continue
        refs = {"ref": MAIN, "left_ref": "main~1", "right_ref": MAIN, "branch_id": MAIN}
        refs["delimiter"] = "/"
        request: Any = plausible(
            method.input_type, "", {name: ref for name, ref in refs.items() if name in fields}
        )
        request.page_size = 1
        if method.name == "ListPullRequestEvents":
            request.pull_request_id = "1"
        if method.name == "ListCommits":
            request.ClearField("paths")
        if method.name == "DiffRefs":
            await service.graveler.create_commit(service.admin, "lake", MAIN, "two")
            await service.put("c", 1)
            await service.put("d", 1)
        if method.name == "ReadNamespace":
            request.repository_id, request.restore_id = "lake-a", "1"
            await begin_restore(service, "lake-a", "1")
        if method.name == "ListTasks":
            for source in ("ta", "tb"):
                wish = PreviewMergeRequest(
                    repository_id="lake", destination_ref=MAIN, source_ref=source
                )
                await service.graveler.start_preview(ann, wish)
        caller = ann
        if method.name in (
            "ListRoots",
            "ListHistory",
            "ListQuotas",
            "ListDoomedNamespaces",
            "ListStagedRows",
        ):  # only for admins
            caller = await service.as_user(f"adam-{method.name.lower()}", "Admin")
        if method.name in ("ListRoots", "ListStagedRows"):  # under one lease
            request.run_id = "a" * 32
            await CollectionClient(service.transport).begin(
                caller, "lake", request.run_id, COLLECTION_PHASE_MARK
            )
        page: Any = await service.transport.unary(of, method.name, request, caller)
        assert page.next_page_token, method.name
        request.page_token = page.next_page_token
        assert await refused(service.transport.unary(of, method.name, request, service.admin)), (
            method.name
        )
        await service.transport.unary(of, method.name, request, caller)
        walked.append(method.name)
    assert len(walked) == 23, walked


async def begin_restore(service: Service, name: str, restore_id: str) -> None:
    """Replaces a repository by a bare one with its namespace."""
    graveler, admin = service.graveler, service.admin
    place = (await graveler.get_repository(admin, name)).storage_namespace
    await graveler.delete_repository(admin, name)
    await graveler.begin_restore(admin, name, place, default_branch_id=MAIN, restore_id=restore_id)


async def test_who_may_not_read_every_ref_gets_no_dump(service: Service, eve: Call) -> None:
    graveler = service.graveler
    assert await reason_of(graveler.read_dump(eve, "lake")) is Reason.ACCESS_DENIED
    await begin_restore(service, "lake", "1")
    assert await reason_of(graveler.read_namespace(eve, "lake", "1")) is Reason.ACCESS_DENIED
