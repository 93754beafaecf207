"""Guards of erasures (docs/design/erase.md), and plausible code without each.

Their seeds are played with erasures and garbage collections (`python -m tests.sim --erase`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

import tarn.lifecycle.erasing
import tarn_graveler.collection.erased
from tarn.block.port import ReadBlocks
from tarn.core.collection import CollectionLimits
from tarn.lifecycle.erase_search import Found, HistoryRoots, StagedBatch, find_matching
from tarn.lifecycle.erasing import Eraser
from tarn.lifecycle.progress import Progress
from tarn.testing.faults.guards import Guard, Weakening
from tarn.testing.faults.modes import Mode

__all__ = ["ERASE_GUARDS", "RARE_ERASE_GUARDS"]

_ERASING = tarn.lifecycle.erasing


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
        roots: HistoryRoots, blocks: ReadBlocks, namespace: str, pattern: str, progress: Progress
    ) -> Found:
        return await find_matching(roots_of(roots), blocks, namespace, pattern, progress)

    return Weakening(_ERASING, "find_matching", find)


async def _no_others(
    roots: HistoryRoots, blocks: ReadBlocks, ns: str, found: Any, _: object
) -> Any:
    """Looks for no copies by reference."""
    return found.slice(0, 0)


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
)

RARE_ERASE_GUARDS: Sequence[Guard] = (
    _of(
        "erase-old-only",
        "an address that a writer may still stage is erased",
        Weakening(_ERASING, "_times_us", _as_if_old),
        Weakening(tarn_graveler.collection.erased, "check_old_enough", _any_age),
    ),
)
"""Guards for which no seed is recorded; docs/design/simulation.md names the tests that detect their absence."""
