"""The exceptions of garbage collections; a part of `tarn.client.errors`."""

from __future__ import annotations

from tarn.client.failures import FailedPreconditionError
from tarn.core.errors import Reason

__all__ = [
    "CollectionHeldError",
    "CollectionLostError",
    "CollectionNoMarkError",
    "CollectionRunningError",
    "CollectionTooEarlyError",
    "NamespaceNotDoomedError",
]


class CollectionRunningError(FailedPreconditionError):
    """Another run of a garbage collection works on the repository, or a batch of deletions was never ended."""

    REASON = Reason.COLLECTION_RUNNING


class CollectionHeldError(FailedPreconditionError):
    """Garbage collections of the repository are held: release the hold, or wait for its end."""

    REASON = Reason.COLLECTION_HELD


class CollectionLostError(FailedPreconditionError):
    """The run of a garbage collection is over, or its lease is: it has to stop at once."""

    REASON = Reason.COLLECTION_LOST


class CollectionNoMarkError(FailedPreconditionError):
    """The mark to sweep is not the last complete one of the repository."""

    REASON = Reason.COLLECTION_NO_MARK


class CollectionTooEarlyError(FailedPreconditionError):
    """The grace time of the mark is not over."""

    REASON = Reason.COLLECTION_TOO_EARLY


class NamespaceNotDoomedError(FailedPreconditionError):
    """The data of a deleted repository are not to be deleted, or their deletion has begun and cannot be undone."""

    REASON = Reason.NAMESPACE_NOT_DOOMED
