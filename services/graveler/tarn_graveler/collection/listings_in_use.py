"""Tells which listings a repository needs: for those that a collector misses.

Every commit with a row is a root, also one that no branch was moved to. Its ranges may be gone: its process paused for
days before it wrote the row, or died between the row and its last look for sweeps (rule 13). No ref can come to lead to
such a commit, so a range that it lacks keeps no collection from the rest.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

from tarn.core.head_change import HeadChange
from tarn.core.ids import CommitId, MetarangeId
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Partition, Row
from tarn.kv.records import Repository, decode_branch, decode_head_change, decode_tag
from tarn_graveler.graph.walk import LISTED, Span, Walk
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.repositories import Repositories

__all__ = ["ListingsInUse"]

_COMMITS: Final = RepositoryKeys.commit("")
_LOG: Final = RepositoryKeys.REFLOG
_ROWS_AT_ONCE: Final = 200
_COMMITS_AT_ONCE: Final = 100


class ListingsInUse:
    """Looks for listings among the commits to which refs and reflogs lead."""

    def __init__(self, kv: Kv, repositories: Repositories, commits: Commits) -> None:
        self._kv = kv
        self._repositories = repositories
        self._commits = commits

    async def among(
        self, repository: Repository, listings: frozenset[MetarangeId]
    ) -> set[MetarangeId]:
        """Returns those that are a branch's compacted listing, or that of a commit to which a ref or a reflog leads.

        Reads the row of each commit once, then the history down to the oldest commit that has one of these listings.

        Raises:
            TarnError: CORRUPT: a record is damaged; COMMIT_NOT_FOUND: a commit has no row; EXHAUSTED: the history is
                too wide.
        """
        keys = self._repositories.keys_of(repository)
        # The rows first: a commit that is added later was built later.
        suspects: dict[CommitId, MetarangeId] = {}
        oldest = 0
        async for key, value in self._rows(keys.commits, _COMMITS, _COMMITS_AT_ONCE):
            commit = decode_commit(value)
            if commit.metarange_id in listings:
                oldest = min(oldest, commit.generation) if suspects else commit.generation
                suspects[CommitId(key[len(_COMMITS) :].decode())] = commit.metarange_id
        found: set[MetarangeId] = set()
        heads: dict[CommitId, None] = {}
        async for _, value in self._rows(keys.refs, keys.branch("")):
            branch = decode_branch(value)
            if branch.is_deleted:
                continue
            if branch.compacted_metarange_id in listings:
                found.add(branch.compacted_metarange_id)
            heads[branch.commit_id] = None
            for entry in branch.outbox:
                heads.update(dict.fromkeys(_commits_of(entry)))
        async for _, value in self._rows(keys.refs, keys.tag("")):
            tag = decode_tag(value)
            if not tag.is_pending:
                heads[tag.commit_id] = None
        async for _, value in self._rows(keys.reflog, _LOG):
            heads.update(dict.fromkeys(_commits_of(decode_head_change(value))))
        if suspects:
            found |= await self._reached(repository, heads, suspects, oldest)
        return found

    async def _reached(
        self,
        repository: Repository,
        heads: dict[CommitId, None],
        suspects: dict[CommitId, MetarangeId],
        oldest: int,
    ) -> set[MetarangeId]:
        """Returns the listings of those suspects that are heads or their ancestors.

        Args:
            repository: the repository.
            heads: where to begin.
            suspects: the commits to look for.
            oldest: the smallest generation of these.
        """
        starts = tuple((commit_id, LISTED) for commit_id in heads)
        span = Span(starts, hiding=0, first_parent=False)
        walk = Walk(partial(self._commits.get_many, repository), span)
        await walk.add(starts)
        wanted = set(suspects.values())
        found: set[MetarangeId] = set()
        while not walk.is_over and found != wanted:
            passed = await walk.step()
            if passed is None:
                continue
            if passed[1].generation < oldest:
                break  # greatest generation first
            if passed[0] in suspects:
                found.add(suspects[passed[0]])
        return found

    async def _rows(
        self, partition: Partition, prefix: bytes, limit: int = _ROWS_AT_ONCE
    ) -> AsyncIterator[Row]:
        start, end = prefix, after_prefix(prefix)
        while True:
            rows = await self._kv.scan(partition, start, end, limit)
            for row in rows:
                yield row
            if len(rows) < limit:
                return
            start = rows[-1][0] + b"\0"


def _commits_of(entry: HeadChange) -> list[CommitId]:
    return [each for each in (entry.old_commit_id, entry.new_commit_id) if each is not None]
