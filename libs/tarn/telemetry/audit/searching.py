"""Searches the files of the audit log in one folder, newest record first, within bounds of bytes and time.

Each file is in the order of its times, because one process appends to it, so the end of a search is found by
bisection, and a file is read backwards from there. The files of all processes are merged by time. A page ends between
two times and never within one, so the next page begins with an earlier time, and files that are renamed meanwhile
change nothing.

A clock that was set back breaks the order of a file: records near that moment may be passed over.
"""

from __future__ import annotations

import heapq
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.telemetry.audit.record import VERSION

__all__ = ["BYTES_MAX", "FILES_MAX", "SECONDS_MAX", "AuditPage", "AuditQuery", "search_audit"]

BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that one page reads."""
SECONDS_MAX: Final = 3.0
"""Time that one page takes."""
FILES_MAX: Final = 512
"""Files of a folder: those of 64 processes with the default `audit.files`."""

_BLOCK: Final = 64 * 1024
_LINE_MAX: Final = 16 * 1024
"""`tarn.telemetry.audit.record` writes shorter lines."""
_PROBE: Final = 2 * _LINE_MAX
_NAME: Final = re.compile(r"([A-Za-z0-9_-]+)\.jsonl(\.[0-9]{1,4})?")
_TIME: Final = re.compile(rb'"time":"([0-9T:.-]{26})Z"')
_TEXTS: Final = (
    *("time", "service", "operation", "resource", "outcome", "reason", "principal"),
    *("source", "request_id"),
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_US_MAX: Final = 253_402_300_799_999_999
_LOOKS: Final = 3


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """What is searched. An empty text matches everything.

    Attributes:
        user: the principal.
        operation: begins the operation: `s3:`, `BranchService.`, `s3:PutObject`.
        resource: the resource, or one above it: `repository/lake`.
        outcome: of `Outcome`.
        from_us: no record before this time, in Unix microseconds.
        before_us: only records before this time.
        process: only the files of this process, such as `command-0`, are read.
    """

    user: str = ""
    operation: str = ""
    resource: str = ""
    outcome: str = ""
    from_us: int = 0
    before_us: int = _US_MAX
    process: str = ""

    def before(self, time_us: int) -> AuditQuery:
        """Returns this search, but only before a time."""
        return replace(self, before_us=time_us)

    def matches(self, record: dict[str, object]) -> bool:
        """Whether a record, whose time fits, is searched."""
        resource = str(record.get("resource", ""))
        return (
            (not self.user or record.get("principal") == self.user)
            and str(record.get("operation", "")).startswith(self.operation)
            and (not self.outcome or record.get("outcome") == self.outcome)
            and (
                not self.resource
                or resource == self.resource
                or resource.startswith(self.resource.rstrip("/") + "/")
            )
        )


@dataclass(slots=True)
class AuditPage:
    """Records, the newest one first.

    Attributes:
        records: as `docs/operate/audit.md` describes them.
        before_us: `AuditQuery.before_us` of the next page; None: there is no earlier record.
        stopped: whether the bounds ended the page before it was full: earlier records were not looked at.
        processes: those that have files in the folder, such as `node-0`.
        unreadable: lines that are no records.
        bytes_read: of the files.
    """

    records: list[dict[str, object]] = field(default_factory=list)
    before_us: int | None = None
    stopped: bool = False
    processes: tuple[str, ...] = ()
    unreadable: int = 0
    bytes_read: int = 0


class _Stopped(Exception):  # noqa: N818 - no error
    """The bounds are reached."""


class _Reader:
    """Reads files, and counts what it reads."""

    def __init__(self, monotonic: Callable[[], float], bytes_max: int, seconds_max: float) -> None:
        self._now = monotonic
        self._end = monotonic() + seconds_max
        self._bytes_max = bytes_max
        self.bytes_read = 0

    def read(self, file: int, start: int, end: int) -> bytes:
        """Returns bytes of a file. Raises `_Stopped`."""
        if self.bytes_read >= self._bytes_max or self._now() >= self._end:
            raise _Stopped
        found = os.pread(file, end - start, start)
        self.bytes_read += len(found)
        return found

    def forwards(self, file: int, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yields the records whose lines begin behind `start`, or at it if that is 0: where they begin, and their
        times. Raises `_Stopped`."""
        at, is_line = start, start == 0
        while at < end:
            lines = self.read(file, at, min(end, at + _PROBE)).splitlines(keepends=True)
            if len(lines) > 1 and at + sum(map(len, lines)) < end:
                lines.pop()  # it may be cut
            for line in lines:
                found = _TIME.search(line) if is_line else None
                if found is not None:
                    yield at, found[1]
                at += len(line)
                is_line = line.endswith(b"\n")
            if not lines:
                return

    def end_before(self, file: int, size: int, time: bytes) -> int:
        """Returns where the first record of this time or a later one begins, by bisection; the size if there is none.
        Raises `_Stopped`."""
        low, high = 0, size
        while high - low > _BLOCK:
            middle = (low + high) // 2
            _, found = next(self.forwards(file, middle, size), (size, None))
            if found is None or found >= time:
                high = middle
            else:
                low = middle
        return next((at for at, found in self.forwards(file, low, size) if found >= time), size)

    def backwards(self, file: int, end: int) -> Iterator[bytes]:
        """Yields the whole lines before `end`, the last one first. Raises `_Stopped`."""
        rest = b""
        while end > 0:
            start = max(0, end - _BLOCK)
            first, *lines = (self.read(file, start, end) + rest).split(b"\n")
            yield from (each for each in reversed(lines) if each)
            rest = first[:_LINE_MAX]
            end = start
        if rest:
            yield rest


def search_audit(
    folder: Path,
    query: AuditQuery,
    monotonic: Callable[[], float],
    *,
    records_max: int,
    bytes_max: int = BYTES_MAX,
    seconds_max: float = SECONDS_MAX,
) -> AuditPage:
    """Returns a page of the records that match; blocks.

    Args:
        folder: of the files; there need be none.
        query: what is searched.
        monotonic: the clock of the bounds, in seconds.
        records_max: records after which the page ends, with those of the same microsecond.
        bytes_max: of the files, read for the page, which says so if that ends it.
        seconds_max: likewise.

    Raises:
        TarnError: EXHAUSTED: the folder has more than `FILES_MAX` files. UNAVAILABLE: they cannot be read.
    """
    page = AuditPage()
    reader = _Reader(monotonic, bytes_max, seconds_max)
    last_us: int | None = None
    with ExitStack() as opened:
        files = _open(folder, opened)
        page.processes = tuple(sorted({name for name, _ in files}))
        before = _text_of(query.before_us)
        try:
            sources = [
                _of_process(reader, page, [file for name, file in files if name == each], before)
                for each in page.processes
                if query.process in ("", each)
            ]
            for time_us, line in heapq.merge(*sources, key=lambda each: -each[0]):
                if time_us < query.from_us:
                    break
                if last_us is not None and time_us < last_us and len(page.records) >= records_max:
                    page.before_us = last_us
                    break
                if time_us >= query.before_us:
                    continue
                last_us = time_us
                record = _record(line)
                if record is None:
                    page.unreadable += 1
                elif query.matches(record):
                    page.records.append(record)
        except _Stopped:
            page.stopped = True
            # Some records of the last time may not be read yet: the next page begins with it.
            page.before_us = query.before_us if last_us is None else last_us + 1
            while page.records and _time_us(page.records[-1]) == last_us:
                page.records.pop()
        except OSError as error:
            text = f"the audit log in {folder} cannot be read: {error}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
    page.bytes_read = reader.bytes_read
    return page


def _of_process(
    reader: _Reader, page: AuditPage, files: Sequence[int], before: bytes
) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a process before a time with their times, the last one first. Its files follow one another,
    so those behind the end of the search are passed over, and earlier ones are not read before the later ones end."""
    begins: list[tuple[bytes, int, int]] = []
    for file in files:
        size = os.fstat(file).st_size
        _, first = next(reader.forwards(file, 0, size), (size, None))
        if first is not None and first < before:
            begins.append((first, file, size))
    begins.sort(reverse=True)
    for number, (_, file, size) in enumerate(begins):
        end = size if number else reader.end_before(file, size, before)
        yield from _times(reader, page, file, end)


def _times(reader: _Reader, page: AuditPage, file: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Yields the lines of a file before `end` with their times, the last one first."""
    for line in reader.backwards(file, end):
        found = _TIME.search(line)
        try:
            yield _us_of(found[1].decode()) if found else _bad(), line
        except ValueError:
            page.unreadable += 1


def _bad() -> int:
    raise ValueError


def _open(folder: Path, opened: ExitStack) -> Sequence[tuple[str, int]]:
    """Opens all files, also if some are renamed meanwhile; returns the process and the descriptor of each."""
    found: dict[int, tuple[str, int]] = {}
    try:
        for _ in range(_LOOKS):
            names = [] if not folder.is_dir() else sorted(each.name for each in folder.iterdir())
            matches = [each for each in map(_NAME.fullmatch, names) if each]
            if len(matches) > FILES_MAX:
                text = f"{folder} has {len(matches)} files of audit logs, {FILES_MAX} are searched"
                raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
            before = len(found)
            for each in matches:
                try:
                    file = os.open(folder / each[0], os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                except FileNotFoundError:
                    continue
                opened.callback(os.close, file)
                found.setdefault(os.fstat(file).st_ino, (each[1], file))
            if len(found) == before:
                break
    except OSError as error:
        text = f"the audit log in {folder} cannot be read: {error}"
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
    return list(found.values())


def _record(line: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_one = (
        isinstance(found, dict)
        and found.get("audit") == VERSION
        and all(isinstance(found.get(key), str) for key in _TEXTS)
    )
    return found if is_one else None


def _time_us(record: dict[str, object]) -> int:
    return _us_of(str(record["time"]).removesuffix("Z"))


def _us_of(text: str) -> int:
    found = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
    return (found.days * 86_400 + found.seconds) * 1_000_000 + found.microseconds


def _text_of(time_us: int) -> bytes:
    """Returns a time as it stands in a line, without its `Z`."""
    seconds, micros = divmod(max(0, min(time_us, _US_MAX)), 1_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{micros:06d}".encode()
