"""Builds the listing of a commit. Orders and results are ids, so that any process can do a build.

An order names sealed tokens of a confirmed record (rule 4) and the listing beneath them. The builder
reads the tokens itself: a row that was acknowledged before the seal was confirmed is in every later scan,
by any process. Nothing refers to the result until the branch record does. So a build that fails, is
cancelled or is done twice leaves only unreferenced files.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tarn.block.committed import BuildResult, Committed
from tarn.core.ids import MetarangeId
from tarn.kv.keys import PATHS_END, PATHS_START
from tarn.kv.port import Partition, ScanKv

__all__ = ["BuildOrder", "Builder", "InlineBuilder", "batch_of", "staged_batches"]

_SLICE_END: Final = 1 << 20  # the stop of `binary_slice` for "to the end"


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """The input of a build.

    Attributes:
        namespace: storage namespace of the repository.
        base: the listing to start from.
        tokens: the sealed tokens over it, newest first. Invariant: their seal is confirmed.
    """

    namespace: str
    base: MetarangeId
    tokens: tuple[Partition, ...]


class Builder(Protocol):
    """Writes listings durably."""

    async def build(self, order: BuildOrder) -> BuildResult:
        """Builds the listing of an order; its ranges and metarange are durable when this returns.

        Raises:
            TarnError: as `Committed.build` and the KV; UNAVAILABLE if the building process ended. No
                error leaves anything published.
        """
        ...


class InlineBuilder:
    """Builds in this process: small commits, simulations, and tools."""

    def __init__(self, kv: ScanKv, committed: Committed) -> None:
        self._kv = kv
        self._committed = committed

    async def build(self, order: BuildOrder) -> BuildResult:
        """See `Builder.build`."""
        layers = [staged_batches(self._kv, token) for token in order.tokens]
        return await self._committed.build(order.namespace, order.base, layers)


async def staged_batches(kv: ScanKv, token: Partition) -> AsyncIterator[pa.RecordBatch]:
    """Yields every staged row of a token in byte order, as batches of the columns `path` and `value`."""
    async for batch in kv.scan_arrow(token, PATHS_START, PATHS_END):
        yield batch_of(batch.column("key"), batch.column("value"))


def batch_of(keys: pa.BinaryArray, values: pa.BinaryArray) -> pa.RecordBatch:
    """Makes a batch of `path` and `value` from rows of a token."""
    paths = pc.binary_slice(keys, len(PATHS_START), _SLICE_END).cast(pa.string())
    return pa.record_batch([paths, values], names=["path", "value"])
