"""RepositoryService: repositories, which are the buckets of the S3 endpoint."""

from __future__ import annotations

from tarn.core.actions import REPOSITORIES, action_of, repository_resource
from tarn.core.commit import Commit
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id, parse_repository_id
from tarn.kv.port import PredicateFailedError
from tarn.kv.records import Repository
from tarn.rpc import pagination
from tarn.rpc.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.repositories import repository_not_found
from tarn_graveler.serving import Door, paging, timestamp
from tarn_proto.graveler.v1 import repository_service_pb2 as pb

__all__ = ["RepositoryHandler"]

_PAGE = 1000


def _message(repository: Repository) -> pb.Repository:
    return pb.Repository(
        repository_id=repository.repository_id,
        instance_uid=repository.instance_uid,
        storage_namespace=repository.storage_namespace,
        default_branch_id=repository.default_branch,
        create_time=timestamp(repository.create_time_us),
    )


class RepositoryHandler:
    """Answers `tarn.graveler.v1.RepositoryService`."""

    def __init__(self, door: Door, graveler: Graveler) -> None:
        self._door = door
        self._repositories = graveler.repositories
        self._branches = graveler.branches
        self._commits = graveler.commits
        self._committed = graveler.committed
        self._cleaning = graveler.cleaning
        self._upload_days = graveler.upload_days
        self._clock = graveler.clock

    async def CreateRepository(
        self, request: pb.CreateRepositoryRequest, call: Call
    ) -> pb.CreateRepositoryResponse:
        """First commit and default branch are made before the repository can be seen."""
        repository_id = parse_repository_id(request.repository_id)
        resource = repository_resource(repository_id)
        grant = await self._door.enter(call, "RepositoryService.CreateRepository", resource)
        default_branch = parse_branch_id(request.default_branch_id or "main")
        if await self._repositories.exists(repository_id):
            text = f"repository {repository_id} exists already"
            raise TarnError(Kind.ALREADY_EXISTS, Reason.REPOSITORY_EXISTS, text)
        repository = await self._repositories.reserve(
            repository_id, request.storage_namespace, default_branch
        )
        built = await self._committed.build(repository.storage_namespace, None, [])
        commit = Commit(
            parents=(),
            metarange_id=built.metarange_id,
            committer=grant.user_id,
            message="Repository created",
            create_time_us=self._clock.now_us(),
            generation=0,
            metadata=(),
        )
        commit_id = await self._commits.add(repository, commit)
        await self._branches.create(repository, default_branch, commit_id)
        await self._repositories.publish(repository)
        return pb.CreateRepositoryResponse(repository=_message(repository))

    async def GetRepository(
        self, request: pb.GetRepositoryRequest, call: Call
    ) -> pb.GetRepositoryResponse:
        """One repository."""
        repository, _ = await self._door.enter_repository(
            call, "RepositoryService.GetRepository", request.repository_id
        )
        return pb.GetRepositoryResponse(repository=_message(repository))

    async def ListRepositories(
        self, request: pb.ListRepositoriesRequest, call: Call
    ) -> pb.ListRepositoriesResponse:
        """A page of what the caller may read; it may be short although more follow."""
        grant = await self._door.enter(call, "RepositoryService.ListRepositories", REPOSITORIES)
        read = action_of("tarn.graveler.v1.RepositoryService.GetRepository")
        assert read is not None, "reading a repository is not public"
        limit = paging(request.page_size)
        after = pagination.decode(request.page_token, prefix=request.prefix)
        found = await self._repositories.page(request.prefix, after, limit)
        next_token = ""
        if len(found) == limit:
            next_token = pagination.encode(found[-1].repository_id, prefix=request.prefix)
        visible = [
            _message(repository)
            for repository in found
            if not repository.is_deleted
            and grant.allows(read, repository_resource(repository.repository_id))
        ]
        return pb.ListRepositoriesResponse(repositories=visible, next_page_token=next_token)

    async def DeleteRepository(
        self, request: pb.DeleteRepositoryRequest, call: Call
    ) -> pb.DeleteRepositoryResponse:
        """Marks the repository, then each branch, then drops: the order that writers rely on.

        Whatever interrupts it, asking again goes on where it stopped.
        """
        repository_id = parse_repository_id(request.repository_id)
        resource = repository_resource(repository_id)
        await self._door.enter(call, "RepositoryService.DeleteRepository", resource)
        repository = await self._repositories.mark_deleted(repository_id)
        keys = self._repositories.keys_of(repository)
        dead = [keys.refs, keys.commits]
        after = ""
        while page := await self._branches.page(repository, "", after, _PAGE):
            for branch_id, _ in page:
                branch = await self._branches.mark_deleted(repository, branch_id)
                dead += [keys.token(branch_id, token) for token in branch.tokens]
            after = page[-1][0]
        dead += [keys.uploads(day) for day in await self._upload_days.days(repository)]
        await self._cleaning.register(dead)
        try:
            await self._repositories.remove(repository)
        except PredicateFailedError as error:
            raise repository_not_found(repository_id) from error
        return pb.DeleteRepositoryResponse()
