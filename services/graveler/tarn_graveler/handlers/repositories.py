"""RepositoryService: repositories, which are buckets on the S3 endpoint."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from tarn.core.change_kind import ChangeKind
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import Cause, HeadOperation
from tarn.core.ids import parse_new_branch_id, parse_repository_id
from tarn.core.levels import Feature
from tarn.gate.permits import Permit, RepositoryPermit
from tarn.kv.port import OutcomeUnknownError
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import page_of, started_after, timestamp
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.repositories import Reservation
from tarn_proto.graveler.v1 import repository_service_pb2 as pb

__all__ = ["RepositoryHandler", "repository_message"]


_CLIENT_NAMESPACE_BYTES_MAX: Final = 1024


def repository_message(repository: Repository) -> pb.Repository:
    """Returns a repository as the wire shows it."""
    return pb.Repository(
        repository_id=repository.repository_id,
        instance_uid=repository.instance_uid,
        storage_namespace=repository.storage_namespace,
        default_branch_id=repository.default_branch,
        create_time=timestamp(repository.create_time_us),
        client_namespace=repository.client_namespace,
    )


class RepositoryHandler:
    """Answers `tarn.graveler.v1.RepositoryService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._settings = graveler.settings
        self._repositories = graveler.repositories
        self._iterators = graveler.iterators
        self._branches = graveler.branches
        self._commits = graveler.commits
        self._committed = graveler.committed
        self._drops = graveler.drops
        self._daily_uploads = graveler.daily_uploads
        self._page_keys = graveler.page_keys
        self._clock = graveler.clock
        self._purges = graveler.purges
        self._features = graveler.features
        self._drain = graveler.drain

    async def CreateRepository(
        self, request: pb.CreateRepositoryRequest, permit: Permit
    ) -> pb.CreateRepositoryResponse:
        """Creates a repository; its first commit and default branch exist before it becomes visible."""
        repository_id = parse_repository_id(request.repository_id)
        grant = permit.grant
        default_branch = parse_new_branch_id(request.default_branch_id or "main")
        shown = request.client_namespace
        if len(shown.encode()) > _CLIENT_NAMESPACE_BYTES_MAX:
            text = f"client_namespace has more than {_CLIENT_NAMESPACE_BYTES_MAX} bytes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="client_namespace")
        reservation = await self._repositories.reserve(
            repository_id,
            request.storage_namespace,
            default_branch,
            client_namespace=shown if self._features.allows(Feature.NEW_FIELDS) else "",
        )
        try:
            if self._drain is not None:
                await self._drain.note_newest(reservation.repository)
            await self._fill(reservation.repository, grant.user_id)
            await self._repositories.publish(reservation)
        except TarnError as error:
            if error.kind is not Kind.UNKNOWN_OUTCOME:
                await self._give_back(reservation)
            raise
        return pb.CreateRepositoryResponse(repository=repository_message(reservation.repository))

    async def _fill(self, repository: Repository, committer: str) -> None:
        """Creates the first commit and the default branch."""
        built = await self._committed.build(repository.storage_namespace, None, [])
        commit = Commit(
            parents=(),
            metarange_id=built.metarange_id,
            committer=committer,
            message="Repository created",
            create_time_us=self._clock.now_us(),
            generation=0,
            metadata=(),
        )
        commit_id = await self._commits.add(repository, commit)
        try:
            name = BranchName(repository, repository.default_branch)
            await self._branches.create(name, commit_id, Cause(HeadOperation.CREATE, committer))
        except OutcomeUnknownError as error:
            # The repository was not published, so this is a refusal, whatever happened to its branch.
            text = f"repository {repository.repository_id} was not created: {error.message}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    async def _give_back(self, reservation: Reservation) -> None:
        """Undoes a failed creation: frees name and namespace, and drops the rows that were written.

        Names that cannot be freed now are taken over by the next creation.
        """
        if await self._repositories.abandon(reservation):
            keys = self._repositories.keys_of(reservation.repository)
            with suppress(TarnError):  # the caller gets the first failure
                dead = [keys.refs, keys.commits, keys.changed, keys.reflog, keys.pulls]
                await self._drops.register(dead)

    async def GetRepository(
        self, request: pb.GetRepositoryRequest, permit: RepositoryPermit
    ) -> pb.GetRepositoryResponse:
        """Returns one repository."""
        repository = permit.repository
        return pb.GetRepositoryResponse(repository=repository_message(repository))

    async def ListRepositories(
        self, request: pb.ListRepositoriesRequest, permit: Permit
    ) -> pb.ListRepositoriesResponse:
        """Returns one page of the repositories that the caller may read; a page may be short although more
        follow.
        """
        grant = permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "RepositoryService.ListRepositories",
            prefix=request.prefix,
            **started_after(request.after),
        )
        cursor = self._iterators.repositories(prefix=request.prefix)
        found, next_token = await page_of(cursor, request, tokens, after=request.after)
        visible = [
            repository_message(repository)
            for _, repository in found
            if permit.has_further("each", repository=repository)
        ]
        return pb.ListRepositoriesResponse(repositories=visible, next_page_token=next_token)

    async def DeleteRepository(
        self, request: pb.DeleteRepositoryRequest, permit: Permit
    ) -> pb.DeleteRepositoryResponse:
        """Marks the repository, then each branch, then drops partitions; writers rely on this order.

        An interrupted deletion continues when it is requested again.
        """
        repository_id = parse_repository_id(request.repository_id)
        grace_us = self._grace_us(request)
        current = await self._repositories.read(repository_id)
        if current.is_served:  # otherwise there is nothing to decide: its deletion has begun
            await self._settings.require(current, "", ChangeKind.OTHER, permit.grant)
        repository = await self._repositories.mark_deleted(current)
        try:
            await self._repositories.close(repository)
            await self._empty(repository)
            purge_after_us = await self._repositories.remove(repository, grace_us)
        except TarnError as error:
            if error.reason is Reason.REPOSITORY_NOT_FOUND:
                raise  # another deletion has finished
            # It has been invisible to users since it was marked, so this is not a refusal.
            text = (
                f"repository {repository_id} is marked as deleted, and its deletion is not finished: "
                f"{error.message}; delete it again to finish"
            )
            raise OutcomeUnknownError(text) from error
        if not purge_after_us:
            return pb.DeleteRepositoryResponse()
        return pb.DeleteRepositoryResponse(purge_not_before_time=timestamp(purge_after_us))

    def _grace_us(self, request: pb.DeleteRepositoryRequest) -> int | None:
        """Returns the grace time of a deletion with data, None for one without.

        Raises:
            TarnError: FEATURE_LEVEL, INVALID: nothing was done.
        """
        if not request.with_data:
            return None
        self._features.require(Feature.NEW_FIELDS)
        return self._purges.grace_us(request.grace.seconds)

    async def _empty(self, repository: Repository) -> None:
        """Marks every branch as deleted and registers every partition to be dropped.

        Raises:
            TarnError: UNAVAILABLE: not all partitions are registered. The record must then stay, because
                only it leads to them.
        """
        keys = self._repositories.keys_of(repository)
        dead = [keys.refs, keys.commits, keys.changed, keys.reflog, keys.pulls]
        tokens = []
        async for branch_id, _ in self._iterators.branch_records(repository):
            name = BranchName(repository, branch_id)
            try:
                branch = await self._branches.mark_deleted(name)
            except TarnError as error:
                if error.reason is not Reason.BRANCH_NOT_FOUND:
                    raise
                continue  # deleted since its record was read, or its creation was given up
            tokens += [(name, token) for token in branch.tokens]
        dead += [keys.uploads(day) for day in await self._daily_uploads.days(repository)]
        if not await self._drops.register(dead, tokens):
            text = f"some of its {len(dead) + len(tokens)} partitions could not be registered to be dropped"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
