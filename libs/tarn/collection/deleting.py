"""Deletes blocks: of data with retries and an outcome for each, of metadata in a batch that graveler knows.

The run makes sure that it may still delete before each request (`confirm`). A batch of ranges or metaranges is
announced to graveler (`Lease.begin_batch`), so that builders look again at those on which they rely. If the outcome
of its deletion is unknown, its end is never announced: a late deletion could meet a builder.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from tarn.aio.backoff import backoff_seconds
from tarn.aio.parallel import for_each
from tarn.block.port import BlockKey, BlockNotFoundError, BlockStore
from tarn.collection.block_names import BlockKind, Listed, paths_of
from tarn.collection.outcomes import Outcome, OutcomeLog
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.listing.run import Bools

__all__ = ["Deleter", "Lease", "delete_paths"]

_METADATA_DELETE_S: Final = 60.0
_SEND_S: Final = 120.0
"""Deletions of a batch are sent within this time of its begin. With the 15 minutes for which S3 takes a signed request
that is well below the time for which graveler keeps the batch open (`CollectionLimits.batch_us`)."""
_ATTEMPTS: Final = 4
_PAUSE_MAX_S: Final = 10.0
_AT_ONCE: Final = 16


class Lease(Protocol):
    """The right of this run to delete blocks of a repository (docs/design/collection.md)."""

    async def confirm(self) -> None:
        """Returns if the lease was confirmed a short time ago, if necessary by a new call.

        Raises:
            TarnError: COLLECTION_LOST, COLLECTION_HELD, or graveler gives no answer: nothing may be deleted.
        """
        ...

    async def renew(self) -> None:
        """Confirms the lease by a new call. It has not ended since the run began.

        Raises:
            TarnError: as `confirm`.
        """
        ...

    async def begin_batch(self, block_ids: Sequence[str]) -> None:
        """Announces that these ranges or metaranges, at most `BATCH_IDS_MAX`, may be deleted now.

        Raises:
            TarnError: as `confirm`.
        """
        ...

    async def end_batch(self) -> None:
        """Announces that no deletion of the batch is under way any more."""
        ...


@dataclass(frozen=True, slots=True)
class Deleter:
    """Deletes blocks of one namespace.

    Attributes:
        blocks: the block store.
        namespace: of the repository.
        log: gets the outcomes.
        clock: for pauses.
        rng: adds jitter to pauses.
    """

    blocks: BlockStore
    namespace: str
    log: OutcomeLog
    clock: Clock
    rng: random.Random

    async def delete_metadata(
        self, kind: BlockKind, rows: Listed, lease: Lease, cutoff_us: int
    ) -> None:
        """Deletes a batch of ranges or metaranges, but none that a builder has made young since the mark.

        Args:
            kind: RANGE or METARANGE.
            rows: at most `tarn.core.collection.BATCH_IDS_MAX`.
            lease: learns of the batch.
            cutoff_us: younger blocks are kept, microseconds since the epoch.

        Raises:
            TarnError: as `Lease`; that of the block store if it does not delete all, and UNKNOWN_OUTCOME if it does not
                answer; UNAVAILABLE if this process stood still, and nothing was deleted. The batch stays open then.
        """
        begun = self._times()
        await lease.begin_batch([key.tobytes().hex() for key in rows["key"]])
        is_young, is_gone = await self._looked_at(kind, rows, cutoff_us)
        doomed = rows[~(is_young | is_gone)]
        # No attempt may outlive this call, and no failure ends the batch: graveler keeps it open for a while.
        async with _deadline(self.namespace):
            self._require_recent(begun)  # nothing waits between this look and the request
            await self.blocks.delete_many(self.namespace, paths_of(kind, doomed["key"]).to_pylist())
        await lease.end_batch()
        self.log.add(kind, rows[is_young], Outcome.RENEWED)
        self.log.add(kind, rows[~is_young], Outcome.DELETED)

    def _times(self) -> tuple[float, float]:
        """Returns two times in seconds: a monotonic clock may stand still while a machine sleeps, and a wall clock may
        be set back."""
        return self.clock.now_us() / 1_000_000, self.clock.monotonic()

    def _require_recent(self, begun: tuple[float, float]) -> None:
        """Refuses to delete by looks that are too old: graveler may keep the batch open no longer.

        Raises:
            TarnError: UNAVAILABLE.
        """
        passed_s = max(now - then for now, then in zip(self._times(), begun, strict=True))
        if passed_s > _SEND_S:
            text = (
                f"this process stood still for {passed_s:.0f} s in a batch of deletions in {self.namespace}; "
                "nothing of the batch was deleted. The run ends here and can be resumed"
            )
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    async def delete_data(self, rows: Listed, confirm: Callable[[], Awaitable[None]]) -> None:
        """Deletes blocks of data. One that cannot be deleted does not keep the others.

        Args:
            rows: the blocks.
            confirm: called before each request; raises if nothing may be deleted any more.

        Raises:
            TarnError: that of the block store if it deletes nothing of several blocks; as `confirm`.
        """
        paths = paths_of(BlockKind.DATA, rows["key"]).to_pylist()
        is_deleted, error = await delete_paths(
            self.blocks, self.namespace, paths, confirm, self.clock, self.rng
        )
        self.log.add(BlockKind.DATA, rows[is_deleted], Outcome.DELETED)
        self.log.add(BlockKind.DATA, rows[~is_deleted], Outcome.FAILED)
        if error is not None and len(rows) > 1 and not is_deleted.any():
            raise error  # not one stuck block, but a store that deletes nothing

    async def _looked_at(
        self, kind: BlockKind, rows: Listed, cutoff_us: int
    ) -> tuple[Bools, Bools]:
        """Returns which blocks a builder has made young since the mark, and which are gone."""
        is_young, is_gone = np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
        paths = paths_of(kind, rows["key"]).to_pylist()

        async def look(at: int) -> None:
            try:
                info = await self.blocks.stat(BlockKey(self.namespace, paths[at]))
            except BlockNotFoundError:
                is_gone[at] = True
            else:
                is_young[at] = info.mtime_us >= cutoff_us

        await for_each(range(len(rows)), look, _AT_ONCE)
        return is_young, is_gone


async def delete_paths(
    blocks: BlockStore,
    namespace: str,
    paths: Sequence[str],
    confirm: Callable[[], Awaitable[None]],
    clock: Clock,
    rng: random.Random,
) -> tuple[Bools, TarnError | None]:
    """Deletes blocks, with retries; returns which were deleted, and the last error of the others.

    Args:
        blocks: the block store.
        namespace: of the blocks.
        paths: the blocks; at most some thousands.
        confirm: called before each request; raises if nothing may be deleted any more.
        clock: for pauses.
        rng: adds jitter to pauses.
    """
    is_deleted = np.zeros(len(paths), np.bool_)
    error: TarnError | None = None
    for attempt in range(_ATTEMPTS):
        await confirm()
        try:
            await blocks.delete_many(namespace, paths)
        except TarnError as failed:
            error = failed
            await clock.sleep(backoff_seconds(rng, attempt, most_s=_PAUSE_MAX_S))
        else:
            return ~is_deleted, None

    async def delete_one(at: int) -> None:
        nonlocal error
        await confirm()
        try:
            await blocks.delete_many(namespace, [paths[at]])
            is_deleted[at] = True
        except TarnError as failed:
            error = failed

    # One block that cannot be deleted must not keep the others.
    await for_each(range(len(paths)), delete_one, _AT_ONCE)
    return is_deleted, error


@asynccontextmanager
async def _deadline(namespace: str) -> AsyncIterator[None]:
    """Ends a deletion that takes too long, as one of unknown outcome."""
    try:
        async with asyncio.timeout(_METADATA_DELETE_S):
            yield
    except TimeoutError as error:
        text = (
            f"the block store of {namespace} did not answer a deletion within {_METADATA_DELETE_S:.0f} s; "
            "the run ends here and can be resumed"
        )
        raise TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, text) from error
