"""Bucket names that show a ref of a repository to S3 clients."""

from __future__ import annotations

from tarn.client.calls import PAGE_SIZE, Calls
from tarn.client.paging import Listing, listing
from tarn.client.values import BucketView

__all__ = ["BucketViewOperations"]


class BucketViewOperations(Calls):
    """Creates, changes and deletes bucket views."""

    async def create_bucket_view(
        self, bucket_id: str, repository_id: str, ref: str = "", *, public_read: bool = False
    ) -> BucketView:
        """Creates a bucket name that shows a ref of a repository: a branch, a tag or a commit.

        Args:
            bucket_id: 3 to 63 characters of `a-z 0-9 -`.
            repository_id: the repository.
            ref: empty: its default branch.
            public_read: whether anonymous S3 requests may read what it shows.

        Raises:
            BucketExistsError: the name belongs to a view or a repository.
        """
        return BucketView.of(
            await self.graveler.create_bucket_view(
                self.call(), bucket_id, repository_id, ref, public_read=public_read
            )
        )

    async def get_bucket_view(self, bucket_id: str) -> BucketView:
        """Returns one view, or raises `BucketNotFoundError`."""
        return BucketView.of(await self.graveler.get_bucket_view(self.call(), bucket_id))

    def list_bucket_views(
        self, *, prefix: str = "", page_size: int = PAGE_SIZE
    ) -> Listing[BucketView]:
        """Lists the views of repositories that the caller may read, in byte order of their names."""
        return listing(
            lambda token: self.graveler.list_buckets(
                self.call(), prefix=prefix, views_only=True, page_size=page_size, page_token=token
            ),
            lambda page: (BucketView.of(each.view) for each in page.buckets),
        )

    async def point_bucket_view(
        self, bucket_id: str, repository_id: str, ref: str = "", *, etag: str = ""
    ) -> BucketView:
        """Has a view show something else: for each request that begins after this has returned.

        Args:
            bucket_id: the view.
            repository_id: the repository that it will show.
            ref: empty: its default branch.
            etag: the version that the caller has seen; empty: whichever there is.

        Raises:
            BucketNotFoundError: the view does not exist.
            BucketMovedError: it has another version.
        """
        return BucketView.of(
            await self.graveler.point_bucket_view(
                self.call(), bucket_id, repository_id, ref, etag=etag
            )
        )

    async def set_bucket_view_public_read(
        self, bucket_id: str, public_read: bool, *, etag: str = ""
    ) -> BucketView:
        """Lets anonymous S3 requests read what a view shows, or ends that: for each request that begins after this has
        returned. Arguments and errors as `point_bucket_view`; `BucketMovedError` also for a change beside this one."""
        return BucketView.of(
            await self.graveler.set_bucket_view_public_read(
                self.call(), bucket_id, public_read, etag=etag
            )
        )

    async def delete_bucket_view(self, bucket_id: str, *, etag: str = "") -> None:
        """Deletes a view; what it shows stays. Arguments and errors as `point_bucket_view`."""
        await self.graveler.delete_bucket_view(self.call(), bucket_id, etag=etag)

    async def get_bucket_cors(self, bucket_id: str) -> str:
        """Returns the CORS rules of a bucket as JSON, empty if it has none; or raises `BucketNotFoundError`."""
        return (await self.graveler.get_bucket_cors(self.call(), bucket_id)).rules_json

    async def set_bucket_cors(self, bucket_id: str, rules_json: str) -> None:
        """Replaces the CORS rules of a bucket, a repository's or a view's.

        Args:
            bucket_id: the repository or the view.
            rules_json: all rules, in the form of `aws s3api put-bucket-cors`; empty: none.

        Raises:
            BucketNotFoundError, RepositoryNotFoundError: there is no such bucket.
            BucketMovedError: other rules were set at the same time.
        """
        is_view = (await self.graveler.get_bucket_cors(self.call(), bucket_id)).is_view
        await self.graveler.set_bucket_cors(self.call(), bucket_id, rules_json, is_view=is_view)
