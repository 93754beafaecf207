"""Refuses changes beyond the limits of a repository.

Each replica knows the usage of a repository at its last count, and adds the changes that it has admitted since. It
counts again in the background when that count is old, and before it refuses. So no refusal rests on stale numbers, and
several replicas together admit too much only for as long as a count is used (docs/design/quotas.md).

It also refuses what would fill the store with events while the bucket takes no files of the journal.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import structlog

from tarn.aio.bounded_map import BoundedMap
from tarn.aio.single_flight import FlightTimeoutError, SingleFlight
from tarn.aio.task_set import TaskSet
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import Limits, quota_exceeded
from tarn.kv.records import Repository
from tarn_graveler.journal.draining import Drain
from tarn_graveler.records.quotas import QuotaRecords
from tarn_graveler.usage.usage import UsageCounter

__all__ = ["NOT_LIMITED", "Admission"]

COUNT_SECONDS = 5.0
"""How long a count is used; longer if counting takes longer than a twentieth of it."""
_COUNT_SHARE = 20
_PAUSE_SHARE = 4
"""Counts for writes that would be refused take at most a fifth of the time: the next count, and the writes that need
it, wait this many times as long as the last one took."""
_WAIT_SECONDS = 5.0
"""How long a write waits for a count that another write makes, and a count for its pause."""
_REPOSITORIES_MAX = 10_000

NOT_LIMITED: AbstractContextManager[None] = nullcontext()
"""The block of a change to which no limit applies; it may be used by many at the same time."""


@dataclass(slots=True)
class _Used:
    """The usage of a repository, as this replica knows it.

    Attributes:
        counted: uncommitted objects and bytes, and open uploads, at the last count.
        counted_at: when it began; below 0: never.
        took_s: how long it took.
        added: the usage of admitted changes that may be missing in `counted`.
        ended: of that, the changes that are no longer under way. A count that begins now sees them all.
        begun: number of counts that have begun.
        known: number of the count that `counted` is from.
    """

    counted: tuple[int, int, int] = (0, 0, 0)
    counted_at: float = -1.0
    took_s: float = 0.0
    added: tuple[int, int, int] = (0, 0, 0)
    ended: tuple[int, int, int] = (0, 0, 0)
    begun: int = 0
    known: int = 0
    is_counting: bool = False

    def excess(self, limits: Limits, more: tuple[int, int, int]) -> tuple[str, int, int] | None:
        """Returns the name, value and usage of the first limit that `more` would exceed; None: no limit."""
        allowed = (limits.staged_objects, limits.staged_bytes, limits.uploads)
        for name, limit, counted, added, extra in zip(
            ("staged_objects", "staged_bytes", "uploads"),
            allowed,
            self.counted,
            self.added,
            more,
            strict=True,
        ):
            used = counted + added
            if limit and extra and used + extra > limit:
                return name, limit, used
        return None


class Admitted:
    """A change that was admitted, as a context manager around the change itself.

    A count that runs while the change is under way may miss its row. So the change is added to the counts until one
    begins after the change has ended.
    """

    __slots__ = ("_more", "_used")

    def __init__(self, used: _Used, more: tuple[int, int, int]) -> None:
        self._used = used
        self._more = more

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        self._used.ended = _sum(self._used.ended, self._more)


class Admission:
    """Admits or refuses changes that use more. Belongs to one event loop."""

    def __init__(
        self,
        records: QuotaRecords,
        counter: UsageCounter,
        clock: Clock,
        tasks: TaskSet,
        drain: Drain | None = None,
    ) -> None:
        self._require_drained = _admit_all if drain is None else drain.require_drained
        self.records = records
        self.counter = counter
        self._clock = clock
        self._tasks = tasks
        self._used: BoundedMap[str, _Used] = BoundedMap(_REPOSITORIES_MAX)
        self._counts: SingleFlight[str, None] = SingleFlight(_error_for_waiters)

    async def object(self, repository: Repository, size_bytes: int) -> AbstractContextManager[None]:
        """Admits one more uncommitted object; returns the block in which to stage it.

        Raises:
            TarnError: EXHAUSTED, QUOTA_EXCEEDED, JOURNAL_BEHIND; errors of the stores.
        """
        self._require_drained(repository)
        limits = self.records.of_repository(repository.repository_id)
        if limits.staged_objects or limits.staged_bytes:
            # An object without bytes is refused, too, once the bytes are used up.
            more = (1, max(1, size_bytes), 0)
            return await self._admit(repository, limits, more, more)
        return NOT_LIMITED

    async def upload(self, repository: Repository) -> AbstractContextManager[None]:
        """Admits one more open upload, unless there is no room for its object either.

        Returns the block in which to begin it. Raises as `object`.
        """
        self._require_drained(repository)
        limits = self.records.of_repository(repository.repository_id)
        if limits.uploads or limits.staged_objects or limits.staged_bytes:
            return await self._admit(repository, limits, (1, 1, 1), (0, 0, 1))
        return NOT_LIMITED

    async def room(self, repository: Repository) -> None:
        """Refuses if there is no room for any further object; takes none. Raises as `object`."""
        self._require_drained(repository)
        limits = self.records.of_repository(repository.repository_id)
        if limits.staged_objects or limits.staged_bytes:
            await self._admit(repository, limits, (1, 1, 0), (0, 0, 0))

    async def branch(self, repository: Repository) -> None:
        """Refuses if the repository has as many branches as it may have. Raises as `object`."""
        repository_id = repository.repository_id
        limit = self.records.of_repository(repository_id).branches
        if limit:
            count = await self.counter.branches(repository, limit)
            if count >= limit:
                raise quota_exceeded(repository_id, "branches", limit, count)

    async def _admit(
        self,
        repository: Repository,
        limits: Limits,
        asked: tuple[int, int, int],
        taken: tuple[int, int, int],
    ) -> Admitted:
        used = self._used.get(repository.instance_uid)
        if used is None:
            used = _Used()
            self._used.put(repository.instance_uid, used)
        now, begun = self._clock.monotonic(), used.begun
        if used.counted_at < 0:
            await self._count_in_time(repository, limits, used)
        elif now - used.counted_at > max(COUNT_SECONDS, _COUNT_SHARE * used.took_s):
            self._count_later(repository, limits, used)
        found = used.excess(limits, asked)
        for _ in range(2):  # the first count that it waits for may have begun before
            if found is None or used.known > begun:
                break
            await self._count_in_time(repository, limits, used)
            found = used.excess(limits, asked)
        if found is not None:
            raise quota_exceeded(repository.repository_id, *found)
        used.added = _sum(used.added, taken)
        return Admitted(used, taken)

    async def _count_in_time(self, repository: Repository, limits: Limits, used: _Used) -> None:
        """Counts, or waits for a count that began before; after `_WAIT_SECONDS` the known numbers decide."""
        try:
            await self._counts.run(
                repository.instance_uid,
                lambda: self._count(repository, limits, used),
                timeout_s=_WAIT_SECONDS,
            )
        except FlightTimeoutError:
            _log.warning("a count of a quota takes long", repository=repository.repository_id)

    def _count_later(self, repository: Repository, limits: Limits, used: _Used) -> None:
        if not used.is_counting:
            used.is_counting = True
            self._tasks.spawn(self._count_quietly(repository, limits, used))

    async def _count_quietly(self, repository: Repository, limits: Limits, used: _Used) -> None:
        try:
            await self._count_in_time(repository, limits, used)
        except TarnError as error:
            _log.warning("quota not counted", reason=error.reason, error=error.message)
        finally:
            used.is_counting = False

    async def _count(self, repository: Repository, limits: Limits, used: _Used) -> None:
        pause = used.counted_at + (1 + _PAUSE_SHARE) * used.took_s - self._clock.monotonic()
        if pause > 0:
            await self._clock.sleep(min(pause, _WAIT_SECONDS))
        used.begun += 1
        begin, seen = self._clock.monotonic(), used.ended
        objects = size = uploads = 0
        if limits.has_staged:
            objects, size = await self.counter.staged(repository, limits)
        if limits.uploads:
            uploads = await self.counter.uploads(repository, limits.uploads)
        used.counted = (objects, size, uploads)
        used.counted_at, used.known = begin, used.begun
        used.took_s = self._clock.monotonic() - begin
        # Changes that were under way during the count may be in it as well, so near a limit it is counted again.
        used.added = _difference(used.added, seen)
        used.ended = _difference(used.ended, seen)


_log = structlog.get_logger()


def _admit_all(_: Repository) -> None:
    """Without a journal."""


def _error_for_waiters(error: Exception) -> Exception | None:
    if isinstance(error, TarnError):
        return error.again()
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, "a count of a quota failed")


def _sum(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _difference(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
