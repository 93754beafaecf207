"""The processes that have a store open: each one keeps a row that says which release it is, and obeys the level.

The rows inform operators and `tarn upgrade finish`. Safety does not rest on them: a process that does not support the
level is stopped by its lease (`FencedKv`), also if it was paused for hours. On the embedded store, which has no leases,
the level is raised only while no process has the file open.

A row lies beside the fence, so no transfer copies it. A process that ends removes its own; that of a process that was
killed expires.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Final, Never, Self

import structlog

from tarn.aio.task_set import TaskSet
from tarn.config import Config
from tarn.core.clock import Clock, IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.levels import LEVEL_MAX, LEVEL_MIN, FeatureGate, StoreLevel, unsupported
from tarn.kv.fence import check_open, fence_partition, read_level
from tarn.kv.keys import after_prefix
from tarn.kv.port import Group, Kv, Partition, ReadKv

__all__ = ["BEAT_SECONDS", "EXPIRY_SECONDS", "Replica", "ReplicaRow", "read_replicas", "replica_of"]

BEAT_SECONDS: Final = 20.0
"""How often a process renews its row."""
EXPIRY_SECONDS: Final = 90.0
"""A row that was not renewed for this long, by the clock of its writer, is of a process that is gone."""
LOOK_SECONDS: Final = 5.0
"""How often a process reads the level."""

_FORGET_SECONDS: Final = 86_400
_ROWS_MAX: Final = 10_000
_PREFIX: Final = b"replicas/"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """A process that has the store open, or had it until `until_us`.

    Attributes:
        replica_id: unique to this life of the process.
        service: its services, such as `graveler`.
        version: of its release.
        host: name of its machine.
        pid: its process id there.
        level_min: the lowest level at which it runs.
        level_max: the highest level that it supports.
        begin_us: when it started, in Unix microseconds.
        until_us: when the row expires.
    """

    replica_id: str
    service: str
    version: str
    host: str
    pid: int
    level_min: int
    level_max: int
    begin_us: int
    until_us: int

    @property
    def key(self) -> bytes:
        """The key of the row, in the fence's partition."""
        return _PREFIX + self.replica_id.encode()

    def encode(self) -> bytes:
        """Encodes the row as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, value: bytes) -> ReplicaRow:
        """Decodes a row; fields of later releases are ignored.

        Raises:
            TarnError: CORRUPT: the row cannot be read.
        """
        try:
            found = json.loads(value)
            return cls(
                str(found["replica_id"]),
                str(found["service"]),
                str(found["version"]),
                str(found["host"]),
                int(found["pid"]),
                int(found["level_min"]),
                int(found["level_max"]),
                int(found["begin_us"]),
                int(found["until_us"]),
            )
        except (ValueError, TypeError, KeyError) as error:
            text = f"the row of a replica cannot be read: {value[:200]!r}"
            raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error


async def read_replicas(kv: Kv | ReadKv, installation_id: str, now_us: int) -> list[ReplicaRow]:
    """Returns the processes whose rows have not expired, oldest first.

    Raises:
        TarnError: CORRUPT. Also the store's errors.
    """
    rows = await _rows(kv, installation_id)
    return sorted((each for each in rows if each.until_us > now_us), key=lambda each: each.begin_us)


async def _rows(kv: Kv | ReadKv, installation_id: str) -> list[ReplicaRow]:
    end = after_prefix(_PREFIX)
    rows = await kv.scan(fence_partition(installation_id), _PREFIX, end, _ROWS_MAX)
    return [ReplicaRow.decode(value) for _, value in rows]


def replica_of(
    service: str,
    config: Config,
    kv: Kv,
    clock: Clock,
    ids: IdSource,
    stop: Callable[[str], None],
) -> Replica:
    """Returns the replica of a process of this release; the arguments are those of `Replica`."""
    return Replica(
        kv,
        config.installation.id,
        service=service,
        version=version("tarn"),
        clock=clock,
        ids=ids,
        stop=stop,
    )


class Replica:
    """This process among the replicas: an `Application` that runs before the services which use the store.

    Args:
        kv: the store, as the services use it.
        installation_id: the installation.
        service: the services of the process, for people.
        version: of the release.
        clock: times of the row.
        ids: makes the id of the process.
        stop: called with the reason when the process must stop, because the level was raised above what it supports.

    Attributes:
        features: follows the level of the store, read at most `LOOK_SECONDS` ago while the store answers.
    """

    name = "replica"
    endpoints: Sequence[Never] = ()

    def __init__(
        self,
        kv: Kv,
        installation_id: str,
        *,
        service: str,
        version: str,
        clock: Clock,
        ids: IdSource,
        stop: Callable[[str], None],
    ) -> None:
        self._kv = kv
        self._installation_id = installation_id
        self._about = (service, version, socket.gethostname(), os.getpid())
        self._clock = clock
        self._id = ids.uuid7().hex()
        self._stop = stop
        self._begin_us = clock.now_us()
        self._level = StoreLevel()
        self.features = FeatureGate(lambda: self._level.level)
        self._tasks = TaskSet()

    async def __aenter__(self) -> Self:
        """Checks the level, and appears among the replicas.

        Raises:
            TarnError: FAILED_PRECONDITION, FEATURE_LEVEL: this release does not support the level. Errors of the store.
        """
        await check_open(self._kv, self._installation_id)
        await self._beat()
        await self._look()
        self._tasks.spawn(self._run())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Disappears from the replicas."""
        await self._tasks.close()
        with contextlib.suppress(TarnError):  # the row expires
            await self._kv.delete_many(self._partition, [self._row(0).key])

    async def drain(self, timeout_s: float) -> None:
        """Does nothing: the process counts as running until it ends."""

    @property
    def _partition(self) -> Partition:
        return fence_partition(self._installation_id)

    def _row(self, until_us: int) -> ReplicaRow:
        return ReplicaRow(self._id, *self._about, LEVEL_MIN, LEVEL_MAX, self._begin_us, until_us)

    async def _run(self) -> None:
        beat_at = self._clock.monotonic() + BEAT_SECONDS
        await self._forget_the_dead()
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            try:
                await self._look()
                if self._clock.monotonic() >= beat_at:
                    await self._beat()
                    beat_at = self._clock.monotonic() + BEAT_SECONDS
            except TarnError as error:
                _log.warning("the store's level was not read", reason=error.reason.value)

    async def _look(self) -> None:
        self._level = await read_level(self._kv, self._installation_id)
        if text := unsupported(self._level, self._installation_id):
            self._stop(text)

    async def _beat(self) -> None:
        until_us = self._clock.now_us() + int(EXPIRY_SECONDS * 1_000_000)
        row = self._row(until_us)
        group = Group(row.key, ((row.key, row.encode()),))
        (error,) = await self._kv.set_many(self._partition, [group])
        if error is not None and error.kind is not Kind.UNKNOWN_OUTCOME:
            raise error

    async def _forget_the_dead(self) -> None:
        """Removes the rows of processes that were killed a day ago or earlier."""
        before_us = self._clock.now_us() - _FORGET_SECONDS * 1_000_000
        try:
            rows = await _rows(self._kv, self._installation_id)
            dead = [each.key for each in rows if each.until_us < before_us]
            if dead:
                await self._kv.delete_many(self._partition, dead)
        except TarnError as error:
            _log.warning("old rows of replicas were not removed", reason=error.reason.value)
