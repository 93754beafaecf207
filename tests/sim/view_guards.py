"""Guards of bucket views, and the replacements that disable them (see `lake_guards`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import tarn_graveler.handlers.buckets
import tarn_graveler.records.bucket_views
from tarn.kv.port import Versioned
from tarn.kv.records import BucketView, Repository
from tarn.testing.faults.guards import Guard, Weakening
from tarn.testing.faults.modes import Mode
from tarn_graveler.records.bucket_views import BucketViews

__all__ = ["VIEW_GUARDS"]

_read = BucketViews._begin_read


async def _believe(
    self: BucketViews, bucket: str, repository_id: str, found: Versioned | None
) -> Repository:
    """Confirms nothing."""
    del bucket, found
    return await self._repositories.get(repository_id)


def _without_uid(view: BucketView) -> str:
    """Tells two lives of a name apart by nothing."""
    return f"{0:032x}:{view.generation}"


def _read_once(self: BucketViews, bucket_id: str) -> asyncio.Future[Versioned | None]:
    """Answers with what this replica has read before."""
    known: dict[str, asyncio.Future[Versioned | None]] = self.__dict__.setdefault("_once", {})
    answer = known.get(bucket_id)
    if answer is None or (answer.done() and (answer.cancelled() or answer.exception())):
        answer = known[bucket_id] = _read(self, bucket_id)
    return answer


VIEW_GUARDS: Sequence[Guard] = (
    Guard(
        "view-is-confirmed",
        "views",
        "I12",
        "a call through a view is not compared with what the view shows",
        (Weakening(BucketViews, "confirm", _believe),),
        mode=Mode.VIEWS,
    ),
    Guard(
        "view-is-read-afresh",
        "views",
        "I12",
        "a replica believes what it has read of a view before",
        (Weakening(BucketViews, "_begin_read", _read_once),),
        mode=Mode.VIEWS,
    ),
    Guard(
        "view-has-a-uid",
        "views",
        "I12",
        "a view that is deleted and made again begins with the same version",
        (
            Weakening(tarn_graveler.records.bucket_views, "etag_of", _without_uid),
            Weakening(tarn_graveler.handlers.buckets, "etag_of", _without_uid),
        ),
        mode=Mode.VIEWS,
    ),
)
