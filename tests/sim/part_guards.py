"""Guards of the reset of a part, and the replacements that disable them (see `lake_guards`)."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from tests.support.faults.guards import Guard, Weakening

import tarn.block.committed
import tarn_graveler.compaction.part_resets
from tarn.core.branch import AfterLostRace, Branch, Pin, Token, reset_part
from tarn.core.listing.spans import PathSpan
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.compaction.part_resets import PartResets
from tarn_graveler.records.branches import BranchName

__all__ = ["PART_GUARDS", "RARE_PART_GUARDS"]


def _forget_token(built_from: Branch, current: Branch, *made: Any, **how: Any) -> Branch:
    """Removes the replaced token together with those that were folded."""
    after = reset_part(built_from, current, *made, **how)
    return replace(after, sealed=after.sealed[1:])


async def _restore_nothing(*_: Any) -> AsyncGenerator[pa.RecordBatch, None]:
    """Leaves what the compacted listing has under the prefix."""
    for row in list[pa.RecordBatch]():
        yield row


_remaining = PartResets._remaining


async def _fold_nothing(
    self: PartResets, name: BranchName, record: Branch, span: PathSpan
) -> BuildOrder:
    """Builds from the base only, so that the sealed rows outside the part are lost with their tokens."""
    return await _remaining(self, name, replace(record, sealed=()), span)


def _reuse(built_from: Branch, current: Branch, pin: Pin | None) -> AfterLostRace:
    """Uses its result again after any change."""
    return AfterLostRace.REUSE


def _over_any(
    built_from: Branch,
    current: Branch,
    compacted: Pin | None,
    token: Token,
    op_id: bytes,
    *,
    now_us: int,
) -> Branch:
    """Removes those of its tokens that are left."""
    ours = replace(built_from, sealed=tuple(t for t in built_from.sealed if t in current.sealed))
    pins = () if compacted is None else (compacted,)
    over = replace(current, pins=pins)
    return reset_part(ours, over, compacted, token, op_id, now_us=now_us)


PART_GUARDS: Sequence[Guard] = (
    Guard(
        "part-keeps-rows",
        "9",
        "I1 I3 I4",
        "the token that a reset of a part replaces does not stay in the record",
        (Weakening(tarn_graveler.compaction.part_resets, "reset_part", _forget_token),),
        runs=300,
    ),
    Guard(
        "part-keeps-the-rest",
        "6",
        "I1 I3 I4",
        "a reset of a part does not fold the rows outside the part",
        (Weakening(PartResets, "_remaining", _fold_nothing),),
        runs=300,
    ),
    Guard(
        "part-computes-again",
        "10",
        "I1 I3 I4 I5",
        "a reset of a part uses its result over any other record",
        (
            Weakening(tarn_graveler.compaction.part_resets, "after_lost_race", _reuse),
            Weakening(tarn_graveler.compaction.part_resets, "reset_part", _over_any),
        ),
        runs=300,
    ),
)

RARE_PART_GUARDS: Sequence[Guard] = (
    Guard(
        "part-restores-commit",
        "10",
        "I1 I3 I5",
        "a reset of a part leaves changes that are in the compacted listing",
        (Weakening(tarn.block.committed, "head_rows", _restore_nothing),),
        runs=300,
    ),
)
