"""Guards of garbage collections (docs/design/collection.md), and plausible code without each.

Their seeds are played with collections. The second look at the roots hides most mistakes of the first, so a guard of
addresses is off together with that look: one look must be sufficient.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tests.sim.collectors
from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn.collection.sweeping
import tarn.core.address_age
import tarn.core.collection
import tarn_graveler.collection.roots
import tarn_graveler.collection.staged_walk
import tarn_graveler.guards.fences
from tarn.block.assembling import ListingWriter
from tarn.block.port import BlockKey, BlockNotFoundError, ReadBlocks
from tarn.collection.block_names import BlockKind, Listed
from tarn.collection.collector import Step
from tarn.collection.deleting import Deleter
from tarn.collection.graveler_run import GravelerRun
from tarn.collection.progress import CollectionProgress
from tarn.collection.references import References, RootBatch, Roots, collect_references
from tarn.core.branch import Branch
from tarn.core.collection import (
    Collection,
    CollectionLimits,
    Disturbance,
    Phase,
    Totals,
    begin,
    disturbance,
    end,
)
from tarn.core.ids import MetarangeId
from tarn.kv.records import decode_branch
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.guards.fences import BuildBlocks
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["COLLECTION_GUARDS", "ONE_LOOK", "RARE_COLLECTION_GUARDS"]


# ---- addresses

_check_age = AddressAge.check


def _any_age(self: AddressAge, packed: bytes, *, written: bool) -> None:
    """Stages an address of any age."""


def _age_before_only(self: AddressAge, packed: bytes, *, written: bool) -> None:
    if not written:
        _check_age(self, packed, written=written)


def _never_ahead(age_us: int, limits: CollectionLimits) -> bool:
    """Takes an address from the future for young."""
    return False


def _begin_hastily(
    current: Collection,
    run_id: str,
    phase: Phase,
    mark_run_id: str,
    now_us: int,
    limits: CollectionLimits,
    *,
    is_erasure: bool = False,
) -> Collection:
    """Judges blocks that are younger than the staging limit."""
    hasty = replace(limits, cutoff_us=limits.staging_us // 4)
    return begin(current, run_id, phase, mark_run_id, now_us, hasty, is_erasure=is_erasure)


def _begin_without_grace(
    current: Collection,
    run_id: str,
    phase: Phase,
    mark_run_id: str,
    now_us: int,
    limits: CollectionLimits,
    *,
    is_erasure: bool = False,
) -> Collection:
    hasty = replace(limits, grace_us=0)
    return begin(current, run_id, phase, mark_run_id, now_us, hasty, is_erasure=is_erasure)


def _no_wait(record: pb.Collection, now_us: int) -> Step:
    return Step.SWEEP if record.mark_run_id else Step.MARK


# ---- roots


class _Nothing:
    """Roots that name nothing."""

    async def read_roots(self) -> AsyncGenerator[RootBatch, None]:
        yield RootBatch()

    async def in_use(self, listings: Sequence[MetarangeId]) -> set[MetarangeId]:
        return set(listings)


async def _look_once(
    roots: Roots, blocks: ReadBlocks, namespace: str, folder: Path, progress: CollectionProgress
) -> References:
    """A second look that finds nothing."""
    return await collect_references(_Nothing(), blocks, namespace, folder, progress)


ONE_LOOK = Weakening(tarn.collection.sweeping, "collect_references", _look_once)
"""A sweep does not look at the roots for a second time."""


def _stages(*names: str) -> Sequence[Weakening]:
    """Reads the roots in another order, or not all of them."""
    following = dict(zip(names, [*names[1:], ""], strict=True))
    roots = tarn_graveler.collection.roots
    return (Weakening(roots, "_FIRST", names[0]), Weakening(roots, "_NEXT", following), ONE_LOOK)


def _staging_only(value: bytes) -> Branch:
    return replace(decode_branch(value), sealed=())


# ---- ranges and metaranges

_put = ListingWriter._put


async def _put_if_absent(self: ListingWriter, path: str, body: Any) -> None:
    """Relies on a range that it finds, at any age."""
    try:
        await self._reader.store.stat(BlockKey(self._namespace, path))
    except BlockNotFoundError:
        await _put(self, path, body)
    else:
        self.made.append(path)


async def _no_batch(self: GravelerRun, *block_ids: Sequence[str]) -> None:
    """Does not publish which blocks it deletes."""


async def _trusts_the_mark(
    self: Deleter, kind: BlockKind, rows: Listed, cutoff_us: int
) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)


async def _unchecked(self: BuildBlocks) -> None:
    """Looks for no sweep after a build."""


def _without_count(
    before: Collection, after: Collection, block_ids: Sequence[str], now_us: int
) -> Disturbance:
    """Looks for an open batch only, not at the count of batches."""
    alike = replace(before, fence_count=after.fence_count)
    return disturbance(alike, after, block_ids, now_us)


def _without_sweeps(
    before: Collection, after: Collection, block_ids: Sequence[str], now_us: int
) -> Disturbance:
    """Looks for batches only."""
    alike = replace(before, sweep_count=after.sweep_count)
    return disturbance(alike, after, block_ids, now_us)


_check_again = BuildBlocks.check_again


async def _check_before_only(self: BuildBlocks) -> None:
    """Looks for sweeps before the root is made, and not after that."""
    await _check_again(self)


def _without_pins(value: bytes) -> Branch:
    return replace(decode_branch(value), pins=())


def _end_batch_too(
    current: Collection, run_id: str, totals: Totals, now_us: int, *, is_complete: bool
) -> Collection:
    """Takes the batch of a run that has ended for ended."""
    ended = end(current, run_id, totals, now_us, is_complete=is_complete)
    return replace(ended, batch_until_us=0, batch=frozenset())


def _patient(self: Deleter, begun: tuple[float, float]) -> None:
    """Deletes however long ago it looked."""


def _of(name: str, without: str, *weakenings: Weakening, rule: str = "collection") -> Guard:
    return Guard(name, rule, "I9", without, weakenings, runs=200, mode=Mode.COLLECT)


_CORE = tarn.core.collection
_ROOTS = tarn_graveler.collection.roots

COLLECTION_GUARDS: Sequence[Guard] = (
    _of(
        "sealed-tokens-are-roots",
        "only the staging token of a branch is read",
        Weakening(tarn_graveler.collection.staged_walk, "decode_branch", _staging_only),
        ONE_LOOK,
    ),
    _of(
        "every-commit-is-a-root",
        "only the commits of branches and tags are read",
        *_stages("uploads", "staged", "branches", "tags"),
    ),
    _of(
        "address-age",
        "an address of any age is staged",
        Weakening(AddressAge, "check", _any_age),
        ONE_LOOK,
        rule="11",
    ),
    _of(
        "address-not-ahead",
        "an address from the future is staged",
        Weakening(tarn.core.address_age, "is_ahead", _never_ahead),
        ONE_LOOK,
        rule="11",
    ),
    _of(
        "cutoff-above-staging",
        "a mark judges blocks that are younger than the staging limit",
        Weakening(_CORE, "begin", _begin_hastily),
        ONE_LOOK,
    ),
    _of(
        "uploads-are-roots",
        "uploads are not read",
        *_stages("staged", "branches", "tags", "commits"),
    ),
)

RARE_COLLECTION_GUARDS: Sequence[Guard] = (
    _of(
        "build-renews",
        "a build relies on an old range that it finds",
        Weakening(ListingWriter, "_put", _put_if_absent),
    ),
    _of(
        "address-age-when-durable",
        "the age of an address is checked only before its row is written",
        Weakening(AddressAge, "check", _age_before_only),
        ONE_LOOK,
        rule="11",
    ),
    _of(
        "grace",
        "a sweep begins at the end of its mark",
        Weakening(_CORE, "begin", _begin_without_grace),
        Weakening(tests.sim.collectors, "next_step", _no_wait),
    ),
    _of(
        "compacted-after-tokens",
        "compacted listings and heads are read before the tokens",
        *_stages("uploads", "branches", "staged", "tags", "commits"),
    ),
    _of(
        "commits-last",
        "commits and heads are read before the tokens",
        *_stages("uploads", "branches", "tags", "commits", "staged"),
    ),
    _of(
        "batch-is-announced",
        "a sweep deletes ranges without a batch",
        Weakening(GravelerRun, "begin_batch", _no_batch),
        Weakening(GravelerRun, "end_batch", _no_batch),
    ),
    _of(
        "sweep-looks-again",
        "a sweep does not look whether a range has become young",
        Weakening(Deleter, "_looked_at", _trusts_the_mark),
    ),
    _of(
        "batch-is-recent",
        "a sweep that was stopped for long deletes by its old look",
        Weakening(Deleter, "_require_recent", _patient),
    ),
    _of(
        "build-checks-the-fence",
        "a build does not read the collection record",
        Weakening(BuildBlocks, "check", _unchecked),
        Weakening(BuildBlocks, "check_again", _unchecked),
    ),
    _of(
        "batches-are-counted",
        "a build does not notice a batch that began and ended while it was made",
        Weakening(tarn_graveler.guards.fences, "disturbance", _without_count),
    ),
    _of(
        "sweeps-are-counted",
        "a build does not notice a sweep that began while it was made",
        Weakening(tarn_graveler.guards.fences, "disturbance", _without_sweeps),
        rule="13",
    ),
    _of(
        "root-before-the-last-look",
        "a build looks for sweeps before its listing is a root, and not after that",
        Weakening(BuildBlocks, "check", _check_before_only),
        Weakening(BuildBlocks, "check_again", _unchecked),
        rule="13",
    ),
    _of(
        "pins-are-roots",
        "pinned listings are not read",
        Weakening(_ROOTS, "decode_branch", _without_pins),
        rule="13",
    ),
    _of(
        "batch-outlives-its-run",
        "a batch ends with its run, although its deletions may be under way",
        Weakening(_CORE, "end", _end_batch_too),
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
