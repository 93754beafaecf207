"""Row groups of a file of events: what each has, and how to read some of them.

Rows are sorted, so a reader of some paths needs a few groups of each file. Whoever reads a file whole tells where its
groups are, with the SHA-256 of the bytes of each; who reads some of them later compares these.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import pyarrow as pa

from tarn.block.port import BlockKey, ReadBlocks
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.parquet import UNREADABLE, checked_groups, read_groups
from tarn.core.parquet_pages import Chunk
from tarn.journal.events import EVENT_SCHEMA
from tarn.journal.files import FILE_LIMITS
from tarn.journal.names import corrupt_error

__all__ = ["FileGroups", "RowGroup", "changed_error", "groups_of", "read_some"]

_AFTER_ALL: Final = b"\xff"
"""After the name of each branch, which is UTF-8."""


class RowGroup(msgspec.Struct, frozen=True, array_like=True):
    """A row group.

    Attributes:
        number: in the file, from 0.
        rows: how many it has.
        start: where its bytes begin in the file.
        end: where they end.
        sha256: of these bytes.
        branch: of all of its rows; None: they have several, or it is not known.
        token: likewise.
        first: no row has a lesser place: branch, NUL, key.
        last: no row has a greater one.
    """

    number: int
    rows: int
    start: int
    end: int
    sha256: bytes
    branch: str | None
    token: str | None
    first: bytes
    last: bytes


class FileGroups(msgspec.Struct, frozen=True, array_like=True):
    """The row groups of a file.

    Attributes:
        size: of the file, bytes.
        footer: where Parquet's own footer begins.
        footer_sha256: of all bytes from there on.
        groups: in order; all, or those that are wanted.
    """

    size: int
    footer: int
    footer_sha256: bytes
    groups: tuple[RowGroup, ...]


def groups_of(body: bytes, columns: Sequence[str]) -> FileGroups | None:
    """Returns the row groups of a file; None: it cannot be read by groups.

    Args:
        body: the file.
        columns: that are read later; see `tarn.core.parquet.checked_groups`.

    Raises:
        UNREADABLE: it is damaged, or has rows that no store holds.
    """
    found = checked_groups(body, EVENT_SCHEMA, FILE_LIMITS, columns)
    if found is None:
        return None
    footer = len(body) - 8 - int.from_bytes(body[-8:-4], "little")
    digest = hashlib.sha256(memoryview(body)[footer:]).digest()
    groups = tuple(
        _group(number, body, dict(zip(EVENT_SCHEMA.names, each, strict=True)))
        for number, each in enumerate(found)
    )
    return FileGroups(len(body), footer, digest, groups)


def _group(number: int, body: bytes, chunks: dict[str, Chunk]) -> RowGroup:
    start = min(each.start for each in chunks.values())
    end = max(each.end for each in chunks.values())
    branch, token, key = chunks["branch"], chunks["token"], chunks["key"]
    if key.least == b"":
        raise ValueError("an event has no key")
    if branch.least and b"\0" in branch.least:
        raise ValueError("the name of a branch has a NUL")
    if branch.greatest == b"" and _only(token):
        raise ValueError("a row of a token has no branch")
    if (order := chunks["order"].least) and int.from_bytes(order, "little", signed=True) < 0:
        raise ValueError("an event has a negative order")
    first, last = b"", _AFTER_ALL
    if branch.least is not None and branch.greatest is not None:
        first, last = branch.least + b"\0", branch.greatest + b"\1"
        if branch.least == branch.greatest and key.least is not None and key.greatest is not None:
            first, last = first + key.least, branch.least + b"\0" + key.greatest
    return RowGroup(
        number,
        key.values,
        start,
        end,
        hashlib.sha256(memoryview(body)[start:end]).digest(),
        _only(branch),
        _only(token),
        first,
        last,
    )


def _only(chunk: Chunk) -> str | None:
    """Returns the value of all rows; None: there are several, or it is not known."""
    least = chunk.least
    return least.decode() if least is not None and least == chunk.greatest else None


async def read_some(
    blocks: ReadBlocks, key: BlockKey, file: FileGroups, columns: Sequence[str]
) -> pa.Table:
    """Returns the rows of some row groups, one after the other, with a request for each piece of the file.

    Args:
        blocks: the store.
        key: of the file.
        file: as `groups_of` has told it, with the groups that are wanted.
        columns: as in `groups_of`, or some of them.

    Raises:
        TarnError: CORRUPT: the file has other bytes than then, or cannot be read. BLOCK_NOT_FOUND: it has gone.
    """
    # What is not read takes no memory: the kernel gives pages that are written only.
    with_holes = mmap.mmap(-1, file.size)
    tail = await blocks.read(key, file.footer, file.size - file.footer)
    _require(tail, file.footer_sha256)
    with_holes[file.footer :] = tail
    for run in _runs(file.groups):
        start, end = run[0].start, run[-1].end
        body = memoryview(await blocks.read(key, start, end - start))
        for group in run:
            _require(body[group.start - start : group.end - start], group.sha256)
        with_holes[start:end] = body
    buffer = pa.py_buffer(with_holes)
    try:
        table = read_groups(buffer, EVENT_SCHEMA, columns, [each.number for each in file.groups])
        table.validate(full=True)
        if len(table) != sum(each.rows for each in file.groups):
            raise ValueError("its row groups have other rows than they say")
    except UNREADABLE as error:
        raise corrupt_error(key.path, str(error)) from error
    return table


def _runs(groups: Iterable[RowGroup]) -> list[list[RowGroup]]:
    """Returns groups, those together whose bytes follow each other."""
    runs: list[list[RowGroup]] = []
    for group in groups:
        if runs and runs[-1][-1].end == group.start:
            runs[-1].append(group)
        else:
            runs.append([group])
    return runs


def _require(body: bytes | memoryview, sha256: bytes) -> None:
    if hashlib.sha256(body).digest() != sha256:
        raise changed_error()


def changed_error() -> TarnError:
    """Returns the error that a file has changed."""
    text = "a file of the journal has changed or gone while the journal was read; run the job again"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
