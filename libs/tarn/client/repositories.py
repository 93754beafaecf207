"""Client of graveler's operations on repositories and bucket views, which share their names."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from tarn.client.rpc_client import RpcClient
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import bucket_service_pb2
from tarn_proto.graveler.v1 import repository_service_pb2 as pb
from tarn_proto.graveler.v1.bucket_service_rpc import BucketServiceClient
from tarn_proto.graveler.v1.repository_service_rpc import RepositoryServiceClient

__all__ = ["RepositoryClient"]


class RepositoryClient(RpcClient):
    """Creates, reads and deletes repositories and bucket views. Methods raise the `TarnError` that graveler raised."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._repository_service = RepositoryServiceClient(transport)
        self._bucket_service = BucketServiceClient(transport)

    async def create_repository(
        self,
        call: Call,
        repository_id: str,
        *,
        storage_namespace: str = "",
        default_branch_id: str = "",
        client_namespace: str = "",
    ) -> pb.Repository:
        """Creates a repository with an empty first commit and a default branch.

        Args:
            call: the request that this rpc belongs to.
            repository_id: 3 to 63 characters of `a-z 0-9 -`.
            storage_namespace: empty: Tarn makes one under the installation's default prefix.
            default_branch_id: empty: `main`.
            client_namespace: a place that is shown to clients of another interface; nothing is kept there.
        """
        request = pb.CreateRepositoryRequest(
            repository_id=repository_id,
            storage_namespace=storage_namespace,
            default_branch_id=default_branch_id,
            client_namespace=client_namespace,
        )
        answer = await self._repository_service.CreateRepository(request, call)
        return answer.repository

    async def get_repository(self, call: Call, repository_id: str) -> pb.Repository:
        """Returns one repository."""
        request = pb.GetRepositoryRequest(repository_id=repository_id)
        answer = await self._repository_service.GetRepository(request, call)
        return answer.repository

    async def list_repositories(
        self,
        call: Call,
        *,
        prefix: str = "",
        page_size: int = 0,
        page_token: str = "",
        after: str = "",
    ) -> pb.ListRepositoriesResponse:
        """Returns a page of the repositories that the caller may read, with ids greater than `after`: `repositories`,
        `next_page_token`."""
        request = pb.ListRepositoriesRequest(
            prefix=prefix, page_size=page_size, page_token=page_token, after=after
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

    async def create_bucket_view(
        self,
        call: Call,
        bucket_id: str,
        repository_id: str,
        ref: str = "",
        *,
        public_read: bool = False,
    ) -> bucket_service_pb2.BucketView:
        """Creates a bucket name that shows a ref of a repository.

        Args:
            call: the request that this rpc belongs to.
            bucket_id: 3 to 63 characters of `a-z 0-9 -`, that no repository and no other view has.
            repository_id: the repository.
            ref: a branch, a tag or a commit; empty: the default branch.
            public_read: whether anonymous S3 requests may read what it shows.
        """
        request = bucket_service_pb2.CreateBucketViewRequest(
            bucket_id=bucket_id, repository_id=repository_id, ref=ref, public_read=public_read
        )
        answer = await self._bucket_service.CreateBucketView(request, call)
        return answer.view

    async def get_bucket_view(self, call: Call, bucket_id: str) -> bucket_service_pb2.BucketView:
        """Returns one view, as it is now."""
        request = bucket_service_pb2.GetBucketViewRequest(bucket_id=bucket_id)
        answer = await self._bucket_service.GetBucketView(request, call)
        return answer.view

    async def list_buckets(
        self,
        call: Call,
        *,
        prefix: str = "",
        views_only: bool = False,
        page_size: int = 0,
        page_token: str = "",
    ) -> bucket_service_pb2.ListBucketsResponse:
        """Returns a page of the bucket names of repositories that the caller may read: `buckets`, `next_page_token`."""
        request = bucket_service_pb2.ListBucketsRequest(
            prefix=prefix, views_only=views_only, page_size=page_size, page_token=page_token
        )
        return await self._bucket_service.ListBuckets(request, call)

    async def point_bucket_view(
        self, call: Call, bucket_id: str, repository_id: str, ref: str = "", *, etag: str = ""
    ) -> bucket_service_pb2.BucketView:
        """Has a view show something else: for each request that begins after this has returned.

        Args:
            call: the request that this rpc belongs to.
            bucket_id: the view.
            repository_id: the repository that it will show.
            ref: as in `create_bucket_view`.
            etag: the version that the caller has seen; empty: whichever there is.
        """
        request = bucket_service_pb2.PointBucketViewRequest(
            bucket_id=bucket_id, repository_id=repository_id, ref=ref, etag=etag
        )
        answer = await self._bucket_service.PointBucketView(request, call)
        return answer.view

    async def set_bucket_view_public_read(
        self, call: Call, bucket_id: str, public_read: bool, *, etag: str = ""
    ) -> bucket_service_pb2.BucketView:
        """Lets anonymous S3 requests read what a view shows, or ends that: for each request that begins after this has
        returned. `etag` as in `point_bucket_view`."""
        request = bucket_service_pb2.SetBucketViewPublicReadRequest(
            bucket_id=bucket_id, public_read=public_read, etag=etag
        )
        answer = await self._bucket_service.SetBucketViewPublicRead(request, call)
        return answer.view

    async def delete_bucket_view(self, call: Call, bucket_id: str, *, etag: str = "") -> None:
        """Deletes a view; what it shows stays. `etag` as in `point_bucket_view`."""
        request = bucket_service_pb2.DeleteBucketViewRequest(bucket_id=bucket_id, etag=etag)
        await self._bucket_service.DeleteBucketView(request, call)

    async def get_bucket_cors(
        self, call: Call, bucket_id: str
    ) -> bucket_service_pb2.GetBucketCorsResponse:
        """Returns the CORS rules of a bucket (`rules_json`, empty: none), and whether it is a view (`is_view`)."""
        request = bucket_service_pb2.GetBucketCorsRequest(bucket_id=bucket_id)
        return await self._bucket_service.GetBucketCors(request, call)

    async def set_bucket_cors(
        self, call: Call, bucket_id: str, rules_json: str, *, is_view: bool
    ) -> None:
        """Replaces the CORS rules of a bucket.

        Args:
            call: context of the call.
            bucket_id: name of the bucket.
            rules_json: all rules (`tarn.core.cors`); empty: none.
            is_view: whether it is a bucket view; otherwise it is a repository.
        """
        if is_view:
            request = bucket_service_pb2.SetBucketViewCorsRequest(
                bucket_id=bucket_id, rules_json=rules_json
            )
            await self._bucket_service.SetBucketViewCors(request, call)
            return
        await self._bucket_service.SetRepositoryCors(
            bucket_service_pb2.SetRepositoryCorsRequest(
                repository_id=bucket_id, rules_json=rules_json
            ),
            call,
        )
