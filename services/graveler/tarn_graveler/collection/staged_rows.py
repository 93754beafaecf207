"""The staged rows of a repository with their paths, for a plan of an erasure (docs/design/erase.md).

All rows of all tokens that a branch names, also those that newer rows hide: their blocks are in the bucket, too. The
order is that of the stage `staged` of the roots (`roots.py`): a caller that reads these pages before the commits misses
no reference that moves meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tarn.core.entry import address_of, size_of
from tarn.kv.keys import RepositoryKeys, after_prefix, path_key, path_of
from tarn.kv.port import Kv
from tarn.kv.records import Repository
from tarn_graveler.collection.staged_walk import check_staged_row, read_staged
from tarn_graveler.records.repositories import Repositories

__all__ = ["StagedPage", "StagedRows"]


@dataclass(slots=True)
class StagedPage:
    """A page of staged rows of one branch.

    Attributes:
        branch_id: the branch; empty if there are no rows.
        paths: one for each row.
        addresses: of the blocks, parallel.
        sizes: bytes, parallel.
        cursor: where the next page begins; empty after the last page.
    """

    branch_id: str = ""
    paths: list[str] = field(default_factory=list)
    addresses: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    cursor: str = ""


class StagedRows:
    """Reads the staged rows of repositories, page by page."""

    def __init__(self, kv: Kv, repositories: Repositories) -> None:
        self._kv = kv
        self._repositories = repositories

    async def page(
        self, repository: Repository, prefix: str, cursor: str, limit: int
    ) -> StagedPage:
        """Returns the page at a cursor (empty: the first one), from up to `limit` rows whose paths have a prefix.

        Raises:
            TarnError: CORRUPT: a record is damaged; REPOSITORY_NOT_FOUND: the deletion of the repository began before
                the page was read.
        """
        keys = self._repositories.keys_of(repository)
        page = StagedPage()
        start = path_key(prefix)
        place = json.loads(cursor) if cursor else []
        step = await read_staged(self._kv, keys, place, limit, start=start, end=after_prefix(start))
        page.branch_id = step.branch_id
        for key, value in step.rows:
            check_staged_row(key, value, step.partition)
            address = address_of(value)
            if address is not None:
                page.paths.append(path_of(key))
                page.addresses.append(address)
                page.sizes.append(size_of(value))
        # After the rows: a deletion of the repository removes rows only after it wrote this mark.
        (closed,) = await self._kv.get_many(keys.refs, [RepositoryKeys.CLOSED])
        self._repositories.refuse_closed(repository, closed)
        page.cursor = json.dumps(step.following) if step.following is not None else ""
        return page
