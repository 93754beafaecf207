"""Guards of erasures (docs/design/erase.md), and plausible code without each.

Their seeds are played with erasures and garbage collections (`python -m tests.sim --erase`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn.block.committed
import tarn.block.replacements
import tarn.collection.erasing
import tarn_graveler.records.erased
from tarn.block.applying import ChangeApplier
from tarn.block.port import ReadBlocks
from tarn.collection.erase_search import HistoryRoots, SearchResult, StagedBatch, find_matching
from tarn.collection.erasing import Eraser
from tarn.collection.progress import CollectionProgress
from tarn.core.collection import CollectionLimits
from tarn.core.listing.run import Ints, Run

__all__ = ["ERASE_GUARDS", "RARE_ERASE_GUARDS"]

_ERASING = tarn.collection.erasing


async def _note_nothing(self: Eraser, *_: object) -> None:
    """Writes no row."""


def _as_if_old(addresses: pa.ChunkedArray) -> np.ndarray:
    return np.zeros(len(addresses), np.int64)


def _any_age(address: bytes, now_us: int, limits: CollectionLimits) -> None:
    """Erases addresses that a writer may still stage."""


class _OtherRoots:
    """The roots of a plan, some of which it reads otherwise."""

    def __init__(self, roots: HistoryRoots) -> None:
        self._roots = roots

    def __getattr__(self, name: str) -> Any:
        return getattr(self._roots, name)


class _CommittedOnly(_OtherRoots):
    async def staged(self, prefix: str) -> AsyncGenerator[StagedBatch, None]:
        for none in list[StagedBatch]():
            yield none


def _finding(roots_of: Callable[[HistoryRoots], Any]) -> Weakening:
    async def find(
        roots: HistoryRoots,
        blocks: ReadBlocks,
        namespace: str,
        pattern: str,
        progress: CollectionProgress,
    ) -> SearchResult:
        return await find_matching(roots_of(roots), blocks, namespace, pattern, progress)

    return Weakening(_ERASING, "find_matching", find)


class _KeepsOlder(ChangeApplier):
    """A build over a compacted listing in which an equal entry is no change, as over a commit."""

    def __init__(self, *base: Any, exact: bool = False, **options: Any) -> None:
        super().__init__(*base, **options)


async def _no_others(
    roots: HistoryRoots, blocks: ReadBlocks, ns: str, found: Any, _: object
) -> Any:
    """Looks for no copies by reference."""
    return found.slice(0, 0)


def _no_equal(changes: Run, committed: Run) -> tuple[Ints, list[bytes]]:
    """Lets the commit keep an entry whose block is erased."""
    return np.zeros(0, np.int64), []


def _of(name: str, without: str, *weakenings: Weakening) -> Guard:
    return Guard(name, "erase", "I9", without, weakenings, runs=200, mode=Mode.ERASE)


ERASE_GUARDS: Sequence[Guard] = (
    _of(
        "erased-rows-first",
        "blocks are deleted before the rows of their addresses are durable",
        Weakening(Eraser, "_note", _note_nothing),
    ),
    _of(
        "plan-reads-staged-rows",
        "a plan reads commits only",
        _finding(_CommittedOnly),
    ),
    _of(
        "plan-tells-copies",
        "a plan does not look for other paths of the same blocks",
        Weakening(_ERASING, "find_others", _no_others),
    ),
    Guard(
        "newest-equal-stays",
        "erase",
        "I4",
        "a build over a compacted listing keeps the older of equal entries",
        (Weakening(tarn.block.committed, "ChangeApplier", _KeepsOlder),),
        runs=200,
        mode=Mode.ERASE,
    ),
)

RARE_ERASE_GUARDS: Sequence[Guard] = (
    Guard(
        "equal-replaces-erased",
        "erase",
        "I4",
        "an object that is written again after its erasure is no change",
        (Weakening(tarn.block.replacements, "equal_elsewhere", _no_equal),),
        runs=200,
        mode=Mode.ERASE,
    ),
    _of(
        "erase-old-only",
        "an address that a writer may still stage is erased",
        Weakening(_ERASING, "_times_us", _as_if_old),
        Weakening(tarn_graveler.records.erased, "check_old_enough", _any_age),
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
