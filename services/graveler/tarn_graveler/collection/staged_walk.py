"""The walk through the staged rows of all branches, in the order that no moving reference escapes.

Collections read addresses this way (`roots.py`), erasures also paths (`staged_rows.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tarn.core.branch import Token, TokenKind
from tarn.core.entry import HEAD_BYTES, VERSION
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import BranchId, TokenId
from tarn.kv.keys import PATHS_START, RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Row
from tarn.kv.records import decode_branch

__all__ = ["StagedStep", "check_staged_row", "read_staged"]


@dataclass(frozen=True, slots=True)
class StagedStep:
    """One step of the walk.

    Attributes:
        branch_id: the branch of the rows; empty if the step read a branch record.
        partition: name of the partition of the rows.
        rows: some rows of one token; of a step that read a branch record, none.
        following: the place of the next step, as JSON; None after the last branch.
    """

    branch_id: str = ""
    partition: str = ""
    rows: Sequence[Row] = ()
    following: list[Any] | None = None


async def read_staged(
    kv: Kv,
    keys: RepositoryKeys,
    place: Sequence[Any],
    limit: int,
    *,
    start: bytes = b"",
    end: bytes | None = None,
) -> StagedStep:
    """Reads up to `limit` rows, or the next branch record.

    The tokens are those that the branch named when its record was read. One that left the record meanwhile may be
    dropped already: its rows have moved on, to places that the caller reads afterwards. A newer token has newer rows.

    Args:
        kv: the store.
        keys: those of the repository.
        place: branch, tokens that are left, last key in the first of them in hex; empty at the beginning.
        limit: most rows.
        start: first key of each token.
        end: end (exclusive) of the keys of each token; None: all of them.

    Raises:
        TarnError: CORRUPT: the record of a branch is damaged; errors of the store.
    """
    branch_id, tokens, after = place or ("", [], "")
    if not tokens:
        return await _next_branch(kv, keys, branch_id)
    token_id, kind, buckets = tokens[0]
    token = Token(TokenId(token_id), TokenKind(kind), buckets, create_time_us=0)
    partition = keys.token(BranchId(branch_id), token)
    first = bytes.fromhex(after) + b"\0" if after else start
    rows = await kv.scan(partition, first, end, limit)
    following = [branch_id, tokens[1:], ""]
    if len(rows) == limit:
        following = [branch_id, tokens, rows[-1][0].hex()]
    return StagedStep(branch_id, partition.name, rows, following)


async def _next_branch(kv: Kv, keys: RepositoryKeys, after: str) -> StagedStep:
    prefix = keys.branch("")
    start = keys.branch(after) + b"\0" if after else prefix
    rows = await kv.scan(keys.refs, start, after_prefix(prefix), 1)
    if not rows:
        return StagedStep()
    key, value = rows[0]
    branch = decode_branch(value)
    tokens = [
        [each.token_id, each.kind.value, each.buckets]
        for each in (() if branch.is_deleted else branch.tokens)
    ]
    return StagedStep(following=[key[len(prefix) :].decode(), tokens, ""])


def check_staged_row(key: bytes, value: bytes, partition: str) -> None:
    """Checks that a row of a token is an entry.

    Raises:
        TarnError: CORRUPT.
    """
    if not key.startswith(PATHS_START) or len(value) < HEAD_BYTES or value[0] != VERSION:
        text = f"row {key[:200]!r} of {partition} is no staged entry: run `tarn fsck`"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
