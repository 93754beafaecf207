"""A dump of a repository as a snapshot: its rows are lines of JSON (`tarn.core.dump`), one partition for each kind.

Each page of graveler is durable before the next one is asked for: its lines as chunks, then a file with its place in
the index and the token of the next page. So an interrupted dump continues after its last whole page.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from tarn.core.clock import IdSource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Partition, PartitionKind
from tarn.snapshot.files.content import content_file, corrupt_error
from tarn.snapshot.files.manifest import (
    Manifest,
    SavedRepository,
    Scope,
    decode_index,
    encode_index,
    new_snapshot_id,
    snapshot_folder,
)
from tarn.snapshot.files.marks import (
    begin_snapshot,
    begun_file,
    end_snapshot,
    unfinished,
    write_mark,
)
from tarn.snapshot.files.stored import StoredSnapshot, read_manifest, snapshot_ids
from tarn.snapshot.files.target import FolderTarget, Target, new_folder
from tarn.snapshot.files.work import TransferOptions
from tarn.snapshot.files.writing import ChunkWriter, Lines, finish
from tarn.snapshot.records import LINES

__all__ = ["RepositoryDump", "lines_of", "own_folder"]

_PAGE_BYTES_MAX: Final = 4 << 20
"""Of the file of a page: the lines of the index for at most 1,000 rows, and their token."""
_NUMBER: Final = struct.Struct(">Q")
_MARK_AGAIN_US: Final = 3_600_000_000


def own_folder(path: Path) -> FolderTarget:
    """Returns the place of a dump that a user makes anywhere, also in a folder that all may write to.

    Raises:
        TarnError: FAILED_PRECONDITION: the folder is a link, belongs to another user, who could lead each file
            elsewhere, or holds something else.
    """
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(
            f"folder {path} cannot be used: {error.strerror}; name another one"
        ) from error
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            raise _refused(f"{path} belongs to another user; name another folder")
    finally:
        os.close(opened)
    return new_folder(path)


class RepositoryDump:
    """A dump that is being written.

    Attributes:
        page_token: token of the next page; empty before the first page.
        is_complete: every page is written.
    """

    def __init__(
        self, target: Target, repository_id: str, snapshot_id: str, options: TransferOptions
    ) -> None:
        """See `begin`."""
        self.page_token = ""
        self.is_complete = False
        self._target = target
        self._about = {"repository_id": repository_id}
        self._id = snapshot_id
        self._clock = options.clock
        self._begin_us = self._marked_us = options.clock.now_us()
        self._writer = ChunkWriter(target, options)
        self._dumped: SavedRepository | None = None
        self._lines: Lines = []
        self._pages = 0

    @classmethod
    async def begin(
        cls,
        target: Target,
        repository_id: str,
        ids: IdSource,
        options: TransferOptions,
        *,
        restart: bool = False,
    ) -> RepositoryDump:
        """Begins a dump, or continues an interrupted one.

        Args:
            target: where the dump will be; it may have earlier ones of the same repository.
            repository_id: the repository to dump.
            ids: makes the id of the dump.
            options: tells the time, and shows the progress.
            restart: discard an interrupted dump.

        Raises:
            TarnError: FAILED_PRECONDITION: the target has dumps of another repository. CORRUPT: the files of the
                interrupted dump are damaged. CONFLICT: a prune is running in the target. Also the target's errors.
            OSError: the target cannot be written.
        """
        known = await snapshot_ids(target, Scope.REPOSITORY)
        if known:
            (last,) = (await read_manifest(target, Scope.REPOSITORY, known[-1])).repositories
            if last.repository_id != repository_id:
                text = f"{target.about} has dumps of repository {last.repository_id}; name another place"
                raise _refused(text)
        about, now_us = {"repository_id": repository_id}, options.clock.now_us()
        snapshot_id = await unfinished(target, Scope.REPOSITORY, about)
        if snapshot_id is not None and restart:
            await _discard(target, snapshot_id)
            snapshot_id = None
        made = cls(target, repository_id, snapshot_id or new_snapshot_id(now_us, ids), options)
        await begin_snapshot(target, Scope.REPOSITORY, made._id, now_us, about)
        if snapshot_id is not None:
            await made._continue()
        return made

    async def append(self, lines: Sequence[str], dumped: SavedRepository, page_token: str) -> None:
        """Makes a page durable, and then the token of the next one; an empty token means that this was the last.

        Raises:
            TarnError: FAILED_PRECONDITION: the repository was deleted and created again since the dump began. Also the
                target's errors.
        """
        if self._dumped not in (None, dumped):
            text = f"repository {dumped.repository_id} was changed or created again since its dump began"
            raise _refused(f"{text}; give --restart")
        by_kind: dict[str, list[bytes]] = {}
        for line in lines:
            by_kind.setdefault(json.loads(line)["kind"], []).append(line.encode())
        added: Lines = []
        number = sum(each.rows for each in self._lines)
        for kind, values in by_kind.items():
            rows = [(_NUMBER.pack(number + at), value) for at, value in enumerate(values)]
            number += len(rows)
            end = _NUMBER.pack(number)
            added += await self._writer.save(_partition(kind), rows, rows[0][0], end)
        page = {
            "repository": asdict(dumped),
            "begin_time_us": self._begin_us,
            "index": "".join(text.decode() for text in encode_index(added)),
            "token": self.page_token,
            "next": page_token,
        }
        await self._target.put(self._page(self._pages), json.dumps(page).encode())
        if (now_us := self._clock.now_us()) - self._marked_us > _MARK_AGAIN_US:
            await write_mark(self._target, Scope.REPOSITORY, self._id, now_us, self._about)
            self._marked_us = now_us
        self._take(added, dumped, page_token)

    async def finish(self) -> Manifest:
        """Completes a dump of which every page is written; returns its manifest."""
        assert self._dumped is not None, "the dump has not begun"
        assert self.is_complete, "the dump has more pages"

        def count(kind: str) -> int:
            return sum(line.rows for line in self._lines if line.partition.name == kind)

        about = replace(
            self._dumped, branches=count("branch"), tags=count("tag"), commits=count("commit")
        )
        manifest = await finish(
            self._writer,
            Scope.REPOSITORY,
            self._id,
            self._lines,
            installation_id="",
            begin_time_us=self._begin_us,
            end_time_us=self._clock.now_us(),
            repositories=(about,),
        )
        await self._target.delete([self._page(number) for number in range(self._pages)])
        await end_snapshot(self._target, Scope.REPOSITORY, self._id)
        return manifest

    def _page(self, number: int) -> str:
        return f"{snapshot_folder(Scope.REPOSITORY, self._id)}/page-{number:08d}.json"

    def _take(self, lines: Lines, dumped: SavedRepository, page_token: str) -> None:
        self._lines += lines
        self._dumped = dumped
        self.page_token, self.is_complete = page_token, not page_token
        self._pages += 1

    async def _continue(self) -> None:
        """Takes the pages of an interrupted dump. Each must begin where the one before it ended: two processes may have
        written them. Without one of the chunks, which a prune may have removed, it begins anew."""
        while not self.is_complete:
            name = self._page(self._pages)
            try:
                data = await self._target.read(name, _PAGE_BYTES_MAX)
            except TarnError as error:
                if error.kind is not Kind.NOT_FOUND:
                    raise
                return
            try:
                page = json.loads(data)
                repository = SavedRepository(**page["repository"])
                begin_us = int(page["begin_time_us"])
                lines = decode_index(page["index"].encode(), name)
                token, following = str(page["token"]), str(page["next"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise corrupt_error(f"{name} is damaged: {error!r}; give --restart") from error
            is_next = token == self.page_token and self._dumped in (None, repository)
            if not is_next or not await self._has(lines):
                return
            self._begin_us = begin_us
            self._take(lines, repository, following)

    async def _has(self, lines: Lines) -> bool:
        for line in lines:
            if not await self._target.has(content_file(line.digest)):
                return False
        return True


async def lines_of(snapshot: StoredSnapshot, kind: str) -> AsyncIterator[str]:
    """Yields the lines of a kind.

    Raises:
        TarnError: CORRUPT: a chunk is missing or damaged. Also the target's errors.
    """
    for line in snapshot.lines:
        if line.partition.name == kind:
            for _, value in await snapshot.rows(line):
                yield value.decode(errors="replace")


def _partition(kind: str) -> Partition:
    assert kind in LINES, "graveler sends the lines of the table"
    return Partition(kind, PartitionKind.PLAIN)


async def _discard(target: Target, snapshot_id: str) -> None:
    mark = begun_file(Scope.REPOSITORY, snapshot_id)
    names = [
        name
        async for name in target.files(snapshot_folder(Scope.REPOSITORY, snapshot_id))
        if name != mark
    ]
    await target.delete([*names, mark])


def _refused(text: str) -> TarnError:
    return TarnError(Kind.FAILED_PRECONDITION, Reason.PRECONDITION_FAILED, text)
