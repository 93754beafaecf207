"""BucketService: bucket views, the bucket names of the S3 endpoint that show a ref of a repository."""

from __future__ import annotations

from tarn.core.access.service import Service
from tarn.core.cors import cors_to_json, parse_cors
from tarn.core.errors import TarnError
from tarn.core.ids import parse_repository_id
from tarn.core.levels import Feature
from tarn.gate.access import Access
from tarn.gate.permits import Caller, Permit, RepositoryPermit
from tarn.kv.records import BucketView, Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import page_of, timestamp
from tarn_graveler.records.bucket_views import bucket_not_found, etag_of, moved
from tarn_proto.graveler.v1 import bucket_service_pb2 as pb

__all__ = ["BucketHandler"]


def _message(view: BucketView) -> pb.BucketView:
    return pb.BucketView(
        bucket_id=view.bucket_id,
        repository_id=view.repository_id,
        ref=view.ref,
        etag=etag_of(view),
        create_time=timestamp(view.create_time_us),
        public_read=view.is_public_read,
    )


class BucketHandler:
    """Answers `tarn.graveler.v1.BucketService`."""

    def __init__(self, graveler: Graveler, access: Access) -> None:
        self._access = access
        self._views = graveler.bucket_views
        self._repositories = graveler.repositories
        self._refs = graveler.refs
        self._iterators = graveler.iterators
        self._page_keys = graveler.page_keys
        self._features = graveler.features

    async def CreateBucketView(
        self, request: pb.CreateBucketViewRequest, permit: Permit
    ) -> pb.CreateBucketViewResponse:
        """Creates a view of a ref that exists."""
        self._features.require(Feature.BUCKET_VIEWS)
        if request.public_read:
            self._features.require(Feature.NEW_FIELDS)
        bucket_id = parse_repository_id(request.bucket_id)
        repository, ref = await self._target(request.repository_id, request.ref, permit)
        view = await self._views.create(
            bucket_id, repository, ref, is_public_read=request.public_read
        )
        return pb.CreateBucketViewResponse(view=_message(view))

    async def _target(self, repository_id: str, ref: str, permit: Permit) -> tuple[Repository, str]:
        """Returns what a view will show; it exists now, and the caller may read it.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND, REF_NOT_FOUND, REF_AMBIGUOUS; DENIED, ACCESS_DENIED; INVALID.
        """
        self._repositories.forget(repository_id)  # perhaps an earlier one of the name
        repository = await self._repositories.get(repository_id)
        ref = ref or repository.default_branch
        permit.require_further("target", ref=ref)
        await self._refs.commit_of(repository, ref)
        return repository, ref

    async def GetBucketView(
        self, request: pb.GetBucketViewRequest, permit: Caller
    ) -> pb.GetBucketViewResponse:
        """Returns one view, to gateways that of any caller: they check what a request does to what the view shows."""
        view = await self._views.get(parse_repository_id(request.bucket_id))
        if not await self._access.is_service(permit.call, Service.GATEWAY):
            try:
                permit.require(permit.resource(view=view))
            except TarnError:
                # Nor does such a caller learn that the view exists, and what it shows.
                raise bucket_not_found(view.bucket_id) from None
        return pb.GetBucketViewResponse(view=_message(view))

    async def ListBuckets(
        self, request: pb.ListBucketsRequest, permit: Permit
    ) -> pb.ListBucketsResponse:
        """Returns one page of the names of what the caller may read; a page may be short although more follow."""
        tokens = await self._page_keys.tokens(
            permit.grant.user_id,
            "BucketService.ListBuckets",
            prefix=request.prefix,
            views_only=str(request.views_only),
        )
        cursor = self._iterators.buckets(prefix=request.prefix, views_only=request.views_only)
        found, next_token = await page_of(cursor, request, tokens)
        visible = [
            pb.Bucket(
                bucket_id=name,
                create_time=timestamp(shown.create_time_us),
                view=_message(shown) if isinstance(shown, BucketView) else None,
            )
            for name, shown in found
            if permit.has_further("each", shown=shown)
        ]
        return pb.ListBucketsResponse(buckets=visible, next_page_token=next_token)

    async def PointBucketView(
        self, request: pb.PointBucketViewRequest, permit: Permit
    ) -> pb.PointBucketViewResponse:
        """Has a view show another ref, which exists."""
        bucket_id = parse_repository_id(request.bucket_id)
        repository, ref = await self._target(request.repository_id, request.ref, permit)
        view = await self._views.point(bucket_id, repository, ref, request.etag)
        return pb.PointBucketViewResponse(view=_message(view))

    async def SetBucketViewPublicRead(
        self, request: pb.SetBucketViewPublicReadRequest, permit: Permit
    ) -> pb.SetBucketViewPublicReadResponse:
        """Lets anonymous S3 requests read what a view shows, or ends that. Whoever lets others may do it, too."""
        view = await self._views.get(parse_repository_id(request.bucket_id))
        if request.etag and request.etag != etag_of(view):
            raise moved(view.bucket_id)
        if request.public_read:
            self._features.require(Feature.NEW_FIELDS)
            permit.require_further("target", view=view)
        changed = await self._views.set_public_read(view, request.public_read)
        return pb.SetBucketViewPublicReadResponse(view=_message(changed))

    async def DeleteBucketView(
        self, request: pb.DeleteBucketViewRequest, permit: Permit
    ) -> pb.DeleteBucketViewResponse:
        """Deletes a view."""
        del permit
        await self._views.delete(parse_repository_id(request.bucket_id), request.etag)
        return pb.DeleteBucketViewResponse()

    async def GetBucketCors(
        self, request: pb.GetBucketCorsRequest, permit: Caller
    ) -> pb.GetBucketCorsResponse:
        """Returns the CORS rules of a bucket; gateways need them for anonymous preflights."""
        bucket_id = parse_repository_id(request.bucket_id)
        holder = await self._views.holder(bucket_id)
        if holder is None:
            raise bucket_not_found(bucket_id)
        if permit.grant.user_id != Service.GATEWAY.user_id:
            try:
                permit.require(permit.resource(holder=holder))
            except TarnError:
                # Such a caller does not learn that the bucket exists.
                raise bucket_not_found(bucket_id) from None
        is_view = isinstance(holder, BucketView)
        return pb.GetBucketCorsResponse(rules_json=holder.cors_json, is_view=is_view)

    def _checked_cors(self, rules_json: str) -> str:
        """Returns rules as they are stored.

        Raises:
            TarnError: INVALID; FAILED_PRECONDITION, FEATURE_LEVEL: a replica of the last release would remove them.
        """
        self._features.require(Feature.NEW_FIELDS)
        return cors_to_json(parse_cors(rules_json))

    async def SetBucketViewCors(
        self, request: pb.SetBucketViewCorsRequest, permit: Permit
    ) -> pb.SetBucketViewCorsResponse:
        """Replaces the CORS rules of a view."""
        del permit
        bucket_id = parse_repository_id(request.bucket_id)
        await self._views.set_cors(bucket_id, self._checked_cors(request.rules_json))
        return pb.SetBucketViewCorsResponse()

    async def SetRepositoryCors(
        self, request: pb.SetRepositoryCorsRequest, permit: RepositoryPermit
    ) -> pb.SetRepositoryCorsResponse:
        """Replaces the CORS rules of the bucket of a repository."""
        rules_json = self._checked_cors(request.rules_json)
        await self._repositories.set_cors(permit.repository, rules_json)
        return pb.SetRepositoryCorsResponse()
