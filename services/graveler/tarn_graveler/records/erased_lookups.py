"""The rows of a repository's erased addresses, as builds of listings and pages of uncommitted changes read them.

There may be a million rows, and as many addresses to look up. So a page looks up its addresses by their keys. A build
may run in a process that can only scan: it reads the rows between the addresses that it asks for, each once.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Partition, ScanKv

__all__ = ["ErasureLookups", "ScannedErasures"]

_SINGLY_MAX: Final = 8
"""Up to this many addresses are scanned for one by one. For more, all rows between the first and the last are read."""
_LOOKUPS_MAX: Final = 1000
"""Most rows of one lookup."""
_PREFIX_BYTES: Final = len(RepositoryKeys.ERASED)
_ADDRESS: Final = np.dtype("S16")
"""An address. Comparisons are right, because all have 16 bytes; values that are read from an array lack zeros."""


class ErasureLookups:
    """Implements `tarn.block.replacements.ErasedRows` by lookups that are sent when it is asked.

    Args:
        kv: the store.
        commits: the partition of the repository's commits, which holds the rows.
    """

    def __init__(self, kv: Kv, commits: Partition) -> None:
        self._kv = kv
        self._commits = commits

    async def any(self) -> bool:
        """See `ErasedRows.any`."""
        prefix = RepositoryKeys.ERASED
        return bool(await self._kv.scan(self._commits, prefix, after_prefix(prefix), 1))

    async def among(self, addresses: Sequence[bytes]) -> AbstractSet[bytes]:
        """See `ErasedRows.among`."""
        wanted = sorted(set(addresses))
        found: set[bytes] = set()
        for at in range(0, len(wanted), _LOOKUPS_MAX):
            page = wanted[at : at + _LOOKUPS_MAX]
            rows = await self._kv.get_many(self._commits, list(map(RepositoryKeys.erased, page)))
            found.update(
                address for address, row in zip(page, rows, strict=True) if row is not None
            )
        return found


class ScannedErasures:
    """Implements `tarn.block.replacements.ErasedRows` for one build, by scans. Remembers what it read: 16 B for a row.

    Args:
        kv: the store.
        commits: the partition of the repository's commits, which holds the rows.
    """

    def __init__(self, kv: ScanKv, commits: Partition) -> None:
        self._kv = kv
        self._commits = commits
        self._span: tuple[bytes, bytes] | None = None
        self._known: npt.NDArray[np.bytes_] = np.zeros(0, _ADDRESS)
        """The erased addresses whose keys are in the span, in order."""

    async def any(self) -> bool:
        """See `ErasedRows.any`."""
        prefix = RepositoryKeys.ERASED
        async with aclosing(self._scan(prefix, after_prefix(prefix))) as pieces:
            async for piece in pieces:
                if len(piece):
                    return True
        return False

    async def among(self, addresses: Sequence[bytes]) -> AbstractSet[bytes]:
        """See `ErasedRows.among`."""
        wanted = sorted(set(addresses))
        if not wanted:
            return frozenset()
        keys = list(map(RepositoryKeys.erased, wanted))
        start, end = keys[0], keys[-1] + b"\0"
        is_known = self._span is not None and self._span[0] <= start and end <= self._span[1]
        if len(wanted) <= _SINGLY_MAX and not is_known:
            rows = [await self._read(key, key + b"\0") for key in keys]
            return {address for address, row in zip(wanted, rows, strict=True) if len(row)}
        await self._learn(start, end)
        if not len(self._known):
            return frozenset()
        asked = np.array(wanted, _ADDRESS)
        at = np.minimum(np.searchsorted(self._known, asked), len(self._known) - 1)
        return {wanted[number] for number in np.flatnonzero(self._known[at] == asked).tolist()}

    async def _learn(self, start: bytes, end: bytes) -> None:
        """Reads those rows between two keys that are not known yet."""
        if self._span is None:
            self._known = await self._read(start, end)
            self._span = start, end
            return
        known_start, known_end = self._span
        if start < known_start:
            self._known = np.concatenate([await self._read(start, known_start), self._known])
        if end > known_end:
            self._known = np.concatenate([self._known, await self._read(known_end, end)])
        self._span = min(start, known_start), max(end, known_end)

    async def _read(self, start: bytes, end: bytes) -> npt.NDArray[np.bytes_]:
        """Returns the addresses of the rows between two keys, in order."""
        async with aclosing(self._scan(start, end)) as pieces:
            return np.concatenate([np.zeros(0, _ADDRESS), *[piece async for piece in pieces]])

    async def _scan(self, start: bytes, end: bytes) -> AsyncGenerator[npt.NDArray[np.bytes_], None]:
        """Yields the addresses of the rows between two keys."""
        batches: AsyncIterator[pa.RecordBatch] = self._kv.scan_arrow(self._commits, start, end)
        try:
            async for batch in batches:
                keys = batch.column("key").to_pylist()
                digits = b"".join([key[_PREFIX_BYTES:] for key in keys])
                yield np.frombuffer(bytes.fromhex(digits.decode()), _ADDRESS)
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()
