"""The methods that users of `tarn.client` call. They take and return plain values, without messages of the wire.

Each module has the methods about one thing; `Operations` has all of them.
"""

from __future__ import annotations

from tarn.client.operations.bucket_views import BucketViewOperations
from tarn.client.operations.commits import CommitOperations
from tarn.client.operations.compactions import CompactionOperations
from tarn.client.operations.diffs import DiffOperations
from tarn.client.operations.merges import MergeOperations
from tarn.client.operations.objects import ObjectOperations
from tarn.client.operations.refs import RefOperations
from tarn.client.operations.repositories import RepositoryOperations
from tarn.client.operations.tasks import TaskOperations
from tarn.client.values import User

__all__ = ["Operations"]


class Operations(
    RepositoryOperations,
    BucketViewOperations,
    RefOperations,
    CommitOperations,
    DiffOperations,
    MergeOperations,
    TaskOperations,
    CompactionOperations,
    ObjectOperations,
):
    """The calls of a client. Every method raises a class of `tarn.client.errors`.

    A method about a repository raises `RepositoryNotFoundError` if it does not exist, and one with a ref raises
    `RefNotFoundError` or `RefAmbiguousError` if the ref names no single commit.

    A *ref* is a branch, a tag, a commit id or a unique prefix of one, or a branch with a moment, such as `main@{2}`;
    optionally with `~N` or `^N`. Listings are read page by page, `page_size` items at a time.

    Merges, reverts and picks: `choices` name the side that wins conflicts at the paths of a pattern, and the first
    pattern that matches decides; `default_side` decides the other conflicts. A conflict that neither decides refuses
    the operation with `MergeConflictError`; a branch with uncommitted changes, with `BranchDirtyError`.

    Rules and metadata of a repository have one ETag. A change with the ETag of settings that were replaced since raises
    `SettingsChangedError`: read the settings and decide again.

    Tasks are kept for one day after their end. The compactor of an installation compacts by itself.
    """

    async def get_caller(self) -> User:
        """Returns the user that this client is logged in as."""
        return User.of((await self.auth.get_caller(self.call())).user)
