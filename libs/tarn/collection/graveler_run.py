"""A run of a collection as graveler sees it: its lease, its roots, its batches of deletions.

The lease is renewed beside the work. If it is lost, the repository is held, or graveler does not answer for too
long, the work is cancelled: another run may begin when the lease ends.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from tarn.aio.backoff import backoff_seconds
from tarn.aio.first_error import collapse_error_groups
from tarn.client.collections import CollectionClient
from tarn.collection.references import RootBatch
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, MetarangeId
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["GravelerRun"]

T = TypeVar("T")

_RENEW_SHARE: Final = 0.1
"""The lease is renewed after this share of its length: 30 s of 300 s."""
_FRESH_SHARE: Final = 0.2
"""Data may be deleted this long after the begin of the last call that confirmed the lease: 60 s of 300 s."""
_STOP_SHARE: Final = 0.8
"""Work without a confirmation stops after this time: 240 s of 300 s."""
_ATTEMPTS: Final = 5
_AGAIN: Final = (Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME, Kind.DEADLINE, Kind.EXHAUSTED)
"""Failures after which a call is repeated: graveler allows each of them to be sent twice."""


class GravelerRun:
    """Implements `Roots` and `Lease` for one run, which the caller has begun.

    Args:
        client: of graveler's collections.
        call: makes the context of each call.
        repository_id: the repository.
        run_id: the run.
        begun: when the call that began the run was sent, by the monotonic clock.
        lease_s: length of the lease.
        clock: measures the lease.
        rng: adds jitter to pauses.
    """

    def __init__(
        self,
        client: CollectionClient,
        call: Callable[[], Call],
        repository_id: str,
        run_id: str,
        begun: float,
        lease_s: float,
        clock: Clock,
        rng: random.Random,
    ) -> None:
        self._client = client
        self._call = call
        self._place = (repository_id, run_id)
        self._confirmed = begun
        self._lease_s = lease_s
        self._clock = clock
        self._rng = rng

    @asynccontextmanager
    async def renewed(self) -> AsyncIterator[None]:
        """Renews the lease during the block; cancels the block if the lease is lost, and raises the reason.

        Raises:
            TarnError: COLLECTION_LOST, COLLECTION_HELD; UNAVAILABLE if graveler did not answer for too long.
        """
        with collapse_error_groups():
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self._keep_renewing())
                try:
                    yield
                finally:
                    renewing.cancel()

    async def _keep_renewing(self) -> None:
        while True:
            await self._clock.sleep(_RENEW_SHARE * self._lease_s)
            try:
                await self._renew()
            except TarnError as error:
                if error.kind not in _AGAIN:
                    raise
                most_s = _STOP_SHARE * self._lease_s
                if self._clock.monotonic() - self._confirmed > most_s:
                    text = (
                        f"graveler did not confirm the collection of {self._place[0]} for {most_s:.0f} s, so it "
                        f"stops; begin it again: {error.message}"
                    )
                    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error

    async def _renew(self) -> None:
        begun = self._clock.monotonic()
        await self._client.renew(self._call(), *self._place)
        self._confirmed = begun

    async def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        """Yields all roots; see `Roots`. Each page is asked for when the one before has come."""
        token = ""
        while True:
            page = await self.repeated(
                lambda token=token: self._client.list_roots(  # type: ignore[misc]
                    self._call(), *self._place, page_token=token
                )
            )
            emptied = set(page.emptied_metarange_ids)
            whole = [each for each in page.metarange_ids if each not in emptied]
            yield RootBatch(
                page.addresses,
                _keys(whole),
                _keys(sorted(emptied)),
                _keys(page.keeping_metarange_ids),
                page.keep_written_since_us,
                page.read_addresses,
                page.keeps_all_objects,
            )
            token = page.next_page_token
            if not token:
                return

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        """See `Roots.in_use`."""
        found = await self.repeated(
            lambda: self._client.listings_in_use(self._call(), *self._place, listings)
        )
        return set(map(MetarangeId, found))

    async def history_pages(self) -> AsyncGenerator[pb.ListHistoryResponse, None]:
        """Yields the pages of the history, for `tarn.collection.expiring`."""
        token = ""
        while True:
            page = await self.repeated(
                lambda token=token: self._client.list_history(  # type: ignore[misc]
                    self._call(), self._place[0], page_token=token
                )
            )
            yield page
            token = page.next_page_token
            if not token:
                return

    async def expire(self, commits: Mapping[CommitId, str]) -> int:
        """Lets up to `EXPIRE_MAX` commits expire, each by the rule that is named; returns their number."""
        return await self.repeated(
            lambda: self._client.expire_commits(self._call(), *self._place, commits)
        )

    async def expire_tags(self, tags: Sequence[pb.ExpiringTag]) -> int:
        """Deletes up to `EXPIRE_MAX` tags; returns how many the last attempt deleted."""
        return await self.repeated(
            lambda: self._client.expire_tags(self._call(), *self._place, tags)
        )

    async def confirm(self) -> None:
        """See `Lease.confirm`."""
        if self._clock.monotonic() - self._confirmed > _FRESH_SHARE * self._lease_s:
            await self.renew()

    async def renew(self) -> None:
        """See `Lease.renew`."""
        await self.repeated(self._renew)

    async def begin_batch(self, block_ids: Sequence[str]) -> None:
        """See `Lease.begin_batch`."""
        await self.repeated(lambda: self._client.begin_batch(self._call(), *self._place, block_ids))

    async def end_batch(self) -> None:
        """See `Lease.end_batch`."""
        await self.repeated(lambda: self._client.end_batch(self._call(), *self._place))

    async def repeated(self, send: Callable[[], Awaitable[T]]) -> T:
        """Makes a call, and repeats it while graveler cannot answer; every call of a run may be sent twice."""
        for attempt in range(_ATTEMPTS - 1):
            try:
                return await send()
            except TarnError as error:
                if error.kind not in _AGAIN:
                    raise
            await self._clock.sleep(backoff_seconds(self._rng, attempt, most_s=5.0))
        return await send()


def _keys(ids: Iterable[str]) -> bytes:
    return b"".join(map(bytes.fromhex, ids))
