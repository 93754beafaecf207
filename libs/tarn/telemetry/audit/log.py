"""Queues records of the audit log and writes them by a thread, so that no request waits for a disk or a pipe.

The queue is bounded. Records that find it full, and those that cannot be written, are counted
(`tarn_audit_records_total`) and lost. A thread collects for `BATCH_SECONDS`, then writes all lines at once. A process
that is killed loses the records of that time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import structlog

from tarn.core.clock import Clock
from tarn.telemetry.audit.files import AuditFile
from tarn.telemetry.audit.record import AuditRecord, Outcome, line_of
from tarn.telemetry.meters import Meters

__all__ = ["AuditConfig", "AuditLog", "auditing"]

BATCH_SECONDS: Final = 0.05
STRANGERS_PER_SECOND_MAX: Final = 100
"""Most refusals of callers without a verified identity that are recorded per second. So strangers can neither fill
the queue nor push the records of users out of the files."""

_BATCH_MAX: Final = 1000
_CLOSE_SECONDS: Final = 5.0
_WARNING_SECONDS: Final = 60.0

_log = structlog.get_logger()


class _Output(Protocol):
    def write(self, text: str, /) -> object:
        """Writes whole lines."""
        ...


@dataclass(frozen=True, slots=True)
class AuditConfig:
    """Where the audit log goes.

    Attributes:
        folder: for the files; None: to standard output.
        file_size: bytes at which a file is full.
        files: files of each process, the current one included.
        queue: most records that wait to be written.
        reads: whether operations that change nothing are recorded too.
    """

    folder: Path | None = None
    file_size: int = 64 * 1024 * 1024
    files: int = 8
    queue: int = 10_000
    reads: bool = False


class AuditLog:
    """The audit log of a process. `add` is for the event loop's thread only.

    Args:
        service: written into each line.
        output: writes lines; called by the thread only.
        clock: times of records.
        meters: counts the records.
        queue_max: most records that wait.
        reads: whether operations that change nothing are recorded too.

    Attributes:
        reads: as given.
        now_us: the time, microseconds since the epoch.
    """

    def __init__(
        self,
        service: str,
        output: _Output,
        clock: Clock,
        meters: Meters,
        *,
        queue_max: int = 10_000,
        reads: bool = False,
    ) -> None:
        self.reads = reads
        self.now_us = clock.now_us
        self._monotonic = clock.monotonic
        self._service = service
        self._queue_max = queue_max
        self._second, self._strangers = 0, 0
        self._lock = threading.Lock()
        self._waiting: list[AuditRecord] = []
        self._wake = threading.Event()
        self._ending = threading.Event()

        def counter(outcome: str) -> Callable[[int], None]:
            return meters.counter("audit.records", outcome=outcome).add

        self._written, self._failed = counter("written"), counter("failed")
        self._dropped, self._limited = counter("dropped"), counter("limited")
        self._output = output
        self._thread = threading.Thread(target=self._run, name="audit", daemon=True)
        self._thread.start()

    def add(self, record: AuditRecord) -> None:
        """Queues a record; never waits and never fails."""
        if not record.principal and record.outcome is Outcome.DENIED and self._is_too_much():
            self._limited(1)
            return
        with self._lock:
            waiting = len(self._waiting)
            if waiting < self._queue_max:
                self._waiting.append(record)
        if waiting >= self._queue_max:
            self._dropped(1)
        elif not waiting:
            self._wake.set()

    def close(self) -> bool:
        """Writes the waiting records, for at most some seconds; later records are lost. Returns whether the thread has
        ended."""
        self._ending.set()
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)
        with self._lock:
            lost = len(self._waiting)
        if lost:
            _log.error("audit records lost", count=lost, error="the output took too long")
        return not self._thread.is_alive()

    def _is_too_much(self) -> bool:
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._strangers = second, 0
        self._strangers += 1
        return self._strangers > STRANGERS_PER_SECOND_MAX

    def _run(self) -> None:
        warned = -_WARNING_SECONDS
        while True:
            self._wake.wait()
            self._wake.clear()
            self._ending.wait(BATCH_SECONDS)
            is_last = self._ending.is_set()
            while batch := self._taken():
                try:
                    self._output.write("".join(line_of(self._service, each) for each in batch))
                except (OSError, ValueError) as error:
                    self._failed(len(batch))
                    if time.monotonic() - warned >= _WARNING_SECONDS:
                        warned = time.monotonic()
                        _log.error("audit records lost", count=len(batch), error=str(error))
                else:
                    self._written(len(batch))
            if is_last:
                return

    def _taken(self) -> list[AuditRecord]:
        with self._lock:
            batch, self._waiting = self._waiting[:_BATCH_MAX], self._waiting[_BATCH_MAX:]
        return batch


@contextmanager
def auditing(
    config: AuditConfig | None, service: str, clock: Clock, meters: Meters, stdout: _Output
) -> Iterator[AuditLog | None]:
    """Within the block, keeps the audit log of a process, if it has one; writes the waiting records at its end.

    Args:
        config: None for no audit log.
        service: the process, such as `gateway`.
        clock: times of records.
        meters: counts the records.
        stdout: writes lines to standard output, whole lines of any thread.

    Raises:
        OSError: the folder cannot be written to.
    """
    if config is None:
        yield None
        return
    file = None
    if config.folder is not None:
        file = AuditFile(config.folder, service, config.file_size, config.files)
    output = file or stdout
    log = AuditLog(service, output, clock, meters, queue_max=config.queue, reads=config.reads)
    try:
        yield log
    finally:
        if log.close() and file is not None:
            file.close()
