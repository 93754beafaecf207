"""Dumps, restores and recovers a repository over graveler's rpcs, page by page (docs/design/dump.md)."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, TypeVar

from tarn.client.graveler import GravelerClient
from tarn.core.commit import Commit, commit_id_of
from tarn.core.dump import LINE_BYTES_MAX, BranchLine, NoteLine, ReflogLine, from_line, to_line
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, CommitId
from tarn.rpc.wire.call import Call
from tarn.snapshot.files.content import corrupt_error
from tarn.snapshot.files.manifest import SavedRepository, Scope
from tarn.snapshot.files.stored import StoredSnapshot, check_files, open_snapshot
from tarn.snapshot.files.target import Target
from tarn.snapshot.files.work import TransferOptions
from tarn.snapshot.repository.dumping import RepositoryDump, lines_of
from tarn_proto.graveler.v1.repository_service_pb2 import Repository

__all__ = ["Restored", "Transfer", "checked"]

RECOVERY = "recover"
"""The `restore_id` of every recovery: it always restores the same thing, the contents of its namespace."""

_R = TypeVar("_R", BranchLine, ReflogLine, Commit)
_T = TypeVar("_T")

_PAGE = 1000
_REQUEST_LINES = 500
_REQUEST_REFS = 50
"""A ref costs three compare-and-sets, one after the other."""
_REQUEST_BYTES = 1 << 20
_TRIES = 5
_PAUSE_SECONDS = 1.0
_REPEATED = (Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME, Kind.DEADLINE)


@dataclass(slots=True)
class Restored:
    """The result of a restore.

    Attributes:
        left_out: commits without all of their ancestors. In a dump they were made while it was written; in a recovery,
            the objects of ancestors are damaged or missing.
        damaged: files of the bucket that a recovery could not use.
        unheaded: branches of a recovery none of whose noted commits is intact.
    """

    repository: Repository | None = None
    commits: int = 0
    left_out: int = 0
    branches: int = 0
    tags: int = 0
    reflog_entries: int = 0
    damaged: list[str] = field(default_factory=list)
    unheaded: list[str] = field(default_factory=list)


async def checked(
    target: Target, options: TransferOptions, snapshot_id: str = ""
) -> StoredSnapshot:
    """Opens the newest dump of a repository in a target, or another one, after reading every byte of it.

    Raises:
        TarnError: NOT_FOUND: there is none. CORRUPT: it is damaged. FAILED_PRECONDITION: it has another version. Also
            the target's errors.
    """
    found = await open_snapshot(target, Scope.REPOSITORY, snapshot_id)
    if damaged := await check_files(found, options):
        raise corrupt_error(f"{found.about} is damaged: {damaged[0]}")
    if len(found.manifest.repositories) != 1:
        raise corrupt_error(f"{found.about} is not of one repository")
    return found


class Transfer:
    """One dump, restore or recovery.

    Args:
        graveler: the server.
        call: returns the context of a new call.
        progress: called with a line about the progress.
        page_size: lines or files of a page.
        sleep: waits for some seconds, before a call is repeated; None: no call is repeated.
    """

    def __init__(
        self,
        graveler: GravelerClient,
        call: Callable[[], Call],
        progress: Callable[[str], None] = lambda _: None,
        *,
        page_size: int = _PAGE,
        sleep: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._graveler = graveler
        self._sleep = sleep
        self._call = call
        self._progress = progress
        self._page_size = page_size
        self._known: set[bytes] = set()
        self._lines = 0

    async def dump(self, repository_id: str, dump: RepositoryDump) -> None:
        """Reads the pages that a dump lacks."""
        while not dump.is_complete:
            await self.dump_page(repository_id, dump)

    async def dump_page(self, repository_id: str, dump: RepositoryDump) -> None:
        """Reads the next page of a dump."""
        page = await self._graveler.read_dump(
            self._call(), repository_id, page_size=self._page_size, page_token=dump.page_token
        )
        found = page.repository
        dumped = SavedRepository(
            repository_id,
            found.instance_uid,
            found.storage_namespace,
            found.default_branch_id,
        )
        await dump.append(page.lines, dumped, page.next_page_token)
        self._lines += len(page.lines)
        self._progress(f"dumped {self._lines} lines")

    async def restore(
        self,
        repository_id: str,
        dump: StoredSnapshot,
        storage_namespace: str = "",
        default_branch_id: str = "",
        restore_id: str = "",
    ) -> Restored:
        """Restores a dump; continues an interrupted restore of the same dump.

        Args:
            repository_id: the repository to create.
            dump: the dump; see `checked`.
            storage_namespace: the place of the blocks; empty: that of the dump.
            default_branch_id: empty: that of the dump.
            restore_id: of a restore that the caller has begun; empty: the digest of the dump.
        """
        done = Restored()
        (dumped,) = dump.manifest.repositories
        default = default_branch_id or dumped.default_branch_id
        namespace = storage_namespace or dumped.storage_namespace
        async with self._bare(
            done, repository_id, namespace, default, restore_id or dump.manifest.sha256
        ) as write:
            await write(lines_of(dump, "settings"))
            with tempfile.TemporaryFile() as spool:
                async for line in lines_of(dump, "commit"):
                    spool.write(line.encode() + b"\n")
                await self._write_commits(spool, write, done)
            await write(lines_of(dump, "expired"))
            newest: dict[BranchId, int] = {}
            async for line in lines_of(dump, "branch"):
                branch = _record(line, BranchLine)
                newest[branch.branch_id] = branch.head_sequence
            done.reflog_entries = await write(_until(lines_of(dump, "reflog"), newest))
            done.branches = await write(lines_of(dump, "branch"), _REQUEST_REFS)
            done.tags = await write(lines_of(dump, "tag"), _REQUEST_REFS)
        return done

    async def recover(
        self, repository_id: str, storage_namespace: str, default_branch_id: str
    ) -> Restored:
        """Makes a repository from the commits and notes in a namespace.

        Raises:
            TarnError: BRANCH_NOT_FOUND: the namespace names no such default branch.
        """
        done = Restored()
        notes: dict[BranchId, list[tuple[int, str]]] = {}
        async with self._bare(
            done, repository_id, storage_namespace, default_branch_id, RECOVERY
        ) as write:
            with tempfile.TemporaryFile() as spool:
                await self._read_namespace(repository_id, spool, notes, done)
                await self._write_commits(spool, write, done)
            heads = {}
            for branch_id, found in notes.items():
                intact = [each for each in found if bytes.fromhex(each[1]) in self._known]
                if intact:
                    heads[branch_id] = max(intact)
                else:
                    done.unheaded.append(branch_id)
            if default_branch_id not in heads:
                some = ", ".join(sorted(heads)[:10]) or "none"
                text = (
                    f"{storage_namespace} has no intact note of branch {default_branch_id}; delete {repository_id}, "
                    f"then give --default-branch; the branches are: {some}"
                )
                raise TarnError(Kind.NOT_FOUND, Reason.BRANCH_NOT_FOUND, text)
            lines = (_branch_line(name, *head) for name, head in sorted(heads.items()))
            done.branches = await write(lines, _REQUEST_REFS)
        return done

    async def _read_namespace(
        self,
        repository_id: str,
        spool: IO[bytes],
        notes: dict[BranchId, list[tuple[int, str]]],
        done: Restored,
    ) -> None:
        token, count = "", 0
        while True:
            page = await self._graveler.read_namespace(
                self._call(), repository_id, RECOVERY, page_size=self._page_size, page_token=token
            )
            for line in page.lines:
                record = from_line(line)
                if isinstance(record, Commit):
                    spool.write(line.encode() + b"\n")
                elif isinstance(record, NoteLine):
                    note = record.time_us, str(record.commit_id)
                    notes.setdefault(record.branch_id, []).append(note)
            done.damaged += page.damaged_paths
            count += len(page.lines)
            self._progress(f"read {count} files")
            token = page.next_page_token
            if not token:
                return

    @asynccontextmanager
    async def _bare(
        self,
        done: Restored,
        repository_id: str,
        namespace: str,
        default_branch_id: str,
        restore_id: str,
    ) -> AsyncIterator[_Writer]:
        """Yields the writer of lines to a bare repository, which becomes visible after the block."""
        begun = await self._repeated(
            lambda: self._graveler.begin_restore(
                self._call(),
                repository_id,
                namespace,
                default_branch_id=default_branch_id,
                restore_id=restore_id,
            )
        )

        async def send(lines: list[str]) -> None:
            await self._repeated(
                lambda: self._graveler.restore_records(
                    self._call(), repository_id, restore_id, lines
                )
            )

        yield _Writer(send, self._progress)
        done.repository = await self._repeated(
            lambda: self._graveler.finish_restore(
                self._call(), repository_id, restore_id, begun.instance_uid
            )
        )

    async def _repeated(self, send: Callable[[], Awaitable[_T]]) -> _T:
        """Makes a call of a restore; repeats it if a replica is away or an answer was lost.

        A restore of millions of commits makes thousands of calls: one lost answer must not end it. All may be repeated.
        """
        for attempt in range(_TRIES):
            try:
                return await send()
            except TarnError as error:
                if self._sleep is None or error.kind not in _REPEATED or attempt == _TRIES - 1:
                    raise
                await self._sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def _write_commits(self, file: IO[bytes], write: _Writer, done: Restored) -> None:
        """Writes the commits of a file, parents first, except those without all of their ancestors."""
        order: list[tuple[int, int]] = []
        offset = 0
        file.seek(0)
        while line := file.readline(LINE_BYTES_MAX + 1):
            order.append((_record(_text(line), Commit).generation, offset))
            offset += len(line)
        order.sort()

        def chosen() -> Iterator[str]:
            for _, at in order:
                file.seek(at)
                text = _text(file.readline(LINE_BYTES_MAX + 1))
                commit = _record(text, Commit)
                if all(bytes.fromhex(each) in self._known for each in commit.parents):
                    self._known.add(bytes.fromhex(commit_id_of(commit)))
                    yield text
                else:
                    done.left_out += 1

        done.commits = await write(chosen())


class _Writer:
    """Writes lines in requests of limited size."""

    def __init__(
        self, send: Callable[[list[str]], Awaitable[None]], progress: Callable[[str], None]
    ) -> None:
        self._send = send
        self._progress = progress
        self._total = 0

    async def __call__(
        self, lines: Iterable[str] | AsyncIterator[str], limit: int = _REQUEST_LINES
    ) -> int:
        """Writes all lines; returns their number."""
        count, size = 0, 0
        waiting: list[str] = []
        async for line in _each(lines):
            waiting.append(line)
            size += len(line.encode())
            count += 1
            if len(waiting) == limit or size >= _REQUEST_BYTES:
                await self._flush(waiting)
                waiting, size = [], 0
        if waiting:
            await self._flush(waiting)
        return count

    async def _flush(self, lines: list[str]) -> None:
        await self._send(lines)
        self._total += len(lines)
        self._progress(f"restored {self._total} lines")


async def _each(lines: Iterable[str] | AsyncIterator[str]) -> AsyncIterator[str]:
    if isinstance(lines, AsyncIterator):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


async def _until(lines: AsyncIterator[str], newest: dict[BranchId, int]) -> AsyncIterator[str]:
    """Yields the entries of reflogs that are not newer than the dumped record of their branch."""
    async for line in lines:
        found = _record(line, ReflogLine)
        last = newest.get(found.branch_id)
        if last is None or found.entry.sequence <= last:
            yield line


def _record(line: str, kind: type[_R]) -> _R:
    """Returns the record of a line of one member; raises `TarnError` INVALID for another one."""
    record = from_line(line)
    if not isinstance(record, kind):
        text = f"line {line[:80]!a} of the dump is not a {kind.__name__}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    return record


def _text(line: bytes) -> str:
    return line.removesuffix(b"\n").decode(errors="replace")


def _branch_line(branch_id: BranchId, time_us: int, commit_id: str) -> str:
    line = BranchLine(branch_id, CommitId(commit_id), time_us, 0)
    return to_line(line)
