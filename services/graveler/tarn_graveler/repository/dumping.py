"""The pages of a repository's dump (docs/design/dump.md).

The sections are read in the order of `_SECTIONS`: commits come last, so the dump holds every commit that a ref or an
entry of a reflog names. A commit is durable before anything names it. After them come the rows of those that expired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tarn.core.dump import BranchLine, ExpiredLine, Line, ReflogLine, TagLine, to_line
from tarn.core.ids import BranchId, CommitId, TagId
from tarn.kv.collection_records import decode_expiry
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Partition
from tarn.kv.records import Repository, decode_branch, decode_head_change, decode_tag
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.settings import RepositorySettings

__all__ = ["PAGE_BYTES", "Dumping"]

PAGE_BYTES: Final = 1 << 20
"""A page ends with the row that reaches this size."""

_LOG = RepositoryKeys.REFLOG
_ROWS_AT_ONCE = 100
"""Rows of one scan. A commit has at most 128 KiB, so a scan holds at most 13 MB."""


class Dumping:
    """Reads the lines of dumps."""

    def __init__(self, kv: Kv, repositories: Repositories, settings: RepositorySettings) -> None:
        self._kv = kv
        self._repositories = repositories
        self._settings = settings

    async def page(self, repository: Repository, cursor: str, limit: int) -> tuple[list[str], str]:
        """Returns up to `limit` rows as lines, and where the next page begins (empty: this was the last one).

        A row of a branch gives a line for each entry of its outbox, too.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND: its deletion began before the page was read; the page might lack rows.
        """
        lines: list[str] = []
        if not cursor:
            lines.append(to_line(await self._settings.read(repository)))
        section, _, after = (cursor or f"{_FIRST}:").partition(":")
        prefix, read = _SECTIONS[section]
        keys = self._repositories.keys_of(repository)
        partition = _PARTITIONS[section](keys)
        last = await self._rows(partition, prefix, after, limit, read, lines)
        # After the rows: a deletion removes rows only after it wrote this mark.
        (closed,) = await self._kv.get_many(keys.refs, [RepositoryKeys.CLOSED])
        self._repositories.refuse_closed(repository, closed)
        if last:
            return lines, f"{section}:{last}"
        following = _NEXT[section]
        return lines, f"{following}:" if following else ""

    async def _rows(
        self,
        partition: Partition,
        prefix: bytes,
        after: str,
        limit: int,
        read: Callable[[bytes, bytes], Sequence[Line]],
        lines: list[str],
    ) -> str:
        """Adds the lines of rows; returns the last key, without prefix, or an empty text after the last row."""
        start, size, left = prefix + after.encode() + (b"\0" if after else b""), 0, limit
        while True:
            wanted = min(left, _ROWS_AT_ONCE)
            rows = await self._kv.scan(partition, start, after_prefix(prefix), wanted)
            for key, value in rows:
                made = [to_line(line) for line in read(key[len(prefix) :], value)]
                lines += made
                size += sum(len(line.encode()) for line in made)
                left -= 1
                if size >= PAGE_BYTES or not left:
                    return key[len(prefix) :].decode()
                start = key + b"\0"
            if len(rows) < wanted:
                return ""


def _branch(key: bytes, value: bytes) -> Sequence[Line]:
    branch = decode_branch(value)
    if branch.is_deleted:  # also while it is being created
        return ()
    branch_id = BranchId(key.decode())
    line = BranchLine(branch_id, branch.commit_id, branch.create_time_us, branch.head_sequence)
    return [line, *(ReflogLine(branch_id, entry) for entry in branch.outbox)]


def _tag(key: bytes, value: bytes) -> Sequence[Line]:
    tag = decode_tag(value)
    return (
        () if tag.is_pending else [TagLine(TagId(key.decode()), tag.commit_id, tag.create_time_us)]
    )


def _entry(key: bytes, value: bytes) -> Sequence[Line]:
    return [ReflogLine(BranchId(key.partition(b"/")[0].decode()), decode_head_change(value))]


def _expired(key: bytes, value: bytes) -> Sequence[Line]:
    return [ExpiredLine(CommitId(key.decode()), decode_expiry(value))]


def _commit(_: bytes, value: bytes) -> Sequence[Line]:
    return [decode_commit(value)]


_SECTIONS: Final[dict[str, tuple[bytes, Callable[[bytes, bytes], Sequence[Line]]]]] = {
    "branches": (RepositoryKeys.branch(""), _branch),
    "tags": (RepositoryKeys.tag(""), _tag),
    "reflogs": (_LOG, _entry),
    "commits": (RepositoryKeys.commit(""), _commit),
    "expired": (RepositoryKeys.EXPIRED, _expired),
}
_PARTITIONS: Final[dict[str, Callable[[RepositoryKeys], Partition]]] = {
    "branches": lambda keys: keys.refs,
    "tags": lambda keys: keys.refs,
    "reflogs": lambda keys: keys.reflog,
    "commits": lambda keys: keys.commits,
    "expired": lambda keys: keys.commits,
}
_NAMES = list(_SECTIONS)
_FIRST = _NAMES[0]
_NEXT = dict(zip(_NAMES, [*_NAMES[1:], ""], strict=True))
