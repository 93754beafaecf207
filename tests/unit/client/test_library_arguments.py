"""Every argument of a method of `tarn.client` arrives in the request of its rpc."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message

from tarn.client import AsyncClient, ChangeKind, Protection, Side
from tarn.client.graveler import GravelerClient
from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.wire.call import Call

# grpc.aio shares one poller among the event loops of a process; one loop keeps tests apart from it.
pytestmark = pytest.mark.asyncio(loop_scope="session")

_TIME = datetime(2026, 11, 22, tzinfo=UTC)
_MERGING: dict[str, Any] = {
    "message": "m",
    "metadata": {"k": "v"},
    "choices": [("raw/**", Side.DESTINATION)],
    "default_side": Side.SOURCE,
    "allow_empty": True,
}
_CHANGING: dict[str, Any] = {**_MERGING, "expected_commit_id": "ab" * 32}
_PART: dict[str, Any] = {"prefix": "raw/", "page_size": 7}
_RULE = Protection("main", frozenset({ChangeKind.WRITE}), ("ann",), ("Admin",))

CASES: dict[str, tuple[Callable[[AsyncClient], Awaitable[object]], set[str]]] = {
    # Name of the rpc: the call with every argument, and the fields of the request that it leaves empty.
    "ResetBranch of a prefix": (lambda t: t.reset_branch("lake", "main", prefix="a"), {"path"}),
    "ResetBranch of a path": (lambda t: t.reset_branch("lake", "main", path="a"), {"prefix"}),
    "ListCommits": (
        lambda t: anext(
            t.list_commits(
                "lake",
                "main",
                first_parent=True,
                exclude_ref="v1",
                symmetric=True,
                since=_TIME,
                until=_TIME,
                committer="ann",
                paths=["a"],
                prefixes=["b/"],
                page_size=7,
            )
        ),
        {"page_token"},
    ),
    "AnnotatePaths": (
        lambda t: anext(t.annotate("lake", "main", after="raw/a", **_PART)),
        {"page_token"},
    ),
    "DiffRefs": (
        lambda t: anext(t.diff_refs("lake", "a", "b", from_merge_base=True, **_PART)),
        {"after", "names_only", "page_token"},
    ),
    "DiffRefs by name": (
        lambda t: anext(t.diff_names("lake", "a", "b", from_merge_base=True, **_PART)),
        {"after", "page_token"},
    ),
    "DiffUncommitted": (
        lambda t: anext(t.diff_uncommitted("lake", "main", **_PART)),
        {"after", "names_only", "page_token"},
    ),
    "DiffUncommitted by name": (
        lambda t: anext(t.diff_uncommitted_names("lake", "main", **_PART)),
        {"after", "page_token"},
    ),
    "SummarizeDiff": (
        lambda t: t.summarize_diff("lake", "a", "b", from_merge_base=True, delimiter="/", **_PART),
        {"page_token"},
    ),
    "SummarizeUncommitted": (
        lambda t: t.summarize_uncommitted("lake", "main", delimiter="/", **_PART),
        {"page_token"},
    ),
    "ListReflog": (lambda t: anext(t.list_reflog("lake", "main", page_size=7)), {"page_token"}),
    "ListDeletedBranches": (
        lambda t: anext(t.list_deleted_branches("lake", **_PART)),
        {"page_token"},
    ),
    "RestoreBranch": (lambda t: t.restore_branch("lake", "dev"), set()),
    "Merge": (
        lambda t: t.merge("lake", "main", "dev", squash=True, fast_forward_only=True, **_CHANGING),
        set(),
    ),
    "CreateMergeBranch": (
        lambda t: t.create_merge_branch("lake", "try", "main", "dev", **_MERGING),
        set(),
    ),
    "Revert": (
        lambda t: t.revert("lake", "main", "dev", parent_number=2, **_CHANGING),
        {"since_ref", "squash"},
    ),
    "Revert of a range": (
        lambda t: t.revert_range(
            "lake", "main", "v1", "dev", squash=True, parent_number=1, **_CHANGING
        ),
        set(),
    ),
    "CherryPick": (
        lambda t: t.cherry_pick("lake", "main", "dev", parent_number=2, **_CHANGING),
        set(),
    ),
    "GetSettings": (lambda t: t.get_settings("lake"), set()),
    "SetRules": (
        lambda t: t.set_rules("lake", protections=[_RULE], hidden_patterns=["t*"], if_match="1"),
        set(),
    ),
    "SetReadOnly": (lambda t: t.set_read_only("lake", True, if_match="1"), set()),
    "SetMetadata": (lambda t: t.set_metadata("lake", {"k": "v"}, if_match="1"), set()),
    "SetDefaultBranch": (
        lambda t: t.set_default_branch("lake", "dev", expected_branch_id="main"),
        set(),
    ),
}


class Recorder:
    """A transport that keeps the request and refuses it."""

    def __init__(self) -> None:
        self.method = ""
        self.request: Message | None = None

    async def unary(
        self, _service: ServiceDescriptor, method: str, request: Message, _call: Call
    ) -> Message:
        self.method, self.request = method, request
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, "recorded")

    async def operate(
        self, service: ServiceDescriptor, operation: str, request: Message, call: Call
    ) -> Message:
        raise NotImplementedError

    async def close(self) -> None:
        return


@pytest.mark.parametrize("name", CASES)
async def test_no_argument_is_dropped(name: str) -> None:
    call, empty = CASES[name]
    client, recorder = AsyncClient("127.0.0.1:1"), Recorder()
    client.graveler = GravelerClient(recorder)
    with pytest.raises(TarnError, match="recorded"):
        await call(client)
    await client.close()
    assert recorder.request is not None
    assert recorder.method == name.split(maxsplit=1)[0]
    fields = {each.name for each in recorder.request.DESCRIPTOR.fields}
    assert {each.name for each, _ in recorder.request.ListFields()} == fields - empty


async def test_an_argument_keeps_its_value() -> None:
    """Arguments of one type could be exchanged: these are told apart by their values."""
    client, recorder = AsyncClient("127.0.0.1:1"), Recorder()
    client.graveler = GravelerClient(recorder)
    for call, expected in (
        (client.revert_range("lake", "main", "v1", "dev"), {"since_ref": "v1", "ref": "dev"}),
        (
            client.create_merge_branch("lake", "try", "main", "dev"),
            {"branch_id": "try", "destination_ref": "main", "source_ref": "dev"},
        ),
        (client.summarize_diff("lake", "a", "b"), {"left_ref": "a", "right_ref": "b"}),
        (anext(client.diff_names("lake", "a", "b")), {"left_ref": "a", "right_ref": "b"}),
        (
            client.set_default_branch("lake", "dev", expected_branch_id="main"),
            {"branch_id": "dev", "expected_branch_id": "main"},
        ),
    ):
        with pytest.raises(TarnError, match="recorded"):
            await call
        assert {name: getattr(recorder.request, name) for name in expected} == expected
    await client.close()
