"""Rule 11 of docs/design/protocol.md: an entry is staged only while its block's address is young.

A collection judges only blocks that are much older than that. So no row that lands late, after a process paused or a
request waited in a queue, brings back a block that a collection has judged (docs/design/collection.md). The age is
checked before the row is written, where a refusal is certain, and again after the row is durable: only the second check
is a guard.

An address from the future is refused, too: the clock of its gateway is wrong, so its age says nothing about its block.

The object of an upload needs no check. Its record keeps the address, and outlives the completion.
"""

from __future__ import annotations

from tarn.core.address_age import check_address_age, is_young
from tarn.core.clock import Clock
from tarn.core.collection import CollectionLimits
from tarn.core.entry import ADDRESS_AT, address_of
from tarn.kv.register import unknown_if

__all__ = ["AddressAge"]


class AddressAge:
    """Checks the ages of addresses, by the clock of this replica."""

    def __init__(self, clock: Clock, limits: CollectionLimits) -> None:
        self._clock = clock
        self._limits = limits

    def check(self, packed: bytes, *, written: bool) -> None:
        """Refuses an entry whose address is too old, or from the future.

        Args:
            packed: the entry.
            written: whether a row of the operation is written already, so that no error is a refusal.

        Raises:
            TarnError: FAILED_PRECONDITION, ADDRESS_TOO_OLD, ADDRESS_IN_FUTURE; OUTCOME_UNKNOWN instead if `written`.
        """
        now_us = self._clock.now_us()
        if is_young(packed[ADDRESS_AT], now_us, self._limits):
            return
        address = address_of(packed)
        if address is not None:
            with unknown_if(written):
                check_address_age(address, now_us, self._limits)
