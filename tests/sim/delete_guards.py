"""Guards of conditional deletes, and the replacements that disable them (see `lake_guards`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn_graveler.branch.conditional
from tarn.core.branch import Branch
from tarn.core.entry import is_tombstone
from tarn.kv.keys import path_key
from tarn.kv.port import Group
from tarn_graveler.branch.conditional import ConditionalStaging, _is_repeated, _Write

__all__ = ["DELETE_GUARDS", "RARE_DELETE_GUARDS"]

_set, _judge = ConditionalStaging._set, _Write.judge


async def _set_tombstone_blindly(
    self: ConditionalStaging,
    name: Any,
    record: Branch,
    path: str,
    value: bytes,
    newest: Any,
    event: Any,
) -> Any:
    """Writes a tombstone whatever the current row is, as a plain delete does."""
    if not is_tombstone(value):
        return await _set(self, name, record, path, value, newest, event)
    partition, key = self._layers.partition(name, record.staging), path_key(path)
    (error,) = await self._kv.set_many(partition, [Group(key, ((key, value),), event)])
    if error is not None:
        raise error
    return None


def _judge_as_staged(self: _Write, newest: Any, record: Branch) -> bool:
    """Takes a row for one in the staging token, if this is a delete."""
    return _judge(self, replace(newest, is_staged=True) if self.is_delete else newest, record)


def _is_anyones(newest: bytes, packed: bytes, operation_id: str) -> bool:
    """Takes every tombstone for that of this delete."""
    if is_tombstone(newest) and is_tombstone(packed):
        return True
    return _is_repeated(newest, packed, operation_id)


DELETE_GUARDS: Sequence[Guard] = (
    Guard(
        "delete-if-compares",
        "3",
        "I1 I4 I6",
        "a conditional delete writes its tombstone whatever the current row is",
        (Weakening(ConditionalStaging, "_set", _set_tombstone_blindly),),
        runs=100,
        mode=Mode.DELETES,
    ),
    Guard(
        "delete-if-names-its-operation",
        "3",
        "I6",
        "a conditional delete takes the tombstone of another one for its own",
        (Weakening(tarn_graveler.branch.conditional, "_is_repeated", _is_anyones),),
        runs=100,
        mode=Mode.DELETES,
    ),
)

RARE_DELETE_GUARDS: Sequence[Guard] = (
    Guard(
        "delete-if-own-tombstone",
        "3",
        "I1 I3 I4 I6",
        "its own tombstone in a sealed token counts like one in the staging token",
        (Weakening(_Write, "judge", _judge_as_staged),),
        runs=200,
        mode=Mode.DELETES,
    ),
)
"""Guards for which no seed is recorded."""
