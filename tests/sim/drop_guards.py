"""Guards of dropping tokens, and the replacements that disable them (see `lake_guards`)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.faults.guards import Guard, Weakening

import tarn_graveler.branch.handle
from tarn.core.branch import Branch, Token
from tarn.kv.drop_records import Drop, TokenOwner
from tarn.kv.keys import RepositoryKeys
from tarn.kv.records import decode_branch
from tarn_graveler.branch.committing import Committing
from tarn_graveler.collection.cleaner import Cleaner
from tarn_graveler.guards.drops import DropDelay
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.drop_list import DropList

__all__ = ["DROP_GUARDS", "RARE_DROP_GUARDS"]

_LOOK_AGAIN_US = 50_000


def _all_tokens(before: Branch, after: Branch) -> tuple[Token, ...]:
    return before.tokens


async def _drop_announced(self: Cleaner, drop: Drop, owner: TokenOwner) -> None:
    """Drops every announced token, even if its record still names it."""
    del owner
    await self._add_or_raise(Drop(drop.partition, self._clock.now_us() + self._delay.delay_us))


_delay_init = DropDelay.__init__


def _no_delay(self: DropDelay, seconds: float) -> None:
    del seconds
    _delay_init(self, 0.0)


async def _look_and_drop(self: Cleaner, drop: Drop, owner: TokenOwner) -> None:
    """Drops immediately each token that the record does not name; readers of an older record get no time."""
    keys = RepositoryKeys(owner.root)
    (found,) = await self._kv.get_many(keys.refs, [keys.branch(owner.branch_id)], settle=True)
    if found is None or not decode_branch(found.value).names(owner.token_id):
        await self._drop(drop)
        return
    again_us = drop.drop_time_us + _LOOK_AGAIN_US
    await self._add_or_raise(replace(drop, drop_time_us=again_us))


_build = Committing._build


async def _build_and_drop(self: Committing, name: BranchName, record: Branch, request: Any) -> Any:
    """Registers tokens for dropping when they are scanned, before the commit is confirmed."""
    built = await _build(self, name, record, request)
    await self._drops.register([self._layers.partition(name, token) for token in record.sealed])
    return built


def _none_late(self: DropList, drops: Sequence[Drop], indexes: Sequence[int]) -> list[int]:
    """Counts a row of the list however late it is durable."""
    del self, drops, indexes
    return []


DROP_GUARDS: Sequence[Guard] = (
    Guard(
        "drop-exactly-removed",
        "5",
        "I1",
        "a commit drops every token of the record that it replaced",
        (
            Weakening(tarn_graveler.branch.handle, "removed_tokens", _all_tokens),
            Weakening(Cleaner, "_look", _drop_announced),
        ),
    ),
    Guard(
        "drop-looks",
        "5",
        "I1 I4",
        "announced tokens are dropped without reading the record that may still name them",
        (Weakening(Cleaner, "_look", _drop_announced),),
        runs=300,
    ),
    Guard(
        "drop-after-drop-delay",
        "5",
        "I1",
        "tokens are dropped immediately",
        (
            Weakening(DropDelay, "__init__", _no_delay),
            Weakening(Cleaner, "_look", _look_and_drop),
        ),
        runs=100,
    ),
    Guard(
        "drop-after-finish",
        "5",
        "I1",
        "tokens are registered for dropping before the commit is confirmed",
        (Weakening(Committing, "_build", _build_and_drop),),
        runs=200,
    ),
)

RARE_DROP_GUARDS: Sequence[Guard] = (
    Guard(
        "drop-row-in-time",
        "5",
        "I0",
        "a row of the drop list may land behind the checkpoint of the list",
        (Weakening(DropList, "_late", _none_late),),
        runs=200,
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
