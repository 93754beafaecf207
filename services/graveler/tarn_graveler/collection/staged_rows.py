"""The staged rows of a repository with their paths, for a plan of an erasure (docs/design/erase.md).

All rows of all tokens that a branch names, also those that newer rows hide: their blocks are in the bucket, too. The
order is that of the stage `staged` of the roots (`roots.py`): a caller that reads these pages before the commits misses
no reference that moves meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tarn.core.branch import Token, TokenKind
from tarn.core.entry import HEAD_BYTES, VERSION, address_of, size_of
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, TokenId
from tarn.kv.keys import PATHS_START, RepositoryKeys, after_prefix, path_key, path_of
from tarn.kv.port import Kv
from tarn.kv.records import Repository, decode_branch
from tarn_graveler.repository.records import Repositories

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
        # The branch, the tokens of its record that are left, the last key in the first of them.
        branch_id, tokens, after = json.loads(cursor) if cursor else ("", [], "")
        following: list[Any] | None
        if tokens:
            following = await self._rows(keys, (branch_id, tokens, after), prefix, limit, page)
        else:
            following = await self._branch(keys, branch_id)
        # After the rows: a deletion of the repository removes rows only after it wrote this mark.
        (closed,) = await self._kv.get_many(keys.refs, [RepositoryKeys.CLOSED])
        self._repositories.refuse_closed(repository, closed)
        page.cursor = json.dumps(following) if following is not None else ""
        return page

    async def _branch(self, keys: RepositoryKeys, after: str) -> list[Any] | None:
        """Returns the place of the first row of the next branch; None after the last branch."""
        prefix = keys.branch("")
        start = keys.branch(after) + b"\0" if after else prefix
        rows = await self._kv.scan(keys.refs, start, after_prefix(prefix), 1)
        if not rows:
            return None
        key, value = rows[0]
        branch = decode_branch(value)
        tokens = [
            [each.token_id, each.kind.value, each.buckets]
            for each in (() if branch.is_deleted else branch.tokens)
        ]
        return [key[len(prefix) :].decode(), tokens, ""]

    async def _rows(
        self,
        keys: RepositoryKeys,
        place: tuple[str, list[Any], str],
        prefix: str,
        limit: int,
        page: StagedPage,
    ) -> list[Any]:
        branch_id, tokens, after = place
        token_id, kind, buckets = tokens[0]
        token = Token(TokenId(token_id), TokenKind(kind), buckets, create_time_us=0)
        partition = keys.token(BranchId(branch_id), token)
        first = path_key(prefix)
        start = bytes.fromhex(after) + b"\0" if after else first
        rows = await self._kv.scan(partition, start, _after(first), limit)
        page.branch_id = branch_id
        for key, value in rows:
            if not key.startswith(PATHS_START) or len(value) < HEAD_BYTES or value[0] != VERSION:
                text = f"row {key[:200]!r} of {partition.name} is no staged entry: run `tarn fsck`"
                raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
            address = address_of(value)
            if address is not None:
                page.paths.append(path_of(key))
                page.addresses.append(address)
                page.sizes.append(size_of(value))
        if len(rows) == limit:
            return [branch_id, tokens, rows[-1][0].hex()]
        return [branch_id, tokens[1:], ""]


def _after(prefix: bytes) -> bytes:
    """Returns the end (exclusive) of the keys that begin with a prefix of UTF-8, which has no byte 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))
