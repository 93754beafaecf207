"""BranchService: the movable names of commits, and their uncommitted changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from google.protobuf.duration_pb2 import Duration

from tarn.core.branch import Branch, Token
from tarn.core.branch_expiry import BranchExpiry, ExpiryState, expiry_in
from tarn.core.change_kind import ChangeKind
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import (
    BranchId,
    parse_branch_id,
    parse_commit_id,
    parse_new_branch_id,
    parse_path,
)
from tarn.core.levels import Feature
from tarn.core.listing.spans import PathSpan
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.default_branch import DefaultBranch
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.handlers.requests import page_of, started_after, timestamp
from tarn_graveler.records.branches import BranchName
from tarn_proto.graveler.v1 import branch_service_pb2 as branch_pb

__all__ = ["BranchHandler"]


_STATES = {
    ExpiryState.ACTIVE: branch_pb.BRANCH_EXPIRY_STATE_ACTIVE,
    ExpiryState.SOON: branch_pb.BRANCH_EXPIRY_STATE_SOON,
    ExpiryState.EXPIRED: branch_pb.BRANCH_EXPIRY_STATE_EXPIRED,
}


def _branch_message(branch_id: str, branch: Branch, now_us: int) -> branch_pb.Branch:
    message = branch_pb.Branch(
        branch_id=branch_id,
        commit_id=branch.commit_id,
        create_time=timestamp(branch.create_time_us),
    )
    expiry = branch.expiry
    if expiry is not None:
        message.expiry.expire_time.CopyFrom(timestamp(expiry.expire_time_us))
        message.expiry.delete_time.CopyFrom(timestamp(expiry.delete_time_us))
        message.expiry.state = _STATES[expiry.state(now_us)]
    return message


class _TimeToLive(Protocol):
    """A request with the time that a branch lives."""

    @property
    def time_to_live(self) -> Duration:
        """From now."""
        ...

    def HasField(self, field_name: Literal["time_to_live"]) -> bool:
        """Whether it says one; a branch without one lives for ever."""
        ...


def _span_of(request: branch_pb.ResetBranchRequest) -> PathSpan | None:
    """Returns the paths of a reset; None for all.

    Raises:
        TarnError: INVALID: the prefix or path is empty, so that no forgotten value discards everything; or it
            cannot be that of an object.
    """
    part = request.WhichOneof("part")
    if part is None:
        return None
    if part == "path":
        return PathSpan.of_path(parse_path(request.path))
    return PathSpan.of_prefix(parse_path(request.prefix))


class BranchHandler:
    """Answers `tarn.graveler.v1.BranchService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._branches = graveler.branches
        self._iterators = graveler.iterators
        self._names = graveler.names
        self._refs = graveler.refs
        self._page_keys = graveler.page_keys
        self._drops = graveler.drops
        self._commits = graveler.commits
        self._moves = graveler.moves
        self._part_resets = graveler.part_resets
        self._settings = graveler.settings
        self._admission = graveler.admission
        self._default_branch = DefaultBranch(graveler.repositories, graveler.branches)
        self._expiring = graveler.expiring
        self._features = graveler.features
        self._clock = graveler.clock

    async def CreateBranch(
        self, request: branch_pb.CreateBranchRequest, permit: RepositoryPermit
    ) -> branch_pb.CreateBranchResponse:
        """Creates a branch at the commit of any ref."""
        branch_id = parse_new_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        source = request.source_ref or repository.default_branch
        permit.require_further("source", source_ref=source)
        commit_id = await self._refs.commit_of(repository, source)
        cause = Cause(HeadOperation.CREATE, grant.user_id)
        expiry = self._expiry_of(request)
        name = BranchName(repository, branch_id)
        if expiry is not None:
            # A branch that its creator may not delete must not be deleted in the creator's name.
            await self._settings.require(repository, branch_id, ChangeKind.DELETE, grant)
        await self._admission.branch(repository)
        if expiry is not None:
            await self._expiring.register(name, expiry.delete_time_us)
        branch = await self._branches.create(name, commit_id, cause, expiry=expiry)
        return branch_pb.CreateBranchResponse(
            branch=_branch_message(branch_id, branch, self._clock.now_us())
        )

    def _expiry_of(self, request: _TimeToLive) -> BranchExpiry | None:
        """Returns the expiry that a request asks for; None: never.

        Raises:
            TarnError: INVALID; FEATURE_LEVEL.
        """
        if not request.HasField("time_to_live"):
            return None
        self._features.require(Feature.NEW_FIELDS)
        return expiry_in(request.time_to_live.ToMicroseconds(), self._clock.now_us())

    async def SetBranchExpiry(
        self, request: branch_pb.SetBranchExpiryRequest, permit: RepositoryPermit
    ) -> branch_pb.SetBranchExpiryResponse:
        """Says when a branch expires."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        name = BranchName(repository, branch_id)
        expiry = self._expiry_of(request)
        if expiry is not None:
            await self._default_branch.refuse_deletion(name)
        branch = await self._expiring.set(name, expiry)
        now_us = self._clock.now_us()
        return branch_pb.SetBranchExpiryResponse(branch=_branch_message(branch_id, branch, now_us))

    async def GetBranch(
        self, request: branch_pb.GetBranchRequest, permit: RepositoryPermit
    ) -> branch_pb.GetBranchResponse:
        """Returns one branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        version = await self._branches.fresh(BranchName(repository, branch_id))
        return branch_pb.GetBranchResponse(
            branch=_branch_message(branch_id, version.branch, self._clock.now_us())
        )

    async def ListBranches(
        self, request: branch_pb.ListBranchesRequest, permit: RepositoryPermit
    ) -> branch_pb.ListBranchesResponse:
        """Returns one page of branches."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "BranchService.ListBranches",
            repository=request.repository_id,
            prefix=request.prefix,
            **started_after(request.after),
        )
        cursor = self._iterators.branches(repository, prefix=request.prefix)
        found, next_token = await page_of(cursor, request, tokens, after=request.after)
        if not request.include_hidden:
            found = await self._listed(repository, found)
        now_us = self._clock.now_us()
        lines = [_branch_message(name, branch, now_us) for name, branch in found]
        return branch_pb.ListBranchesResponse(branches=lines, next_page_token=next_token)

    async def _listed(
        self, repository: Repository, branches: list[tuple[BranchId, Branch]]
    ) -> list[tuple[BranchId, Branch]]:
        """Returns the branches that the repository's rules do not hide."""
        rules = (await self._settings.read(repository)).rules
        if not rules.hidden:
            return branches
        hidden = rules.are_hidden([name for name, _ in branches], repository.default_branch)
        return [each for each, is_hidden in zip(branches, hidden, strict=True) if not is_hidden]

    async def DeleteBranch(
        self, request: branch_pb.DeleteBranchRequest, permit: RepositoryPermit
    ) -> branch_pb.DeleteBranchResponse:
        """Deletes a branch; its uncommitted changes are dropped after the delay of rule 5."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        name = BranchName(repository, branch_id)

        async def announce(tokens: Sequence[Token]) -> None:
            # After the record was read that the deletion expects: see `DefaultBranch`.
            await self._default_branch.refuse_deletion(name)
            await self._drops.announce(name, tokens)

        cause = Cause(HeadOperation.DELETE, grant.user_id)
        await self._branches.delete(name, announce, cause)
        await self._names.release(repository, branch_id)
        return branch_pb.DeleteBranchResponse()

    async def ResetBranch(
        self, request: branch_pb.ResetBranchRequest, permit: RepositoryPermit
    ) -> branch_pb.ResetBranchResponse:
        """Discards all uncommitted changes of a branch, or those of a prefix or of one path."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        span = _span_of(request)
        if span is None:
            await self._moves.reset(BranchName(repository, branch_id))
        else:
            await self._part_resets.reset(BranchName(repository, branch_id), span)
        return branch_pb.ResetBranchResponse()

    async def MoveBranch(
        self, request: branch_pb.MoveBranchRequest, permit: RepositoryPermit
    ) -> branch_pb.MoveBranchResponse:
        """Puts a branch on the commit of another ref."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        expected = parse_commit_id(request.expected_commit_id)
        target = await self._refs.commit_of(repository, request.target_ref)
        name = BranchName(repository, branch_id)
        new = NewHead(target, await self._commits.get(repository, target))
        moved = await self._moves.move_to(
            name, new, expected, force=request.force, user_id=grant.user_id
        )
        return branch_pb.MoveBranchResponse(
            branch=_branch_message(branch_id, moved, self._clock.now_us())
        )
