"""The facts about a repository that a plan of an expiry needs, page by page (docs/design/retention.md).

The refs come before the commits, so that the commits hold all ancestors of the heads. They come once more behind them:
a ref that was created or moved meanwhile protects its commit, too.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tarn.core.head_change import HeadChange
from tarn.core.ids import CommitId
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Partition, Row
from tarn.kv.records import Repository, decode_branch, decode_head_change, decode_tag
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.repositories import Repositories
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["HistoryPages"]

_COMMITS: Final = RepositoryKeys.commit("")
_BRANCHES: Final = RepositoryKeys.branch("")
_TAGS: Final = RepositoryKeys.tag("")
_LOG: Final = RepositoryKeys.REFLOG
_COMMITS_AT_ONCE: Final = 100
"""Rows of one scan. A commit has at most 128 KiB, so a scan holds at most 13 MB."""

_Page = pb.ListHistoryResponse


class HistoryPages:
    """Reads the history of repositories."""

    def __init__(self, kv: Kv, repositories: Repositories, expired: ExpiredCommits) -> None:
        self._kv = kv
        self._repositories = repositories
        self._expired = expired

    async def page(self, repository: Repository, cursor: str, limit: int) -> tuple[_Page, str]:
        """Returns the page at a cursor (empty: the first one), from up to `limit` rows, and the next cursor.

        Raises:
            TarnError: CORRUPT: a record is damaged; REPOSITORY_NOT_FOUND: the deletion of the repository began before
                the page was read.
        """
        number, after = json.loads(cursor) if cursor else (0, "")
        page = _Page()
        read = _STAGES[number]
        last = await read(self, repository, after.encode(), limit, page)
        keys = self._repositories.keys_of(repository)
        # After the rows: a deletion of the repository removes rows only after it wrote this mark.
        (closed,) = await self._kv.get_many(keys.refs, [RepositoryKeys.CLOSED])
        self._repositories.refuse_closed(repository, closed)
        if last:
            return page, json.dumps([number, last.decode()])
        return page, json.dumps([number + 1, ""]) if number + 1 < len(_STAGES) else ""

    async def _scan(
        self, partition: Partition, prefix: bytes, after: bytes, limit: int
    ) -> tuple[list[Row], bytes]:
        start = after + b"\0" if after else prefix
        rows = await self._kv.scan(partition, start, after_prefix(prefix), limit)
        return rows, rows[-1][0] if len(rows) == limit else b""

    async def _branches(
        self, repository: Repository, after: bytes, limit: int, page: _Page
    ) -> bytes:
        keys = self._repositories.keys_of(repository)
        rows, last = await self._scan(keys.refs, _BRANCHES, after, limit)
        for key, value in rows:
            branch = decode_branch(value)
            for entry in branch.outbox:
                page.protected_commit_ids.extend(_commits_of(entry))
            if branch.is_deleted:  # also while it is being created
                page.protected_commit_ids.append(branch.commit_id)
                continue
            name = key[len(_BRANCHES) :].decode()
            head = pb.HistoryHead(branch_id=name, commit_id=branch.commit_id)
            head.compacted_metarange_id = branch.compacted_metarange_id or ""
            page.heads.append(head)
        return last

    async def _heads(self, repository: Repository, after: bytes, limit: int, page: _Page) -> bytes:
        last = await self._branches(repository, after, limit, page)
        page.protected_commit_ids.extend(each.commit_id for each in page.heads)
        del page.heads[:]
        return last

    async def _tags(self, repository: Repository, after: bytes, limit: int, page: _Page) -> bytes:
        keys = self._repositories.keys_of(repository)
        rows, last = await self._scan(keys.refs, _TAGS, after, limit)
        for key, value in rows:
            tag = decode_tag(value)
            page.protected_commit_ids.append(tag.commit_id)
            if not tag.is_pending:
                page.tags.append(
                    pb.HistoryTag(
                        tag_id=key[len(_TAGS) :].decode(),
                        commit_id=tag.commit_id,
                        create_time_us=tag.create_time_us,
                        nonce=tag.nonce,
                    )
                )
        return last

    async def _reflogs(
        self, repository: Repository, after: bytes, limit: int, page: _Page
    ) -> bytes:
        keys = self._repositories.keys_of(repository)
        rows, last = await self._scan(keys.reflog, _LOG, after, limit)
        for _, value in rows:
            page.protected_commit_ids.extend(_commits_of(decode_head_change(value)))
        return last

    async def _commits(
        self, repository: Repository, after: bytes, limit: int, page: _Page
    ) -> bytes:
        keys = self._repositories.keys_of(repository)
        limit = min(limit, _COMMITS_AT_ONCE)
        rows, last = await self._scan(keys.commits, _COMMITS, after, limit)
        ids = [CommitId(key[len(_COMMITS) :].decode()) for key, _ in rows]
        expired = await self._expired.find(repository, ids)
        for commit_id, (_, value) in zip(ids, rows, strict=True):
            commit = decode_commit(value)
            page.commits.append(
                pb.HistoryCommit(
                    commit_id=commit_id,
                    parent_ids=commit.parents,
                    create_time_us=commit.create_time_us,
                    generation=commit.generation,
                    metarange_id=commit.metarange_id,
                    is_expired=commit_id in expired,
                )
            )
        return last


_Stage = Callable[[HistoryPages, Repository, bytes, int, Any], Awaitable[bytes]]
_REFS: Final[tuple[_Stage, ...]] = (
    HistoryPages._tags,  # noqa: SLF001 - the table of this class
    HistoryPages._reflogs,  # noqa: SLF001
)
_STAGES: Final[tuple[_Stage, ...]] = (
    HistoryPages._branches,  # noqa: SLF001
    *_REFS,
    HistoryPages._commits,  # noqa: SLF001
    HistoryPages._heads,  # noqa: SLF001
    *_REFS,
)
"""The stages in their order. A stage returns the last key that it read; empty at its end."""


def _commits_of(entry: HeadChange) -> list[CommitId]:
    return [each for each in (entry.old_commit_id, entry.new_commit_id) if each is not None]
