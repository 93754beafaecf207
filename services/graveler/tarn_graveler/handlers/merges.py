"""MergeService: merge, revert and cherry-pick."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tarn.block.merging import ConflictPage
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import (
    BranchId,
    CommitId,
    parse_branch_id,
    parse_commit_id,
    parse_new_branch_id,
)
from tarn.core.listing.choice import Choice, ChoiceRule, Side
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.handle import UNGUARDED, HeadGuards
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.handlers.commits import commit_message
from tarn_graveler.handlers.diffs import counts_message
from tarn_graveler.handlers.requests import (
    checked_metadata,
    paging,
)
from tarn_graveler.records.branches import BranchName
from tarn_graveler.versioning.merges import Destination, MergeRequest, PickRequest, Preview
from tarn_graveler.versioning.range_reverts import RangeReverted, RangeRevertRequest
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = [
    "MergeHandler",
    "Picks",
    "choice_of",
    "commit_of",
    "expected_of",
    "preview_message",
    "refuse_contradiction",
]


_SIDES = {
    pb.MERGE_SIDE_UNSPECIFIED: Side.REFUSE,
    pb.MERGE_SIDE_SOURCE: Side.SOURCE,
    pb.MERGE_SIDE_DESTINATION: Side.DEST,
}


_PickMessage = pb.RevertRequest | pb.CherryPickRequest
_ToBranch = pb.MergeRequest | _PickMessage
_Choosing = pb.CreateMergeBranchRequest | pb.PreviewMergeRequest | _ToBranch
Notes = Sequence[tuple[str, str]]
"""Names and values for the metadata of a commit."""


class MergeHandler:
    """Answers `tarn.graveler.v1.MergeService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._merges = graveler.merges
        self._merge_branches = graveler.merge_branches
        self._admission = graveler.admission
        self._picks = Picks(graveler)
        self._refs = graveler.refs

    async def Merge(self, request: pb.MergeRequest, permit: RepositoryPermit) -> pb.MergeResponse:
        """Merges the commit of a ref into a branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        refuse_contradiction(request)
        message = request.message or f"Merge {request.source_ref} into {branch_id}"
        wish = MergeRequest(
            source=await self._refs.commit_of(repository, request.source_ref),
            committer=grant.user_id,
            message=message,
            metadata=checked_metadata(request),
            choice=choice_of(request),
            squash=request.squash,
            allow_empty=request.allow_empty,
            fast_forward_only=request.fast_forward_only,
            expected=expected_of(request),
        )
        new = await self._merges.merge(BranchName(repository, branch_id), wish)
        return pb.MergeResponse(commit=commit_of(new))

    async def CreateMergeBranch(
        self, request: pb.CreateMergeBranchRequest, permit: RepositoryPermit
    ) -> pb.CreateMergeBranchResponse:
        """Creates a branch at the merge of two refs."""
        branch_id = parse_new_branch_id(request.branch_id)
        repository, grant = permit.repository, permit.grant
        into = Destination("ref", request.destination_ref)
        wish = MergeRequest(
            source=await self._refs.commit_of(repository, request.source_ref),
            committer=grant.user_id,
            message=request.message or f"Merge {request.source_ref} into {into.name}",
            metadata=checked_metadata(request),
            choice=choice_of(request),
            allow_empty=request.allow_empty,
        )
        dest = await self._refs.commit_of(repository, into.name)
        await self._admission.branch(repository)
        new = await self._merge_branches.create(BranchName(repository, branch_id), dest, into, wish)
        return pb.CreateMergeBranchResponse(commit=commit_of(new))

    async def PreviewMerge(
        self, request: pb.PreviewMergeRequest, permit: RepositoryPermit
    ) -> pb.PreviewMergeResponse:
        """Reports the effect of a merge without making it."""
        repository = permit.repository
        dest = await self._refs.commit_of(repository, request.destination_ref)
        source = await self._refs.commit_of(repository, request.source_ref)
        limit, choice = paging(request.page_size), choice_of(request)
        if not request.after:
            preview = await self._merges.preview(repository, dest, source, choice, limit)
            return preview_message(dest, source, preview)
        answer = pb.PreviewMergeResponse(destination_commit_id=dest, source_commit_id=source)
        page = await self._merges.conflicts(
            repository, dest, source, choice, after=request.after, limit=limit
        )
        answer.conflicts.extend(_conflicts(page))
        answer.next_after = page.next_after or ""
        return answer

    async def PreviewPick(
        self, request: pb.PreviewPickRequest, permit: RepositoryPermit
    ) -> pb.PreviewPickResponse:
        """Reports the effect of a revert or a cherry-pick without making it."""
        repository = permit.repository
        dest = await self._refs.commit_of(repository, request.destination_ref)
        commit_id = await self._refs.commit_of(repository, request.ref)
        source, preview = await self._merges.preview_pick(
            repository,
            dest,
            commit_id,
            request.parent_number,
            is_revert=request.is_revert,
            limit=paging(request.page_size),
        )
        answer = preview_message(dest, source, preview)
        answer.next_after = ""
        return pb.PreviewPickResponse(preview=answer)

    async def FindMergeBase(
        self, request: pb.FindMergeBaseRequest, permit: RepositoryPermit
    ) -> pb.FindMergeBaseResponse:
        """Finds the merge bases of two refs."""
        repository = permit.repository
        dest = await self._refs.commit_of(repository, request.destination_ref)
        source = await self._refs.commit_of(repository, request.source_ref)
        return pb.FindMergeBaseResponse(
            destination_commit_id=dest,
            source_commit_id=source,
            base_commit_ids=await self._merges.bases(repository, dest, source),
        )

    async def Revert(
        self, request: pb.RevertRequest, permit: RepositoryPermit
    ) -> pb.RevertResponse:
        """Undoes the changes of one commit, or of a range of commits."""
        resolved = await self._picks.resolved_revert(permit.repository, request)
        made = await self._picks.revert(permit.repository, resolved, permit.grant.user_id)
        return pb.RevertResponse(commit=commit_of(made.head), reverted_commit_ids=made.undone)

    async def CherryPick(
        self, request: pb.CherryPickRequest, permit: RepositoryPermit
    ) -> pb.CherryPickResponse:
        """Applies the changes of one commit."""
        resolved = await self._picks.resolved_cherry_pick(permit.repository, request)
        new = await self._picks.cherry_pick(permit.repository, resolved, permit.grant.user_id)
        return pb.CherryPickResponse(commit=commit_of(new))


class Picks:
    """Reverts and cherry-picks, as requests ask for them: of their rpcs and of tasks."""

    def __init__(self, graveler: Graveler) -> None:
        self._commits = graveler.commits
        self._merges = graveler.merges
        self._range_reverts = graveler.range_reverts
        self._refs = graveler.refs

    async def resolved_revert(
        self, repository: Repository, request: pb.RevertRequest
    ) -> pb.RevertRequest:
        """Checks a revert without doing any of it; returns it with commit ids for its refs.

        Raises:
            TarnError: INVALID_ARGUMENT; METADATA_TOO_LARGE; REF_NOT_FOUND and its like.
        """
        if request.squash and not request.since_ref:
            text = "squash joins the commits of a range, so it needs since_ref"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        resolved = pb.RevertRequest()
        resolved.CopyFrom(request)
        resolved.ref = await self._checked(repository, request)
        if request.since_ref:
            resolved.since_ref = await self._refs.commit_of(repository, request.since_ref)
        return resolved

    async def resolved_cherry_pick(
        self, repository: Repository, request: pb.CherryPickRequest
    ) -> pb.CherryPickRequest:
        """Checks a cherry-pick without doing any of it; returns it with a commit id for its ref. Raises as
        `resolved_revert`."""
        resolved = pb.CherryPickRequest()
        resolved.CopyFrom(request)
        resolved.ref = await self._checked(repository, request)
        return resolved

    async def _checked(self, repository: Repository, request: _PickMessage) -> CommitId:
        """Checks a request, and returns the commit of its ref."""
        parse_branch_id(request.branch_id)
        _pick_request(request, CommitId(request.ref), "", "")
        return await self._refs.commit_of(repository, request.ref)

    async def revert(
        self,
        repository: Repository,
        request: pb.RevertRequest,
        committer: str,
        guards: HeadGuards = UNGUARDED,
        notes: Notes = (),
    ) -> RangeReverted:
        """Makes a revert; one of a single commit is a range of one.

        Args:
            repository: the repository.
            request: of `resolved_revert`.
            committer: id of the user.
            guards: see `HeadGuards`.
            notes: pairs of name and value that the metadata of the new commits get beside those of the request.

        Raises:
            TarnError: as `Merges.revert` and `RangeReverts.revert`.
        """
        name = BranchName(repository, BranchId(request.branch_id))
        commit_id = CommitId(request.ref)
        if request.since_ref:
            each = _pick_request(request, commit_id, committer, request.message, notes)
            wish = RangeRevertRequest(CommitId(request.since_ref), each, request.squash)
            return await self._range_reverts.revert(name, wish, guards)
        message = request.message or f"Revert {commit_id}"
        one = _pick_request(request, commit_id, committer, message, notes)
        return RangeReverted(await self._merges.revert(name, one, guards), (commit_id,))

    async def cherry_pick(
        self,
        repository: Repository,
        request: pb.CherryPickRequest,
        committer: str,
        guards: HeadGuards = UNGUARDED,
        notes: Notes = (),
    ) -> NewHead:
        """Makes a cherry-pick; returns the new head. Arguments as of `revert`, the request of `resolved_cherry_pick`.

        Raises:
            TarnError: as `Merges.cherry_pick`.
        """
        name = BranchName(repository, BranchId(request.branch_id))
        commit_id = CommitId(request.ref)
        message = request.message or (await self._commits.get(repository, commit_id)).message
        wish = _pick_request(request, commit_id, committer, message, notes)
        return await self._merges.cherry_pick(name, wish, guards)


def _pick_request(
    request: _PickMessage, commit_id: CommitId, user_id: str, message: str, notes: Notes = ()
) -> PickRequest:
    metadata = dict(checked_metadata(request)) | dict(notes)
    return PickRequest(
        commit_id=commit_id,
        committer=user_id,
        message=message,
        parent_number=request.parent_number,
        metadata=tuple(sorted(metadata.items())),
        choice=choice_of(request),
        allow_empty=request.allow_empty,
        expected=expected_of(request),
    )


def expected_of(request: _ToBranch) -> CommitId | None:
    """Returns the head that a branch must have for a request; None for any.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    return parse_commit_id(request.expected_commit_id) if request.expected_commit_id else None


def refuse_contradiction(request: pb.MergeRequest) -> None:
    """Refuses a merge whose options exclude each other.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    if request.squash and request.fast_forward_only:
        # A fast-forward brings the history that a squash is to leave out.
        text = "a merge is either squashed or fast-forward only, not both"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


def preview_message(
    dest: CommitId, source: CommitId | None, preview: Preview
) -> pb.PreviewMergeResponse:
    """Returns the first page of a preview as sent."""
    merge, page = preview.merge, preview.merge.conflicts
    return pb.PreviewMergeResponse(
        destination_commit_id=dest,
        source_commit_id=source or "",
        base_commit_id=preview.bases[0] if preview.bases else "",
        base_commit_ids=preview.bases,
        counts=counts_message(merge.changes),
        conflict_count=merge.conflict_count,
        prefixes=[
            pb.PrefixCounts(prefix=prefix, counts=counts_message(stats))
            for prefix, stats in sorted(merge.prefixes.items())
        ],
        conflicts=_conflicts(page),
        next_after=page.next_after or "",
    )


def choice_of(request: _Choosing) -> Choice:
    """Returns the choice of a request.

    Raises:
        TarnError: INVALID_ARGUMENT for a pattern without a side, an invalid pattern or too many of them.
    """
    rules = []
    for each in request.choices:
        if each.side == pb.MERGE_SIDE_UNSPECIFIED:
            text = f"the choice for {each.pattern!r} names no side: source or destination"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
        rules.append(ChoiceRule(each.pattern, _side(each.side)))
    return Choice(_side(request.default_side), tuple(rules))


def _side(side: pb.MergeSide) -> Side:
    found = _SIDES.get(side)
    if found is None:
        text = f"{side} is not a side of a merge"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return found


def commit_of(new: NewHead) -> commit_pb.Commit:
    """Returns a new head as sent."""
    return commit_message(new.commit_id, new.commit)


def _conflicts(page: ConflictPage) -> Iterable[pb.MergeConflict]:
    columns = (page.paths, page.bases, page.sources, page.dests, page.undecided)
    for path, base, source, dest, is_undecided in zip(*columns, strict=True):
        yield pb.MergeConflict(
            path=path,
            base_entry=base,
            source_entry=source,
            destination_entry=dest,
            is_base_undecided=is_undecided,
        )
