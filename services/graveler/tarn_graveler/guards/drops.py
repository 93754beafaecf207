"""Announces tokens before they leave their record, and registers partitions to be dropped: the first half of rule 5 of
docs/design/protocol.md. `tarn_graveler.collection.cleaner` is the other half.

A change that removes tokens from a branch record announces them *before* its compare-and-set; if the
announcement fails, the change is not made. So no later failure, lost answer or crash can hide a token
from the cleaner, and no such failure has to be reported to a caller whose change was made.

The first look comes two seconds after the announcement: the change that follows it takes milliseconds. So most
tokens take space for little more than the drop delay after they left their record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from tarn.core.branch import Token
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.drop_records import Drop, TokenOwner
from tarn.kv.port import Partition
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.repositories import Repositories

__all__ = ["DropDelay", "Drops"]

_LOOK_US = 2_000_000
_LOOKS_PER_DELAY_MIN = 8
"""The times of looks and drops are multiples of the first pause apart, so that most replicas compute the same ones."""
_ANNOUNCEMENTS = 4
"""How often a token is announced while the outcome is unknown. If one lost answer made a commit fail, a branch
with many sealed tokens could hardly be committed on a store that loses answers."""

_log = structlog.get_logger()


class DropDelay:
    """The delay of rules 2 and 5, which must be equal in all replicas.

    Attributes:
        delay_us: between the look that finds that no record names a token, and its drop.
        look_us: between an announcement and the first look.
    """

    def __init__(self, seconds: float) -> None:
        self.delay_us = int(seconds * 1_000_000)
        self.look_us = max(min(self.delay_us // _LOOKS_PER_DELAY_MIN, _LOOK_US), 1)


class Drops:
    """Announces tokens, and registers partitions for their drop.

    `has_journal`: the events of tokens are drained before they are dropped.
    """

    def __init__(
        self,
        drop_list: DropList,
        repositories: Repositories,
        clock: Clock,
        delay: DropDelay,
        *,
        has_journal: bool = False,
    ) -> None:
        self._has_journal = has_journal
        self._list = drop_list
        self._repositories = repositories
        self._clock = clock
        self._delay = delay

    async def announce(self, name: BranchName, tokens: Iterable[Token]) -> None:
        """Announces that tokens are about to leave a branch record. Announcing one again costs one row and
        does no harm, so rows whose outcome is unknown are written again, a few times.

        Raises:
            TarnError: UNAVAILABLE: the change must not be made.
        """
        unsure = list(tokens)
        for tries_left in reversed(range(_ANNOUNCEMENTS)):
            errors = await self._add(self._announcements(name, unsure))
            for error in filter(None, errors):
                if not tries_left or error.kind is not Kind.UNKNOWN_OUTCOME:
                    text = f"cannot list the tokens that branch {name.branch_id} gives up: {error.message}"
                    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text) from error
            unsure = [token for token, error in zip(unsure, errors, strict=True) if error]

    def _announcements(self, name: BranchName, tokens: Sequence[Token]) -> list[Drop]:
        drop_time_us = self._clock.now_us() + self._delay.look_us
        owned = [self._owned(name, token) for token in tokens]
        return [Drop(partition, drop_time_us, owner=owner) for partition, owner in owned]

    def _owned(self, name: BranchName, token: Token) -> tuple[Partition, TokenOwner]:
        keys = self._repositories.keys_of(name.repository)
        namespace = name.repository.storage_namespace if self._has_journal else ""
        owner = TokenOwner(keys.root, name.branch_id, token.token_id, storage_namespace=namespace)
        return keys.token(name.branch_id, token), owner

    async def register(
        self,
        partitions: Sequence[Partition],
        tokens: Sequence[tuple[BranchName, Token]] = (),
    ) -> bool:
        """Registers partitions, and tokens of branches, that nothing refers to any more.

        Returns:
            Whether all are on the list; if not, the caller must keep the record that names them and
                retry.
        """
        drop_time_us = self._clock.now_us() + self._delay.delay_us
        drops = [Drop(partition, drop_time_us) for partition in partitions]
        for name, token in tokens:
            partition, owner = self._owned(name, token)
            drops.append(
                Drop(partition, drop_time_us, journal=owner if self._has_journal else None)
            )
        errors = await self._add(drops)
        for error in filter(None, errors):
            _log.warning("cannot register a drop", reason=error.reason, error=error.message)
        return not any(errors)

    async def _add(self, drops: Sequence[Drop]) -> Sequence[TarnError | None]:
        """Adds drops to the list; returns one outcome for each, also when the store raises."""
        if not drops:
            return []
        try:
            return await self._list.add(drops)
        except TarnError as error:
            return [error] * len(drops)
