"""Resolves a ref, as clients write it, to a branch or a commit (grammar: `tarn.core.refs`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.core.refs import RefExpression, is_commit_id, may_be_prefix, parse_ref
from tarn.core.value import hot_value
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Kv
from tarn.kv.records import Repository, decode_branch, decode_tag
from tarn_graveler.records.branches import Branches, BranchName
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.refs.reflog import Reflog

__all__ = ["OnCommit", "Refs"]

T = TypeVar("T")


@hot_value
class OnCommit:
    """The ref is a commit, which never changes.

    Attributes:
        is_kept: a branch or a tag names this very commit now, so it has its objects, also if it has expired.
    """

    commit_id: CommitId
    is_kept: bool = False


class Refs:
    """Resolves refs of one installation."""

    def __init__(
        self,
        kv: Kv,
        repositories: Repositories,
        branches: Branches,
        commits: Commits,
        reflog: Reflog,
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._branches = branches
        self._commits = commits
        self._reflog = reflog

    async def resolve(self, repository: Repository, ref: str) -> BranchName | OnCommit:
        """Resolves a ref as of now.

        A branch name stands for the branch with its uncommitted changes. The branch may be deleted before
        it is read.

        A branch that this process has read recently is resolved without a read: the caller reads its
        record afresh anyway (`read`).

        Raises:
            TarnError: REF_NOT_FOUND, REF_AMBIGUOUS, INVALID_ARGUMENT.
        """
        expression = parse_ref(ref)
        if not expression.committed and expression.moment is None:
            name = BranchName(repository, BranchId(expression.base))
            if self._branches.cached(name) is not None:
                return name
        found = await self._base(repository, expression, ref)
        if isinstance(found, BranchName):
            return found
        at = await self._walk(repository, found.commit_id, expression, ref)
        return OnCommit(at, found.is_kept and at == found.commit_id)

    async def commit_of(self, repository: Repository, ref: str) -> CommitId:
        """Returns the commit of a ref; the head of a branch.

        Raises:
            TarnError: as `resolve`.
        """

        async def of_branch(name: BranchName) -> CommitId:
            return (await self._branches.fresh(name)).branch.commit_id

        async def of_commit(found: OnCommit) -> CommitId:
            return found.commit_id

        return await self.read(repository, ref, of_branch, of_commit)

    async def read(
        self,
        repository: Repository,
        ref: str,
        of_branch: Callable[[BranchName], Awaitable[T]],
        of_commit: Callable[[OnCommit], Awaitable[T]],
    ) -> T:
        """Reads what a ref stands for.

        Args:
            repository: of the ref.
            ref: see `resolve`.
            of_branch: reads a branch, by a record that it reads afresh. If the branch is gone, a tag may have its name
                since this process has read it: then that is read.
            of_commit: reads a commit.

        Raises:
            TarnError: as `resolve` and the readers.
        """
        resolved = await self.resolve(repository, ref)
        if isinstance(resolved, BranchName):
            try:
                return await of_branch(resolved)
            except TarnError as error:
                resolved = await self._instead_of(repository, ref, error)
        return await of_commit(resolved)

    async def _instead_of(self, repository: Repository, ref: str, error: TarnError) -> OnCommit:
        """Returns what a ref stands for whose branch is gone, and forgotten by this process with that.

        Raises:
            TarnError: `error`, if it is another one, or if nothing else has the name.
        """
        if error.reason is not Reason.BRANCH_NOT_FOUND:
            raise error
        try:
            found = await self.resolve(repository, ref)
        except TarnError as second:
            raise (error if second.kind is Kind.NOT_FOUND else second) from None
        if not isinstance(found, OnCommit):
            raise error
        return found

    async def shadowed_by(self, repository: Repository, ref: str) -> str:
        """Returns a commit that the name in a ref hides, because its id begins with that name. Empty: none.

        Raises:
            TarnError: as `commit_of`.
        """
        expression = parse_ref(ref)
        if expression.moment is not None or not may_be_prefix(expression.base):
            return ""
        ids = await self._commits.with_prefix(repository, expression.base, 2)
        if not ids:
            return ""
        meant = await self.commit_of(repository, expression.base)
        return next((each for each in ids if each != meant), "")

    async def _base(
        self, repository: Repository, expression: RefExpression, ref: str
    ) -> BranchName | OnCommit:
        base = expression.base
        if expression.moment is not None:
            branch_id = BranchId(base)
            return OnCommit(
                await self._reflog.head_at(repository, branch_id, expression.moment, ref)
            )
        if is_commit_id(base):
            await self._commits.get(repository, CommitId(base))
            return OnCommit(CommitId(base))
        partition = self._repositories.keys_of(repository).refs
        keys = [RepositoryKeys.branch(base), RepositoryKeys.tag(base), RepositoryKeys.CLOSED]
        as_branch, as_tag, closed = await self._kv.get_many(partition, keys)
        self._repositories.refuse_closed(repository, closed)
        if as_branch is not None:
            branch = decode_branch(as_branch.value)
            if not branch.is_deleted:
                if expression.committed:
                    return OnCommit(branch.commit_id, is_kept=True)
                return BranchName(repository, BranchId(base))
        if as_tag is not None and not (tag := decode_tag(as_tag.value)).is_pending:
            return OnCommit(tag.commit_id, is_kept=True)
        if may_be_prefix(base):
            by_prefix = await self._commits.by_prefix(repository, base)
            if by_prefix is not None:
                return OnCommit(by_prefix)
        raise self._not_found(repository, ref)

    async def _walk(
        self, repository: Repository, start: CommitId, expression: RefExpression, ref: str
    ) -> CommitId:
        at = start
        for step in expression.steps:
            if step.is_parent:
                if step.count == 0:
                    continue
                parents = (await self._commits.get(repository, at)).parents
                if len(parents) < step.count:
                    raise self._not_found(repository, ref)
                at = parents[step.count - 1]
                continue
            for _ in range(step.count):
                parents = (await self._commits.get(repository, at)).parents
                if not parents:
                    raise self._not_found(repository, ref)
                at = parents[0]
        return at

    @staticmethod
    def _not_found(repository: Repository, ref: str) -> TarnError:
        text = f"ref {ref} does not exist in repository {repository.repository_id}"
        return TarnError(Kind.NOT_FOUND, Reason.REF_NOT_FOUND, text, ref=ref)
