"""Erased addresses of a repository: their rows say for ever why a block is missing (docs/design/erase.md).

A run of an erasure writes the rows of all addresses before it deletes the first block. No writer can stage one of them
any more: an address is staged only while it is younger than the staging limit (rule 11 of docs/design/protocol.md), and
only one that is much older is erased.
"""

from __future__ import annotations

from collections.abc import Sequence

from tarn.core.clock import Clock
from tarn.core.collection import CollectionLimits
from tarn.core.erasure import ErasedAddress, check_old_enough
from tarn.kv.collection_records import decode_erased, encode_erased
from tarn.kv.keys import RepositoryKeys
from tarn.kv.port import Group, Kv
from tarn.kv.records import Repository
from tarn.kv.register import require_written
from tarn_graveler.records.repositories import Repositories

__all__ = ["ErasedAddresses"]


class ErasedAddresses:
    """Reads and writes the rows of erased addresses."""

    def __init__(
        self, kv: Kv, repositories: Repositories, clock: Clock, limits: CollectionLimits
    ) -> None:
        self._kv = kv
        self._repositories = repositories
        self._clock = clock
        self._limits = limits

    async def find(
        self, repository: Repository, addresses: Sequence[bytes]
    ) -> dict[bytes, ErasedAddress]:
        """Returns those of some addresses that are erased, by a read that is sent now."""
        if not addresses:
            return {}
        partition = self._repositories.keys_of(repository).commits
        rows = await self._kv.get_many(partition, list(map(RepositoryKeys.erased, addresses)))
        return {
            address: decode_erased(row.value)
            for address, row in zip(addresses, rows, strict=True)
            if row is not None
        }

    async def erase(self, repository: Repository, addresses: Sequence[bytes], plan_id: str) -> None:
        """Writes the rows of addresses, durably. One that is erased keeps its row.

        Raises:
            TarnError: ADDRESS_TOO_YOUNG, before any row is written; UNAVAILABLE: some rows may be missing, or may be
                written later; repeat the call.
        """
        now_us = self._clock.now_us()
        for address in addresses:
            check_old_enough(address, now_us, self._limits)
        await self.restore(
            repository, {address: ErasedAddress(plan_id, now_us) for address in addresses}
        )

    async def restore(self, repository: Repository, rows: dict[bytes, ErasedAddress]) -> None:
        """Writes rows as a dump has them, durably. One that is erased keeps its row.

        Raises:
            TarnError: as `erase`, but for the age.
        """
        known = await self.find(repository, sorted(rows))
        groups = [
            Group(key, ((key, encode_erased(erased)),))
            for address, erased in sorted(rows.items())
            if address not in known
            for key in (RepositoryKeys.erased(address),)
        ]
        if groups:
            partition = self._repositories.keys_of(repository).commits
            require_written(await self._kv.set_many(partition, groups))
