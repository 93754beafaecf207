"""Client of graveler's operations on repositories."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import repository_service_pb2 as pb
from tarn_proto.graveler.v1.repository_service_rpc import RepositoryServiceClient

__all__ = ["RepositoryClient"]


class RepositoryClient(RpcClient):
    """Creates, reads and deletes repositories. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._repository_service = RepositoryServiceClient(transport)

    async def create_repository(
        self,
        call: Call,
        repository_id: str,
        *,
        storage_namespace: str = "",
        default_branch_id: str = "",
    ) -> pb.Repository:
        """Creates a repository with an empty first commit and a default branch.

        Args:
            call: the request that this rpc belongs to.
            repository_id: 3 to 63 characters of `a-z 0-9 -`.
            storage_namespace: empty: Tarn makes one under the installation's default prefix.
            default_branch_id: empty: `main`.
        """
        request = pb.CreateRepositoryRequest(
            repository_id=repository_id,
            storage_namespace=storage_namespace,
            default_branch_id=default_branch_id,
        )
        answer = await self._repository_service.CreateRepository(request, call)
        return answer.repository

    async def get_repository(self, call: Call, repository_id: str) -> pb.Repository:
        """Returns one repository."""
        request = pb.GetRepositoryRequest(repository_id=repository_id)
        answer = await self._repository_service.GetRepository(request, call)
        return answer.repository

    async def list_repositories(
        self, call: Call, *, prefix: str = "", page_size: int = 0, page_token: str = ""
    ) -> pb.ListRepositoriesResponse:
        """Returns a page of the repositories that the caller may read: `repositories`, `next_page_token`."""
        request = pb.ListRepositoriesRequest(
            prefix=prefix, page_size=page_size, page_token=page_token
        )
        return await self._repository_service.ListRepositories(request, call)

    async def delete_repository(
        self,
        call: Call,
        repository_id: str,
        *,
        with_data: bool = False,
        grace_seconds: int = 0,
    ) -> int:
        """Deletes a repository's metadata. Its blocks stay in the block store, unless it is deleted with its data.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository.
            with_data: garbage collections delete its data after a grace time, too.
            grace_seconds: the grace time; 0: 7 days.

        Returns:
            From when the data may be deleted, microseconds since the epoch; 0: they stay. That is also the answer of a
            graveler that is too old to delete them.
        """
        grace = Duration(seconds=grace_seconds) if grace_seconds else None
        request = pb.DeleteRepositoryRequest(
            repository_id=repository_id, with_data=with_data, grace=grace
        )
        answer = await self._repository_service.DeleteRepository(request, call)
        return answer.purge_not_before_time.ToMicroseconds()
