"""Merges pull requests: once, and only what the rules of the destination allow (docs/design/pull-requests.md).

Record and branch are two rows, so the answer of a merge can be lost between them. Therefore:

1. The first attempt writes a random *merge id* and the head of the destination into the record. Neither changes any
   more: all attempts, also those of other replicas, have the same.
2. Each attempt carries the merge id in the metadata of its commit. For each head on which it builds, it first looks for
   such a commit between that head and the recorded one. The compare-and-set of the branch then lets at most one land.
3. The record becomes `merged`. If that does not happen, the next call finds the commit and does it.

The rules and the reviews are read for each head, too. So a merge never rests on a judgement of another head.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tarn.core.access.policy import Grant
from tarn.core.branch import Branch
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import CommitId, UserId
from tarn.core.pull_request import (
    MERGE_ID,
    PULL_REQUEST,
    EventKind,
    Heads,
    PullBranch,
    PullEvent,
    PullRequest,
    PullState,
    missing_for,
    not_open,
)
from tarn.core.review_rule import ReviewRule
from tarn.kv.records import Repository
from tarn.kv.register import unknown_if
from tarn_graveler.branch.handle import BeforePublish, HeadGuards
from tarn_graveler.branch.head_moves import HeadMoves, NewHead
from tarn_graveler.records.branches import Branches, BranchName, branch_not_found
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.pull_requests import PullRequests
from tarn_graveler.records.settings import RepositorySettings
from tarn_graveler.versioning.merges import Destination, MergeRequest, Merges
from tarn_graveler.views.diffing import Diffing, DiffSides

__all__ = ["LOOK_MAX", "PullMerges", "Wish", "moved"]

_WALK_MAX = 10_000
"""Commits between the head and that of the first attempt, which are searched for a merge whose answer was lost. An
older one is found as "nothing to merge"."""

LOOK_MAX = 100
"""The same for calls that only look: anybody who may read the repository makes them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """The merge of a pull request, as its author asks for it.

    Attributes:
        message: of the merge commit; empty for a default text.
        metadata: of the merge commit.
        squash: the merge commit has one parent only.
        source: the head of the source that is to be merged; empty for the present one.
        destination: the head of the destination that takes it; empty for any.
    """

    message: str = ""
    metadata: tuple[tuple[str, str], ...] = ()
    squash: bool = False
    source: str = ""
    destination: str = ""


class _Landed(Exception):  # noqa: N818 - not an error: the end of an attempt
    """The merge was made before."""

    def __init__(self, commit_id: CommitId) -> None:
        super().__init__(commit_id)
        self.commit_id = commit_id


class PullMerges:
    """Judges and merges pull requests."""

    def __init__(
        self,
        pulls: PullRequests,
        settings: RepositorySettings,
        branches: Branches,
        commits: Commits,
        merges: Merges,
        moves: HeadMoves,
        diffing: Diffing,
        clock: Clock,
        ids: IdSource,
    ) -> None:
        self._pulls = pulls
        self._settings = settings
        self._branches = branches
        self._commits = commits
        self._merges = merges
        self._moves = moves
        self._diffing = diffing
        self._clock = clock
        self._ids = ids

    async def heads(self, repository: Repository, pull: PullRequest) -> Heads:
        """Returns the heads of both branches, by reads that are sent now.

        Raises:
            TarnError: BRANCH_NOT_FOUND: one is gone, also if another branch has its name now.
        """
        source = await self._branch(repository, pull.source)
        destination = await self._branch(repository, pull.destination)
        return Heads(
            source.commit_id, source.head_sequence, destination.commit_id, destination.head_sequence
        )

    async def _branch(self, repository: Repository, side: PullBranch) -> Branch:
        name = BranchName(repository, side.branch_id)
        branch = (await self._branches.fresh(name)).branch
        if branch.incarnation != side.incarnation:
            gone = branch_not_found(name)
            text = (
                f"branch {side.branch_id} was deleted and made again since the pull request was opened; close the "
                "request and open a new one"
            )
            raise TarnError(gone.kind, gone.reason, text, **gone.metadata)
        return branch

    async def blockers(
        self, repository: Repository, pull: PullRequest, heads: Heads, caller: Grant
    ) -> list[str]:
        """Returns what the rules of the destination keep a caller from merging for, a sentence each.

        Raises:
            TarnError: DENIED: a rule blocks all merges of the caller.
        """
        branch_id = pull.destination.branch_id
        missing = []
        for pattern, rule in await self._settings.review_rules(repository, branch_id, caller):
            changed = await self._changed_prefixes(repository, rule, heads)
            missing += [
                f"{each} (rule {pattern!r})" for each in missing_for(pull, rule, heads, changed)
            ]
        return missing

    async def _changed_prefixes(
        self, repository: Repository, rule: ReviewRule, heads: Heads
    ) -> list[str]:
        """Returns the prefixes with owners below which the source has changed something since the merge base."""
        if not rule.owners:
            return []
        sides = DiffSides(heads.destination, heads.source)
        sides = await self._diffing.from_merge_base(repository, sides)
        found = []
        for each in rule.owners:
            page = await self._diffing.commits(
                repository, sides, prefix=each.prefix, after="", limit=1
            )
            if page.paths:
                found.append(each.prefix)
        return found

    async def landed(
        self, repository: Repository, pull: PullRequest, limit: int = _WALK_MAX
    ) -> CommitId | None:
        """Returns the commit of a merge that was made, but whose record does not say so; None: there is none among
        the last `limit` commits of the destination."""
        if pull.state is PullState.MERGED or not pull.merge_id:
            return None
        name = BranchName(repository, pull.destination.branch_id)
        try:
            branch = (await self._branches.fresh(name)).branch
        except TarnError as error:
            if error.reason is Reason.BRANCH_NOT_FOUND:
                return None
            raise
        if branch.incarnation != pull.destination.incarnation:
            return None
        return await self._find(repository, branch.commit_id, pull, limit)

    async def _find(
        self, repository: Repository, head: CommitId, pull: PullRequest, limit: int = _WALK_MAX
    ) -> CommitId | None:
        """Returns the merge commit of a request in the history of its destination, along first parents."""
        assert pull.merge_from is not None, "it is written with the merge id"
        oldest = (await self._commits.get(repository, pull.merge_from)).generation
        wanted = (MERGE_ID, pull.merge_id.hex())
        commit_id = head
        for _ in range(limit):
            commit = await self._commits.get(repository, commit_id)
            if wanted in commit.metadata:
                return commit_id
            if commit.generation <= oldest or not commit.parents:
                return None
            commit_id = commit.parents[0]
        return None

    async def settle(self, repository: Repository, pull: PullRequest) -> PullRequest:
        """Returns a request whose record says so if it was merged."""
        commit_id = await self.landed(repository, pull)
        return pull if commit_id is None else await self._finish(repository, pull, commit_id)

    async def merge(
        self,
        repository: Repository,
        pull: PullRequest,
        caller: Grant,
        wish: Wish,
        *,
        before_build: BeforePublish | None = None,
        before_publish: BeforePublish | None = None,
    ) -> PullRequest:
        """Merges a request; returns its record. One that is merged already stays as it is.

        Args:
            repository: the repository.
            pull: the request.
            caller: who merges it.
            wish: how.
            before_build: called before each build of the merge commit, once it is known that no earlier attempt has
                made the merge; may raise to give up.
            before_publish: see `BeforePublish`.

        Raises:
            TarnError: PULL_REQUEST_NOT_OPEN; PULL_REQUEST_BLOCKED; BRANCH_PROTECTED; REPOSITORY_READ_ONLY; REF_MOVED;
                BRANCH_NOT_FOUND; as `Merges.merge`; errors of `before_build` and `before_publish`.
        """
        pull = await self.settle(repository, pull)
        if pull.state is PullState.MERGED:
            return pull
        if pull.state is not PullState.OPEN:
            raise not_open(pull)
        heads = await self.heads(repository, pull)
        _require_at(pull.source.branch_id, heads.source, wish.source)
        await self._require(repository, pull, heads, caller, wish)
        pull = await self._begin(repository, pull, heads)
        request = self._request(pull, heads.source, caller, wish)
        into = Destination("branch", pull.destination.branch_id)

        async def propose(head_id: CommitId) -> NewHead:
            if (made := await self._find(repository, head_id, pull)) is not None:
                raise _Landed(made)
            newest = await self._pulls.get(repository, pull.number, settle=True)
            if newest.state is not PullState.OPEN:
                raise not_open(newest)
            now = await self.heads(repository, newest)
            if now.destination != head_id:
                now = replace(now, destination=head_id)
            _require_at(pull.source.branch_id, now.source, heads.source)
            await self._require(repository, newest, now, caller, wish)
            if before_build is not None:
                await before_build()
            return await self._merges.propose(repository, head_id, into, request)

        cause = Cause(HeadOperation.MERGE, caller.user_id)
        name = BranchName(repository, pull.destination.branch_id)
        try:
            guards = HeadGuards(before_publish=before_publish)
            new = await self._moves.move(name, propose, cause=cause, guards=guards)
            commit_id = new.commit_id
        except _Landed as before:
            commit_id = before.commit_id
        return await self._finish(repository, pull, commit_id)

    async def _require(
        self,
        repository: Repository,
        pull: PullRequest,
        heads: Heads,
        caller: Grant,
        wish: Wish,
    ) -> None:
        _require_at(pull.destination.branch_id, heads.destination, wish.destination)
        missing = await self.blockers(repository, pull, heads, caller)
        if missing:
            text = f"pull request {pull.pull_id} cannot be merged yet: {'; '.join(missing)}"
            raise TarnError(
                Kind.FAILED_PRECONDITION,
                Reason.PULL_REQUEST_BLOCKED,
                text,
                pull_request=pull.pull_id,
                commit_id=heads.source,
            )

    def _request(
        self, pull: PullRequest, source: CommitId, caller: Grant, wish: Wish
    ) -> MergeRequest:
        metadata = dict(wish.metadata) | {
            PULL_REQUEST: pull.pull_id,
            MERGE_ID: pull.merge_id.hex(),
        }
        return MergeRequest(
            source=source,
            committer=caller.user_id,
            message=wish.message or f"{pull.title} (pull request {pull.pull_id})",
            metadata=tuple(sorted(metadata.items())),
            squash=wish.squash,
        )

    async def _begin(self, repository: Repository, pull: PullRequest, heads: Heads) -> PullRequest:
        """Writes the merge id and the destination's head, unless an earlier attempt has."""
        merge_id = self._ids.nonce()

        def decide(now: PullRequest) -> PullRequest:
            if now.state is not PullState.OPEN:
                raise not_open(now)
            if now.merge_id:
                return now
            return replace(now, merge_id=merge_id, merge_from=heads.destination)

        begun, _ = await self._pulls.change(repository, pull.number, decide)
        return begun

    async def _finish(
        self, repository: Repository, pull: PullRequest, commit_id: CommitId
    ) -> PullRequest:
        """Records that the merge was made. It was, so nothing that fails here is told as a refusal."""
        now_us = self._clock.now_us()

        def decide(now: PullRequest) -> PullRequest:
            if now.state is PullState.MERGED:
                return now
            return replace(now, state=PullState.MERGED, end_time_us=now_us, merge_commit=commit_id)

        with unknown_if(True):
            committer = UserId((await self._commits.get(repository, commit_id)).committer)
            event = PullEvent(EventKind.MERGE, committer, now_us, destination=commit_id)
            done, _ = await self._pulls.change(repository, pull.number, decide, event, always=True)
        await self._pulls.leave(repository, done)
        return done


def moved(branch_id: str, head: CommitId, expected: str) -> TarnError:
    """Returns the error for a branch that is not at the commit that a caller expects."""
    text = (
        f"branch {branch_id} is at commit {head}, not at the expected commit {expected[:64]}; look at the new head, "
        "and decide again"
    )
    return TarnError(Kind.CONFLICT, Reason.REF_MOVED, text, branch=branch_id, commit_id=head)


def _require_at(branch_id: str, head: CommitId, expected: str) -> None:
    if expected not in ("", head):
        raise moved(branch_id, head, expected)
