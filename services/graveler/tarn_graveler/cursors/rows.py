"""Items that are rows of one partition: refs, commits and repositories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tarn.kv.keys import after_prefix
from tarn.kv.paging import Scannable
from tarn.kv.port import KEY_BYTES_MAX, Partition
from tarn_graveler.cursors.cursor import Chunk

__all__ = ["RowSource"]

KeyT = TypeVar("KeyT", bound=str)
ValueT = TypeVar("ValueT")


class RowSource(Generic[KeyT, ValueT]):
    """The rows whose key is a fixed text and a name, in byte order of the names. A seek costs as much as a first read.

    Args:
        kv: the store.
        partition: where the rows are.
        root: the fixed text, such as `branches/`.
        decode: returns the item of a name and a value; None passes the row over.
        prefix: only names that start with it.
        verify: called after each read; raises if the rows may have been dropped before it. None: they are never
            dropped.
        rows_max: most rows of one read; for rows with large values.
    """

    def __init__(
        self,
        kv: Scannable,
        partition: Partition,
        root: bytes,
        decode: Callable[[str, bytes], tuple[KeyT, ValueT] | None],
        *,
        prefix: str = "",
        verify: Callable[[], Awaitable[None]] | None = None,
        rows_max: int = 1000,
    ) -> None:
        self._kv = kv
        self._partition = partition
        self._root = root
        self._decode = decode
        self._prefix = prefix
        self._verify = verify
        self._rows_max = rows_max

    async def read(self, start: str, count: int) -> Chunk[KeyT, ValueT]:
        """See `Source.read`."""
        root, count = self._root, min(count, self._rows_max)
        first = root + max(start, self._prefix).encode()
        whole = root + self._prefix.encode()
        if len(whole) > KEY_BYTES_MAX:  # longer than any key; an engine may refuse it
            return Chunk([], None)
        rows = await self._kv.scan(self._partition, first, after_prefix(whole), count)
        if self._verify is not None:
            await self._verify()
        names = [key[len(root) :].decode() for key, _ in rows]
        found = map(self._decode, names, [value for _, value in rows])
        items = [item for item in found if item is not None]
        return Chunk(items, names[-1] if len(rows) == count else None)
