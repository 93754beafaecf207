"""Guards of bucket views, and the replacements that disable them (see `lake_guards`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn_graveler.handlers.buckets
import tarn_graveler.records.bucket_views
from tarn.gate.permits import Begun
from tarn.kv.records import BucketView, Repository
from tarn_graveler.records.bucket_views import BucketViews

__all__ = ["VIEW_GUARDS"]

_begin = BucketViews.begin_view


async def _believe(self: BucketViews, bucket: str, repository_id: str, begun: Begun) -> Repository:
    """Confirms nothing."""
    del bucket, begun
    return await self._repositories.get(repository_id)


def _without_uid(view: BucketView) -> str:
    """Tells two lives of a name apart by nothing."""
    return f"{0:032x}:{view.generation}"


def _begin_once(self: BucketViews, bucket: str) -> Begun:
    """Answers with what this replica has read before."""
    known: dict[str, Begun] = self.__dict__.setdefault("_once", {})
    begun = known.get(bucket)
    has_failed = (
        isinstance(begun, asyncio.Future)
        and begun.done()
        and (begun.cancelled() or begun.exception())
    )
    if begun is None or has_failed:
        begun = known[bucket] = _begin(self, bucket)
    return begun


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
        (
            Weakening(BucketViews, "begin_view", _begin_once),
            Weakening(BucketViews, "begin_view_beside", _begin_once),
        ),
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
