"""Building what a commit holds: fed by ids, returning ids, so that it may be done in any process.

An order names sealed tokens of a confirmed record (rule 4) and the listing beneath them. Whoever builds
reads the tokens itself: rows that were acknowledged before the seal was confirmed are in every scan that
begins later, of any process. Nothing refers to what is built until the branch record does, so a build
that fails, is cancelled or is done twice leaves only files that nobody names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tarn.block.committed import BuildResult, Committed
from tarn.core.ids import MetarangeId
from tarn.kv.port import Partition, ScanKv
from tarn_graveler.branch.staged_rows import staged_batches

__all__ = ["BuildOrder", "Builder", "InlineBuilder"]


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """What to build.

    Attributes:
        namespace: of the repository.
        base: the listing to start from.
        tokens: the sealed tokens over it, newest first. Invariant: their seal is confirmed.
    """

    namespace: str
    base: MetarangeId
    tokens: tuple[Partition, ...]


class Builder(Protocol):
    """Makes listings durable."""

    async def build(self, order: BuildOrder) -> BuildResult:
        """The listing of an order; its ranges and metarange are durable when it returns.

        Raises:
            TarnError: as `Committed.build` and the KV; UNAVAILABLE: whoever builds is gone. Nothing
                was published, whatever is raised.
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
