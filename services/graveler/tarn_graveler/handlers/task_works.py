"""The work of each kind of task: requests of the wire become calls of the packages that do the work."""

from __future__ import annotations

from dataclasses import replace

from tarn.core.access.policy import Grant, Policy
from tarn.core.branch import Branch
from tarn.core.change_kind import ChangeKind
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId
from tarn.core.pull_request import PullRequest, parse_pull_id
from tarn.core.task import Task
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.handle import BranchHandle, HeadGuards
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.handlers.commits import commit_message, commit_request
from tarn_graveler.handlers.merges import (
    Notes,
    Picks,
    choice_of,
    commit_of,
    expected_of,
    preview_message,
)
from tarn_graveler.handlers.pull_requests import wish_of
from tarn_graveler.handlers.requests import paging
from tarn_graveler.records.branches import BranchName
from tarn_graveler.tasks.run import TaskRun
from tarn_graveler.versioning.merges import MergeRequest
from tarn_proto.graveler.v1 import commit_service_pb2 as commit_pb
from tarn_proto.graveler.v1 import merge_service_pb2 as pb
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pull_pb

__all__ = [
    "MADE_BY_TASK",
    "RESULT_BYTES_MAX",
    "CherryPickWork",
    "CommitWork",
    "MergeWork",
    "PreviewWork",
    "PullRequestMergeWork",
    "RevertWork",
]

MADE_BY_TASK = "tarn.task"
"""Name under which a commit's metadata records the task that made it."""

RESULT_BYTES_MAX = 256 * 1024
"""Limit on a response that a task keeps."""

_PAGE = 100


class MergeWork:
    """Merges a commit into a branch, once, however many runs the task has.

    Each attempt to publish reads the branch record, then checks that the run still owns its task, and then compares
    and sets that record. A later run claims the task first and seals the branch next. So an attempt of an earlier run
    is made before that seal, and then the reflog has it; or it never is.
    """

    def __init__(self, graveler: Graveler) -> None:
        self._merges = graveler.merges
        self._guarding = _Guarding(graveler)
        self._settling = _Settling(graveler)

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the merge; see `Work`.

        Raises:
            TarnError: as `Merges.merge`; BRANCH_NOT_FOUND also if the name has another branch by now;
                BRANCH_PROTECTED or REPOSITORY_READ_ONLY by the rules of now.
        """
        task, request = run.task, pb.MergeRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        metadata = dict(request.metadata) | {MADE_BY_TASK: task.task_id}
        wish = MergeRequest(
            source=CommitId(request.source_ref),
            committer=task.user_id,
            message=request.message,
            metadata=tuple(sorted(metadata.items())),
            choice=choice_of(request),
            squash=request.squash,
            allow_empty=request.allow_empty,
            fast_forward_only=request.fast_forward_only,
            expected=expected_of(request),
        )
        guards = self._guarding.of(name, run, ChangeKind.MERGE)
        return _merged(await self._merges.merge(name, wish, guards))

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the merge of an earlier attempt, which after this can have no effect any more; see `Work`.

        Raises:
            TarnError: OUTCOME_UNKNOWN: the entries of the reflog that would tell have expired.
        """
        request = pb.MergeRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        wanted = CommitId(request.source_ref) if request.fast_forward_only else None
        made = await self._settling.find(name, run.task, HeadOperation.MERGE, wanted)
        return None if made is None else _merged(made)


class CommitWork:
    """Commits the changes of a branch, once, however many runs the task has: by the steps of `MergeWork`."""

    def __init__(self, graveler: Graveler) -> None:
        self._committing = graveler.committing
        self._guarding = _Guarding(graveler)
        self._settling = _Settling(graveler)

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the commit; see `Work`.

        Raises:
            TarnError: as `Committing.commit`; BRANCH_NOT_FOUND also if the name has another branch by now;
                BRANCH_PROTECTED or REPOSITORY_READ_ONLY by the rules of now.
        """
        task, request = run.task, commit_pb.CreateCommitRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        wish = commit_request(request, task.user_id)
        metadata = dict(wish.metadata) | {MADE_BY_TASK: task.task_id}
        wish = replace(wish, metadata=tuple(sorted(metadata.items())))
        guards = self._guarding.of(name, run, ChangeKind.COMMIT)
        made = await self._committing.commit(name, wish, guards)
        return commit_message(made.commit_id, made.commit).SerializeToString()

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the commit of an earlier attempt, which after this can have no effect any more; see `Work`.

        Raises:
            TarnError: OUTCOME_UNKNOWN: the entries of the reflog that would tell have expired.
        """
        request = commit_pb.CreateCommitRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        return await self._settling.commit_of(name, run.task, HeadOperation.COMMIT)


class RevertWork:
    """Reverts a commit or a range of commits, once, however many runs the task has: by the steps of `MergeWork`."""

    def __init__(self, graveler: Graveler) -> None:
        self._picks = Picks(graveler)
        self._guarding = _Guarding(graveler)
        self._settling = _Settling(graveler)

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the revert; see `Work`.

        Raises:
            TarnError: as `Picks.revert`; BRANCH_NOT_FOUND also if the name has another branch by now;
                BRANCH_PROTECTED or REPOSITORY_READ_ONLY by the rules of now.
        """
        task, request = run.task, pb.RevertRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        guards, notes = self._guarding.of(name, run, ChangeKind.COMMIT), _notes(task)
        made = await self._picks.revert(repository, request, task.user_id, guards, notes)
        return commit_of(made.head).SerializeToString()

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the newest commit of an earlier attempt; see `CommitWork.settle`."""
        request = pb.RevertRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        return await self._settling.commit_of(name, run.task, HeadOperation.REVERT)


class CherryPickWork:
    """Applies a commit to a branch, once, however many runs the task has: by the steps of `MergeWork`."""

    def __init__(self, graveler: Graveler) -> None:
        self._picks = Picks(graveler)
        self._guarding = _Guarding(graveler)
        self._settling = _Settling(graveler)

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the cherry-pick; see `Work`. Raises as `RevertWork.run`."""
        task, request = run.task, pb.CherryPickRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        guards, notes = self._guarding.of(name, run, ChangeKind.COMMIT), _notes(task)
        made = await self._picks.cherry_pick(repository, request, task.user_id, guards, notes)
        return commit_of(made).SerializeToString()

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the commit of an earlier attempt; see `CommitWork.settle`."""
        request = pb.CherryPickRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        return await self._settling.commit_of(name, run.task, HeadOperation.CHERRY_PICK)


class PullRequestMergeWork:
    """Merges a pull request. Its record has a merge id, by which each attempt finds the merge of an earlier one."""

    def __init__(self, graveler: Graveler) -> None:
        self._commits = graveler.commits
        self._pulls = graveler.pulls
        self._pull_merges = graveler.pull_merges
        self._settling = _Settling(graveler)

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the merge; see `Work`. Raises as `PullMerges.merge`."""
        request = pull_pb.MergePullRequestRequest.FromString(run.task.request)
        pull = await self._pulls.get(repository, parse_pull_id(request.pull_request_id))
        # Until it is known that no merge was made, which another caller may have begun.
        run.may_stop = False

        async def before_build() -> None:
            run.may_stop = True

        merged = await self._pull_merges.merge(
            repository,
            pull,
            _caller(run.task),
            wish_of(request),
            before_build=before_build,
            before_publish=run.before_publish,
        )
        return await self._answer(repository, merged)

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the merge of an earlier attempt, which after this can have no effect any more; see `Work`."""
        request = pull_pb.MergePullRequestRequest.FromString(run.task.request)
        number = parse_pull_id(request.pull_request_id)
        pull = await self._pulls.get(repository, number, settle=True)
        await self._settling.seal(BranchName(repository, pull.destination.branch_id))
        settled = await self._pull_merges.settle(repository, pull)
        return await self._answer(repository, settled) if settled.merge_commit else None

    async def _answer(self, repository: Repository, merged: PullRequest) -> bytes:
        assert merged.merge_commit is not None, "it is merged"
        commit = await self._commits.get(repository, merged.merge_commit)
        return commit_message(merged.merge_commit, commit).SerializeToString()


class _Guarding:
    """What a run of a task looks at while it changes the head of a branch."""

    def __init__(self, graveler: Graveler) -> None:
        self._settings = graveler.settings

    def of(self, name: BranchName, run: TaskRun, change: ChangeKind) -> HeadGuards:
        """Returns the guards of a run: the branch of the start, the repository's rules, and the run's ownership."""
        task = run.task

        async def before_build() -> None:
            # After the seal, and no life of a branch comes back: so the sealed record is of the life at the start.
            run.may_stop = True
            # Minutes may have passed since the start.
            await self._settings.require(name.repository, name.branch_id, change, _caller(task))

        return HeadGuards(task.incarnation, before_build, run.before_publish)


class _Settling:
    """Finds the change of a branch that a task made, once no earlier attempt can have an effect any more."""

    def __init__(self, graveler: Graveler) -> None:
        self._branches = graveler.branches
        self._commits = graveler.commits
        self._reflog = graveler.reflog

    async def seal(self, name: BranchName) -> Branch | None:
        """Changes the record of a branch, so that no earlier compare-and-set of it is applied any more; returns it,
        None if there is no such branch."""
        try:
            return (await BranchHandle(self._branches, name).seal()).branch
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
            return None

    async def commit_of(
        self, name: BranchName, task: Task, operation: HeadOperation
    ) -> bytes | None:
        """Returns the result of a task that makes commits, if it has made one; errors as `find`."""
        made = await self.find(name, task, operation)
        return None if made is None else commit_of(made).SerializeToString()

    async def find(
        self,
        name: BranchName,
        task: Task,
        operation: HeadOperation,
        wanted: CommitId | None = None,
    ) -> NewHead | None:
        """Returns the head that a task has made; None if it has not, and no earlier attempt can any more.

        Args:
            name: the branch.
            task: the task.
            operation: how it changes the head.
            wanted: the commit that it would make the head; None: one that names the task.

        Raises:
            TarnError: OUTCOME_UNKNOWN: the entries of the reflog that would tell have expired.
        """
        begin = task.begin_sequence
        sealed = await self.seal(name)
        if sealed is not None and sealed.head_sequence == begin:
            return None
        cursor, oldest = "", None
        while True:
            page = await self._reflog.page(name.repository, name.branch_id, cursor, _PAGE)
            for entry in page.entries:
                if entry.sequence <= begin:
                    return None
                oldest = entry.sequence
                if entry.operation is operation and entry.user_id == task.user_id:
                    made = await self._made(name.repository, entry, task, wanted)
                    if made is not None:
                        return made
            cursor = page.cursor
            if not cursor:
                break
        if oldest == begin + 1:
            return None
        text = (
            f"the reflog of branch {name.branch_id} does not reach back to the start of task {task.task_id}, so it "
            f"cannot tell whether the {operation.value} was made; look at the log of the branch"
        )
        raise OutcomeUnknownError(text)

    async def _made(
        self, repository: Repository, entry: HeadChange, task: Task, wanted: CommitId | None
    ) -> NewHead | None:
        """Returns the head that an entry records, if the task made it."""
        commit_id = entry.new_commit_id
        if commit_id is None:
            return None
        commit = await self._commits.get(repository, commit_id)
        is_made = _is_of(commit, task) if wanted is None else commit_id == wanted
        return NewHead(commit_id, commit) if is_made else None


class PreviewWork:
    """Previews a merge of two commits; repeating it changes nothing."""

    def __init__(self, graveler: Graveler) -> None:
        self._merges = graveler.merges

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Previews the merge; see `Work`."""
        request = pb.PreviewMergeRequest.FromString(run.task.request)
        dest, source = CommitId(request.destination_ref), CommitId(request.source_ref)
        limit, choice = paging(request.page_size), choice_of(request)
        preview = await self._merges.preview(repository, dest, source, choice, limit)
        return _fitting(preview_message(dest, source, preview)).SerializeToString()

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Nothing is to be settled: a preview has no effect."""
        return None


def _merged(new: NewHead) -> bytes:
    return pb.MergeResponse(commit=commit_of(new)).SerializeToString()


def _caller(task: Task) -> Grant:
    """Returns who started a task, for rules that exempt users and roles."""
    return Grant(task.user_id, Policy(()), "", 0, task.user_uid, task.roles)


def _notes(task: Task) -> Notes:
    return ((MADE_BY_TASK, task.task_id),)


def _is_of(commit: Commit, task: Task) -> bool:
    return dict(commit.metadata).get(MADE_BY_TASK) == task.task_id


def _fitting(answer: pb.PreviewMergeResponse) -> pb.PreviewMergeResponse:
    """Shortens the page of conflicts, and then the list of prefixes, until the response can be kept."""
    while answer.ByteSize() > RESULT_BYTES_MAX and len(answer.conflicts) > 1:
        kept = len(answer.conflicts) // 2
        answer.next_after = answer.conflicts[kept - 1].path
        del answer.conflicts[kept:]
    while answer.ByteSize() > RESULT_BYTES_MAX and answer.prefixes:
        del answer.prefixes[len(answer.prefixes) // 2 :]
    if answer.ByteSize() > RESULT_BYTES_MAX:
        text = f"the preview has more than {RESULT_BYTES_MAX} bytes; use MergeService.PreviewMerge"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return answer
