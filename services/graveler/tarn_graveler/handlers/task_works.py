"""The work of each kind of task: requests of the wire become calls of the packages that do the work."""

from __future__ import annotations

from tarn.core.access.policy import Grant, Policy
from tarn.core.change_kind import ChangeKind
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId
from tarn.core.task import Task
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.handle import BranchHandle
from tarn_graveler.branch.head_moves import NewHead
from tarn_graveler.handlers.merges import choice_of, commit_of, preview_message
from tarn_graveler.handlers.requests import paging
from tarn_graveler.records.branches import BranchName, branch_not_found
from tarn_graveler.tasks.run import TaskRun
from tarn_graveler.versioning.merges import Destination, MergeRequest
from tarn_proto.graveler.v1 import merge_service_pb2 as pb

__all__ = ["MADE_BY_TASK", "RESULT_BYTES_MAX", "MergeWork", "PreviewWork"]

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
        self._branches = graveler.branches
        self._commits = graveler.commits
        self._merges = graveler.merges
        self._moves = graveler.moves
        self._reflog = graveler.reflog
        self._settings = graveler.settings

    async def run(self, repository: Repository, run: TaskRun) -> bytes:
        """Makes the merge; see `Work`.

        Raises:
            TarnError: as `Merges.merge`; BRANCH_NOT_FOUND also if the name has another branch by now;
                BRANCH_PROTECTED or REPOSITORY_READ_ONLY by the rules of now.
        """
        task, request = run.task, pb.MergeRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        into = Destination("branch", name.branch_id)
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
        )
        caller = Grant(task.user_id, Policy(()), "", 0, task.user_uid, task.roles)

        async def propose(head_id: CommitId) -> NewHead:
            run.may_stop = True
            # Minutes may have passed since the start.
            await self._settings.require(repository, name.branch_id, ChangeKind.MERGE, caller)
            # After the seal, and no life of a branch comes back: so the sealed record is of the life at the start.
            await self._require_branch(name, task)
            return await self._merges.propose(repository, head_id, into, wish)

        cause = Cause(HeadOperation.MERGE, task.user_id)
        new = await self._moves.move(name, propose, cause=cause, before_publish=run.before_publish)
        return _merged(new)

    async def _require_branch(self, name: BranchName, task: Task) -> None:
        """Refuses a branch that was created since the start of a task under the name of its branch.

        Raises:
            TarnError: BRANCH_NOT_FOUND.
        """
        if (await self._branches.fresh(name)).branch.incarnation != task.incarnation:
            raise branch_not_found(name)

    async def settle(self, repository: Repository, run: TaskRun) -> bytes | None:
        """Finds the merge of an earlier attempt, which after this can have no effect any more; see `Work`.

        Raises:
            TarnError: OUTCOME_UNKNOWN: the entries of the reflog that would tell have expired.
        """
        request = pb.MergeRequest.FromString(run.task.request)
        name = BranchName(repository, BranchId(request.branch_id))
        begin = run.task.begin_sequence
        try:
            # Any change of the record keeps earlier compare-and-sets of it from being applied.
            sealed = await BranchHandle(self._branches, name).seal()
        except TarnError as error:
            if error.reason is not Reason.BRANCH_NOT_FOUND:
                raise
        else:
            if sealed.branch.head_sequence == begin:
                return None
        cursor, oldest = "", None
        while True:
            page = await self._reflog.page(repository, name.branch_id, cursor, _PAGE)
            for entry in page.entries:
                if entry.sequence <= begin:
                    return None
                oldest = entry.sequence
                made = await self._made(repository, entry, run.task, request)
                if made is not None:
                    return _merged(made)
            cursor = page.cursor
            if not cursor:
                break
        if oldest == begin + 1:
            return None
        text = (
            f"the reflog of branch {name.branch_id} does not reach back to the start of task {run.task.task_id}, so it "
            "cannot tell whether the merge was made; look at the log of the branch"
        )
        raise OutcomeUnknownError(text)

    async def _made(
        self, repository: Repository, entry: HeadChange, task: Task, request: pb.MergeRequest
    ) -> NewHead | None:
        """Returns the head that an entry records, if the task made it."""
        commit_id = entry.new_commit_id
        if entry.operation is not HeadOperation.MERGE or entry.user_id != task.user_id:
            return None
        if commit_id is None:
            return None
        commit = await self._commits.get(repository, commit_id)
        if request.fast_forward_only:
            return NewHead(commit_id, commit) if commit_id == request.source_ref else None
        return NewHead(commit_id, commit) if _is_of(commit, task) else None


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
