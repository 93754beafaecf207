"""Commit: rules 4, 5 and 8 of docs/design/protocol.md, executable in tests/models/branch_commits.py.

Seal, so that writes use a new token; confirm the seal; scan the sealed tokens; write ranges, metarange
and commit object; then publish by one compare-and-set of the whole record. No token is dropped or
scanned, and no caller is answered, on the basis of an unknown outcome.
"""

from __future__ import annotations

from dataclasses import dataclass

from tarn.block.committed import BuildResult
from tarn.core.branch import (
    AfterLostRace,
    Branch,
    after_lost_race,
    forget_sealed,
    publish_commit,
)
from tarn.core.clock import Clock
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import BranchId, CommitId
from tarn.kv.port import OutcomeUnknownError
from tarn.telemetry.operations import Operations, phase
from tarn_graveler.branch.building import Builder
from tarn_graveler.branch.handle import UNGUARDED, Announce, BranchHandle, HeadGuards, announcing
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.publications import Publications
from tarn_graveler.guards.drops import Drops
from tarn_graveler.guards.fences import BuildBlocks, Fences
from tarn_graveler.records.branches import Branches, BranchName, BranchVersion
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.path_records import PathRecords

__all__ = ["CommitRequest", "Committing", "CommitResult"]

_TRIES = 16
_TRIAL_BUILD_FROM = 8
"""Number of sealed tokens from which a commit seals another one only after a successful trial build."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Description of a new commit, as its author gives it."""

    committer: str
    message: str
    metadata: tuple[tuple[str, str], ...] = ()
    allow_empty: bool = False


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A commit that is, or was for a moment, the head of its branch."""

    commit_id: CommitId
    commit: Commit
    built: BuildResult


@dataclass(frozen=True, slots=True)
class _Built:
    """A commit that no branch names yet, and the record that it was built from."""

    record: Branch
    commit_id: CommitId
    commit: Commit
    result: BuildResult

    @property
    def changed(self) -> bool:
        """Whether there is a new commit; if not, `commit` is the branch's current one."""
        return self.commit_id != self.record.commit_id


class Committing:
    """Turns the uncommitted changes of a branch into a commit."""

    def __init__(
        self,
        branches: Branches,
        commits: Commits,
        path_records: PathRecords,
        layers: Layers,
        builder: Builder,
        fences: Fences,
        publications: Publications,
        drops: Drops,
        clock: Clock,
        operations: Operations,
    ) -> None:
        self._branches = branches
        self._commits = commits
        self._path_records = path_records
        self._layers = layers
        self._builder = builder
        self._fences = fences
        self._publications = publications
        self._drops = drops
        self._clock = clock
        self._operations = operations

    async def commit(
        self, name: BranchName, request: CommitRequest, guards: HeadGuards = UNGUARDED
    ) -> CommitResult:
        """Commits every write that was acknowledged before this call, and possibly later ones.

        Raises:
            TarnError: NOTHING_TO_COMMIT (names the commit that took the changes, if one did), unless the
                request allows an empty commit; BRANCH_RESET; BRANCH_NOT_FOUND; TOO_MANY_RETRIES;
                OUTCOME_UNKNOWN; errors of the guards.
        """
        repository_id = name.repository.repository_id
        with self._operations.begin("commit", repository=repository_id, branch=name.branch_id):
            return await self._commit(name, request, guards)

    async def _commit(
        self, name: BranchName, request: CommitRequest, guards: HeadGuards
    ) -> CommitResult:
        handle, branch_id = BranchHandle(self._branches, name, guards.incarnation), name.branch_id
        announce = announcing(self._drops.announce, guards.before_publish)
        with phase("seal"):
            sealed = await self._seal(handle, request)
        record = sealed
        for _ in range(_TRIES):
            if guards.before_build is not None:
                await guards.before_build()
            with phase("build"):
                built = await self._build(name, record.branch, request)
            with phase("publish"):
                outcome = await self._publish(handle, record, built, announce)
            if isinstance(outcome, CommitResult):
                if not built.changed:
                    raise self._nothing(branch_id, built.commit_id)
                return outcome
            now = after_lost_race(sealed.branch, outcome.branch)
            if now is AfterLostRace.RESET:
                raise _was_reset(branch_id, outcome.branch.commit_id)
            if now is AfterLostRace.TAKEN and not request.allow_empty:
                raise self._nothing(branch_id, outcome.branch.commit_id)
            record = outcome
        text = f"branch {branch_id} moved {_TRIES} times during one commit; try again"
        raise TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)

    @staticmethod
    def _nothing(branch_id: BranchId, commit_id: CommitId) -> TarnError:
        text = f"nothing to commit on {branch_id}: everything is in commit {commit_id}"
        reason = Reason.NOTHING_TO_COMMIT
        return TarnError(Kind.FAILED_PRECONDITION, reason, text, commit_id=commit_id)

    async def _seal(self, handle: BranchHandle, request: CommitRequest) -> BranchVersion:
        """Seals the staging token; returns the confirmed record, the only one that may be scanned.

        An empty staging token is not sealed: everything that was acknowledged is then already in the
        sealed tokens, or in the compacted listing. So repeatedly failing commits add no layer.
        """
        current = await handle.version()
        branch = current.branch
        is_behind = bool(branch.sealed) or branch.compacted_metarange_id is not None
        if is_behind or not request.allow_empty:
            empty = await self._layers.is_empty(handle.name, branch.staging)
            verified = await handle.version()
            if empty and verified.branch.same_layers(branch):
                if not is_behind:
                    raise self._nothing(handle.name.branch_id, branch.commit_id)
                return verified
        if len(branch.sealed) >= _TRIAL_BUILD_FROM:
            # Earlier commits failed. Add one more layer only if a build succeeds again.
            await self._list(handle.name, branch)
        return await handle.seal()

    async def _list(self, name: BranchName, record: Branch) -> BuildResult:
        """Builds the listing of a record's sealed tokens over its base; all of it is durable."""
        return await self._builder.build(await self._layers.order(name, record))

    async def _build(self, name: BranchName, record: Branch, request: CommitRequest) -> _Built:
        """Builds a commit of a record's sealed tokens; durable, and not yet named by a branch.

        Its row is a root of collections before the last look for sweeps (rule 13).
        """

        async def make(made: BuildBlocks) -> _Built:
            return await self._make(name, record, request, made)

        return await self._fences.rooted(name.repository, make)

    async def _make(
        self, name: BranchName, record: Branch, request: CommitRequest, made: BuildBlocks
    ) -> _Built:
        head = await self._commits.get(name.repository, record.commit_id)
        result = await self._list(name, record)
        made.add(result.made)
        if result.metarange_id == head.metarange_id and not request.allow_empty:
            return _Built(record, record.commit_id, head, result)
        commit = Commit(
            parents=(record.commit_id,),
            metarange_id=result.metarange_id,
            committer=request.committer,
            message=request.message,
            create_time_us=self._clock.now_us(),
            generation=head.generation + 1,
            metadata=request.metadata,
        )
        await made.check()
        commit_id = await self._commits.add(name.repository, commit)
        # Else the build was compared with the compacted listing, not with the parent's.
        if record.compacted_metarange_id is None:
            self._path_records.remember(name.repository, {commit_id: result.changed_paths})
        return _Built(record, commit_id, commit, result)

    async def _publish(
        self, handle: BranchHandle, record: BranchVersion, built: _Built, announce: Announce
    ) -> CommitResult | BranchVersion:
        """Publishes a built commit; returns the newer record instead if the commit must be built again.

        If the sealed tokens and the compacted listing change nothing, they are only removed from the record. That
        change must be confirmed as well: if its outcome is unknown, another commit may have taken their rows.

        Once the record has changed, no failure becomes a refusal: the tokens that the change removes were
        announced before it, and later failures are logged.
        """
        branch = record.branch
        if not built.changed and not branch.sealed and branch.compacted_metarange_id is None:
            return CommitResult(built.commit_id, built.commit, built.result)

        def after(current: Branch, op_id: bytes) -> Branch:
            if built.changed:
                return publish_commit(built.record, current, built.commit_id, op_id)
            return forget_sealed(built.record, current, op_id)

        def still_holds(current: Branch) -> bool:
            return after_lost_race(built.record, current) is AfterLostRace.REUSE

        try:
            outcome = await handle.publish(
                record,
                after,
                still_holds=still_holds,
                announce=announce,
                cause=Cause(HeadOperation.COMMIT, built.commit.committer),
            )
        except OutcomeUnknownError:
            if not built.changed or not await self._publications.find(handle.name, built.commit_id):
                raise
        else:
            if isinstance(outcome, BranchVersion):
                return outcome
        if built.changed:
            await self._publications.note(handle.name, built.commit_id)
        return CommitResult(built.commit_id, built.commit, built.result)


def _was_reset(branch_id: BranchId, head: CommitId) -> TarnError:
    # Which of the two happened to which row is not in the record: another commit may come before or after a reset.
    text = (
        f"this commit was not made: branch {branch_id} was reset meanwhile, and none of the changes that were to be "
        "committed is left. The reset discarded them, or another commit took them. Look at the log, now at "
        f"{head}, and at the uncommitted changes; repeat the missing writes, then commit"
    )
    return TarnError(Kind.CONFLICT, Reason.BRANCH_RESET, text, branch=branch_id, commit_id=head)
