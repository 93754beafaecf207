"""The fence: one record that says whether an installation may be used on this store.

While a transfer reads or fills a store, and after its data has moved elsewhere, no process may write to it:
such a write would be lost silently. The record is kept in the store itself, because the store is the one
thing that every process of the installation reads.

The same row records the store's feature level (`tarn.core.levels`), because the same processes have to obey it at the
same moments. A row without a state says that the store is open. A release that knows no levels cannot read such a row
and refuses the store.

- On the embedded store the fence is checked at start only: a tool opens the file *alone*, so no other
  process has it open.
- A Cassandra cluster does not show which processes use it. There every process answers on a *lease*
  (`FencedKv`): it has read the record less than `LEASE_SECONDS` ago. A read that begins after the fence was
  acknowledged sees the fence. So `QUIET_SECONDS` later no process answers any more, and every acknowledged
  write is in the store. Clocks need not agree; they only have to run at about the same rate. A process that
  was paused finds its lease expired when it resumes, because it checks the lease after the store answered.
"""

from __future__ import annotations

import enum
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

import pyarrow as pa

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import StoreLevel, unsupported
from tarn.kv.metered import MeasuresBatches
from tarn.kv.port import (
    Companion,
    CompanionName,
    Group,
    Kv,
    ListingKv,
    OutcomeUnknownError,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    ReadKv,
    Row,
    RowFilter,
    SiftedPage,
    Versioned,
)
from tarn.telemetry.meters import Histogram

__all__ = [
    "FENCE",
    "LEASE_SECONDS",
    "QUIET_SECONDS",
    "Fence",
    "FenceState",
    "FencedKv",
    "check_level",
    "check_open",
    "closed_by",
    "decode_store",
    "fence_partition",
    "read_fence",
    "read_level",
    "read_store",
    "write_fence",
]

LEASE_SECONDS = 3.0
QUIET_SECONDS = 5.0
"""Longer than a lease, even if one clock runs much faster than another."""

_AGAIN_SECONDS = 0.5
"""After a process has seen the fence closed, it refuses operations this long before it reads again."""
FENCE = b"fence"
"""The key of the fence record."""


class FenceState(enum.Enum):
    """Why an installation may not be used on this store. An installation that may be used has no record."""

    HELD = "held"
    """A transfer is reading the whole store."""
    LOADING = "loading"
    """A transfer is filling the store; data is still missing."""
    MOVED = "moved"
    """The data has moved to another store, where the installation continues."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The fence record.

    Attributes:
        state: why the installation is closed.
        transfer_id: the transfer that set the fence. Only this transfer may work behind it.
        run_id: the current attempt of that transfer. A later attempt replaces it, and the earlier one must
            then stop.
        about: the other end of the transfer, for people; without secrets.
        time_us: when the fence was set, in Unix microseconds.
        first_run_id: the first attempt of a transfer that fills a store, from which the new names of tokens follow
            (`tarn.snapshot.store.renaming`); empty for other transfers.
    """

    state: FenceState
    transfer_id: str
    run_id: str
    about: str
    time_us: int
    first_run_id: str = ""

    def fields(self) -> dict[str, str | int]:
        """The fence's part of the row."""
        return {
            "state": self.state.value,
            "transfer_id": self.transfer_id,
            "run_id": self.run_id,
            "about": self.about,
            "time_us": self.time_us,
            "first_run_id": self.first_run_id,
        }


def _encode(fence: Fence | None, level: StoreLevel) -> bytes | None:
    """The row for a fence and a level; None: no row."""
    if fence is None and level == StoreLevel():
        return None
    fields: dict[str, str | int] = {} if fence is None else fence.fields()
    if level != StoreLevel():
        fields |= {"level": level.level, "next_level": level.next_level}
    if fence is None:
        fields["about"] = (
            "open; a release that cannot read this row is too old for its feature level"
        )
    return json.dumps(fields, ensure_ascii=False).encode()


def decode_store(value: bytes) -> tuple[Fence | None, StoreLevel]:
    """Decodes the row: the fence, None if the store is open, and the level.

    Raises:
        TarnError: CORRUPT: the value is not such a row.
    """
    try:
        found = json.loads(value)
        first = StoreLevel()
        level = int(found.get("level", first.level))
        levels = StoreLevel(level, int(found.get("next_level", level)))
        if "state" not in found and "level" in found:
            return None, levels
        fence = Fence(
            FenceState(found["state"]),
            str(found["transfer_id"]),
            str(found["run_id"]),
            str(found["about"]),
            int(found["time_us"]),
            str(found.get("first_run_id", "")),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        text = f"the fence record cannot be read: {value[:200]!r}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
    return fence, levels


def fence_partition(installation_id: str) -> Partition:
    """The partition of the fence record. Transfers do not copy it."""
    return Partition(f"{installation_id}/fence", PartitionKind.REGISTER)


async def read_fence(kv: Kv, installation_id: str) -> tuple[Fence | None, Predicate | None]:
    """Reads the fence, None while the installation may be used, and the version of its row, None if there is none.

    Raises:
        TarnError: CORRUPT: the record cannot be read. Also the store's errors.
    """
    fence, _, predicate = await read_store(kv, installation_id)
    return fence, predicate


async def read_level(kv: Kv | ReadKv, installation_id: str) -> StoreLevel:
    """Reads the level of a store. Raises as `read_fence`."""
    _, level, _ = await read_store(kv, installation_id)
    return level


async def read_store(
    kv: Kv | ReadKv, installation_id: str
) -> tuple[Fence | None, StoreLevel, Predicate | None]:
    """Reads the fence, the level and the version of their row. Raises as `read_fence`."""
    (found,) = await kv.get_many(fence_partition(installation_id), [FENCE])
    if found is None:
        return None, StoreLevel(), None
    return *decode_store(found.value), found.predicate


async def write_fence(
    kv: Kv,
    installation_id: str,
    fence: Fence | None,
    predicate: Predicate | None,
    *,
    level: StoreLevel | None = None,
) -> None:
    """Sets the fence, or removes it, if the version of its row is still `predicate`.

    The level stays as it is if `level` is None. After a lost race or an unknown outcome, the record is read again and
    decides the result.

    Raises:
        TarnError: CONFLICT: another process changed the fence. Also the store's errors.
    """
    partition = fence_partition(installation_id)
    if level is None:
        level = await read_level(
            kv, installation_id
        )  # if it changes after this, so does the version
    value = _encode(fence, level)
    try:
        if value is not None:
            await kv.set_if(partition, FENCE, value, predicate)
        elif predicate is not None:
            await kv.delete_if(partition, FENCE, predicate)
    except TarnError as error:
        if error.kind not in {Kind.CONFLICT, Kind.UNKNOWN_OUTCOME}:
            raise
        (found,) = await kv.get_many(partition, [FENCE], settle=True)
        if (None if found is None else found.value) != value:
            raise


def closed_by(fence: Fence | None, installation_id: str) -> str:
    """The error text for a fence: why the installation is closed, and what to do."""
    if fence is None:
        return f"installation {installation_id!r} was opened again by another process"
    what = {
        FenceState.HELD: "is closed while a transfer reads its metadata",
        FenceState.LOADING: "is incomplete: its metadata is still being loaded",
        FenceState.MOVED: "has moved elsewhere",
    }[fence.state]
    text = f"installation {installation_id!r} {what} ({fence.about})"
    return f"{text}; if that transfer is finished or was given up, `tarn kv reopen` opens it again"


async def check_level(kv: Kv | ReadKv, installation_id: str) -> None:
    """Raises `TarnError` FAILED_PRECONDITION if this release does not support the level of the store."""
    (found,) = await kv.get_many(fence_partition(installation_id), [FENCE])
    level = StoreLevel() if found is None else decode_store(found.value)[1]
    if text := unsupported(level, installation_id):
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.FEATURE_LEVEL, text)


async def check_open(kv: Kv, installation_id: str) -> None:
    """Raises `TarnError` FAILED_PRECONDITION if the installation, or this release, may not be used on this store."""
    await check_level(kv, installation_id)
    fence, _ = await read_fence(kv, installation_id)
    if fence is not None:
        text = closed_by(fence, installation_id)
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.UNAVAILABLE, text, state=fence.state.value)


class FencedKv:
    """`Kv` that answers on a lease: it gives no answer after the fence has taken effect.

    Each operation costs one look at the clock, and every `LEASE_SECONDS` one row is read.

    Args:
        kv: the store; closing the wrapper closes it.
        installation_id: the installation whose fence is read.
        clock: measures the lease with its monotonic time.
        behind: the fence that the caller has set itself and may work behind; None: every fence stops it.
    """

    def __init__(
        self, kv: ListingKv, installation_id: str, clock: Clock, behind: Fence | None = None
    ) -> None:
        self._kv = kv
        self._behind = behind
        self._installation_id = installation_id
        self._now = clock.monotonic
        self._open_until = float("-inf")
        self._found: Fence | None = None
        self._too_old = ""
        self._is_closed = False
        self._look_after = float("-inf")

    def measure_batches(self, sizes: Histogram) -> None:
        """See `tarn.kv.metered.MeasuresBatches`; a store that does not measure them is not asked."""
        if isinstance(self._kv, MeasuresBatches):
            self._kv.measure_batches(sizes)

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        found = await self._kv.get_many(partition, keys, settle=settle)
        if self._now() >= self._open_until:
            await self._renew()
        return found

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`. A write that landed after the fence was set has an unknown outcome: the
        transfer may or may not copy it."""
        await self._before_write()
        outcomes = await self._kv.set_many(partition, groups)
        try:
            await self._after_write()
        except OutcomeUnknownError as error:
            return [outcome or error for outcome in outcomes]
        return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        await self._before_write()
        try:
            version = await self._kv.set_if(partition, key, value, predicate, companions=companions)
        except PredicateFailedError:
            await self._before_answer()
            raise
        await self._after_write()
        return version

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        await self._before_write()
        await self._kv.delete_many(partition, keys)
        await self._after_write()

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        await self._before_write()
        try:
            await self._kv.delete_if(partition, key, predicate, companions=companions)
        except PredicateFailedError:
            await self._before_answer()
            raise
        await self._after_write()

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`."""
        rows = await self._kv.scan(partition, start, end, limit)
        if self._now() >= self._open_until:
            await self._renew()
        return rows

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        page = await self._kv.scan_without(partition, start, end, limit, unwanted)
        if self._now() >= self._open_until:
            await self._renew()
        return page

    async def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """See `Kv.scan_arrow`."""
        batches = cast(
            "AsyncGenerator[pa.RecordBatch, None]", self._kv.scan_arrow(partition, start, end)
        )
        async with aclosing(batches):
            async for batch in batches:
                if self._now() >= self._open_until:
                    await self._renew()
                yield batch
        await self._before_answer()  # also when the scan found nothing

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        found = await self._kv.scan_companions(partition, start, end, limit)
        await self._before_answer()
        return found

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        await self._before_write()
        await self._kv.delete_companions(partition, names)
        await self._after_write()

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        await self._before_write()
        await self._kv.drop_partition(partition)
        await self._after_write()

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        async for listed in self._kv.partitions(prefix):
            yield listed
        await self._before_answer()

    async def close(self) -> None:
        """See `Kv.close`."""
        await self._kv.close()

    async def _before_answer(self) -> None:
        if self._now() >= self._open_until:
            await self._renew()

    # The guarantee does not need this check, but a store that a transfer reads should get no load.
    _before_write = _before_answer

    async def _after_write(self) -> None:
        if self._now() < self._open_until:
            return
        try:
            await self._renew()
        except TarnError as error:
            raise OutcomeUnknownError(error.message) from error

    async def _renew(self) -> None:
        """Reads the fence. The lease starts at the moment before the read.

        Raises:
            TarnError: UNAVAILABLE: the installation is closed, or the store does not answer.
        """
        began = self._now()
        if not self._is_closed or began >= self._look_after:
            self._found, level, _ = await read_store(self._kv, self._installation_id)
            self._too_old = unsupported(level, self._installation_id)
            self._is_closed = self._found != self._behind or bool(self._too_old)
            self._look_after = began + _AGAIN_SECONDS
        if self._is_closed:
            text = self._too_old or closed_by(self._found, self._installation_id)
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
        self._open_until = max(self._open_until, began + LEASE_SECONDS)
