"""Merges, reverts, cherry-picks, resets and hard moves of the branches of one repository.

A client does not find out the outcome of an operation whose answer was lost; the checker allows both outcomes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from tests.sim.outcomes import refuse
from tests.support.check.history import GONE, MERGES, Op, OpKind, Outcome

from tarn.core.errors import Reason, TarnError
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb

if TYPE_CHECKING:
    from tests.sim.workload import Client

__all__ = ["REPOSITORY", "Versioning"]

REPOSITORY = "lake"

_BRANCHES = branch_pb.DESCRIPTOR.services_by_name["BranchService"]
_MERGES = merge_pb.DESCRIPTOR.services_by_name["MergeService"]
_RECENT = 6
_TRIES = 3
_SIDES = {
    "": merge_pb.MERGE_SIDE_UNSPECIFIED,
    "source": merge_pb.MERGE_SIDE_SOURCE,
    "dest": merge_pb.MERGE_SIDE_DESTINATION,
}


class Versioning:
    """The operations of one client that change heads."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._history = client.history
        self._random = client.random
        self._heads: dict[str, str] = {}

    def _branch(self, branch: str) -> str:
        """Returns the branch itself if it is one of the repository; otherwise main."""
        return branch if branch.startswith(f"{REPOSITORY}/") else f"{REPOSITORY}/main"

    async def merge(self, branch: str) -> None:
        """Merges another branch; mostly commits first, and tries again if the branch is dirty."""
        branch = self._branch(branch)
        others = [
            each
            for each in self._client.branches
            if each.startswith(f"{REPOSITORY}/") and each != branch
        ]
        source = self._random.choice(others or [branch])
        if self._random.random() < 0.5:
            await self._client.commit(source)
        for _ in range(self._random.choice([1, _TRIES])):
            if self._random.random() < 0.8:
                await self._client.commit(branch)
            op = await self._merge(branch, source)
            if op is None or op.reason != Reason.BRANCH_DIRTY:
                return

    async def _merge(self, branch: str, source: str) -> Op | None:
        """Merges the head of a branch, or the commit that was its head a moment ago."""
        is_by_id = self._random.random() < 0.5
        source_id = await self.head(source) if is_by_id else ""
        if is_by_id and not source_id:
            return None
        op = self._begin(OpKind.MERGE, branch)
        op.source_id, op.is_squash = source_id, is_by_id and self._random.random() < 0.2
        op.source_branch = "" if is_by_id else source
        op.allows_empty = self._random.random() < 0.4
        request = merge_pb.MergeRequest(
            repository_id=REPOSITORY,
            branch_id=branch.split("/")[1],
            source_ref=source_id or source.split("/")[1],
            message=f"#{op.number}",
            default_side=_SIDES[op.choice],
            squash=op.is_squash,
            allow_empty=op.allows_empty,
        )
        await self._finish(op, self._send(_MERGES, "Merge", request))
        return op

    async def pick(self, branch: str) -> None:
        """Reverts or cherry-picks a recent commit of any branch."""
        branch = self._branch(branch)
        recent = self._recent()
        if not recent:
            return
        if self._random.random() < 0.7:
            await self._client.commit(branch)
        commit = self._random.choice(recent)
        op = self._begin(self._random.choice([OpKind.REVERT, OpKind.PICK]), branch)
        op.source_id = commit.commit_id
        if commit.kind is OpKind.MERGE and not commit.is_squash:
            op.parent_number = self._random.choice([1, 2])
        wish: dict[str, Any] = {
            "repository_id": REPOSITORY,
            "branch_id": branch.split("/")[1],
            "ref": op.source_id,
            "parent_number": op.parent_number,
            "message": f"#{op.number}",
            "default_side": _SIDES[op.choice],
        }
        if op.kind is OpKind.REVERT:
            await self._finish(op, self._send(_MERGES, "Revert", merge_pb.RevertRequest(**wish)))
        else:
            request = merge_pb.CherryPickRequest(**wish)
            await self._finish(op, self._send(_MERGES, "CherryPick", request))

    def _recent(self) -> Sequence[Op]:
        """Returns the newest acknowledged commits of the repository."""
        made = [
            op
            for op in self._history.ops
            if op.is_ok
            and op.kind in {OpKind.COMMIT, *MERGES}
            and not op.is_claim
            and op.branch.startswith(f"{REPOSITORY}/")
        ]
        return made[-_RECENT:]

    async def reset(self, branch: str) -> None:
        """Discards all uncommitted changes."""
        branch = self._branch(branch)
        op = self._history.begin(self._client.name, OpKind.RESET, branch)
        request = branch_pb.ResetBranchRequest(
            repository_id=REPOSITORY, branch_id=branch.split("/")[1]
        )
        await self._finish(op, self._send(_BRANCHES, "ResetBranch", request))

    async def part(self, branch: str, key: str) -> None:
        """Discards the uncommitted changes of a key, or of the keys that share a prefix with it."""
        branch = self._branch(branch)
        op = self._history.begin(self._client.name, OpKind.RESET, branch)
        op.is_prefix = self._random.random() < 0.5
        op.part = key.split("/", maxsplit=1)[0] if op.is_prefix else key
        request = branch_pb.ResetBranchRequest(
            repository_id=REPOSITORY, branch_id=branch.split("/")[1]
        )
        if op.is_prefix:
            request.prefix = op.part
        else:
            request.path = op.part
        await self._finish(op, self._send(_BRANCHES, "ResetBranch", request))

    async def move(self, branch: str) -> None:
        """Moves a branch to a recent commit; expects the present head, or an older one."""
        branch = self._branch(branch)
        is_forced = self._random.random() < 0.5
        if not is_forced and self._random.random() < 0.7:
            await self._client.commit(branch)
        known = self._heads.get(branch, "")
        expected = known if self._random.random() < 0.3 else await self.head(branch)
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.expovariate(1 / self._client.world.plan.think_seconds))
        targets = [op.commit_id for op in self._recent()]
        if not targets or not expected:
            return
        op = self._history.begin(self._client.name, OpKind.MOVE, branch)
        op.expected_id, op.is_forced = expected, is_forced
        op.commit_id = self._random.choice(targets)
        request = branch_pb.MoveBranchRequest(
            repository_id=REPOSITORY,
            branch_id=branch.split("/")[1],
            target_ref=op.commit_id,
            expected_commit_id=op.expected_id,
            force=op.is_forced,
        )
        await self._finish(op, self._send(_BRANCHES, "MoveBranch", request))

    async def head(self, branch: str) -> str:
        """Reads which commit is the head of a branch; empty if there is no answer or no branch."""
        op = self._history.begin(self._client.name, OpKind.HEAD, branch)
        try:
            found = await self._client.graveler.get_branch(
                self._client.call(), REPOSITORY, branch.split("/")[1]
            )
        except TarnError as error:
            if error.reason is Reason.BRANCH_NOT_FOUND:
                op.value = GONE
                self._history.finish(op, Outcome.OK, error.reason)
            else:
                refuse(self._history, op, error)
            return ""
        op.commit_id = self._heads[branch] = found.commit_id
        self._history.finish(op, Outcome.OK)
        return found.commit_id

    def _begin(self, kind: OpKind, branch: str) -> Op:
        op = self._history.begin(self._client.name, kind, branch)
        op.choice = self._random.choice(["", "source", "source", "dest"])
        return op

    async def _send(self, service: ServiceDescriptor, name: str, request: Message) -> Message:
        return await self._client.transport.unary(service, name, request, self._client.call())

    async def _finish(self, op: Op, work: Awaitable[Message]) -> None:
        try:
            answer = await work
        except TarnError as error:
            refuse(self._history, op, error)
            self._client.world.statistics[f"{op.kind} {op.outcome}: {error.reason}"] += 1
        else:
            if op.kind in MERGES:
                op.commit_id = answer.commit.commit_id  # type: ignore[attr-defined]
                self._client.world.kept.acknowledged(op.commit_id)
            self._history.finish(op, Outcome.OK)
