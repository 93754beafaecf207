"""The objects that one client writes: their blocks, before and after they are staged.

In a run with collections a block is written by a gateway into the namespace of its repository, as a PutObject does: its
address is as old as the request, and some bodies take longer than an address stays young (rule 11). Some objects
are copies that share the block of an object that the client has seen. In other runs every block is there from the
beginning.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.sim.lost import LostError
from tests.sim.transport import GATEWAY_TOKEN

from tarn.block.port import BlockKey
from tarn.core.entry import address_of
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import physical_path
from tarn.testing.check.history import Op, Outcome

if TYPE_CHECKING:
    from tests.sim.gateways import Gateway
    from tests.sim.workload import Client

    from tarn_gateway.repository_cache import CachedRepository

__all__ = ["Objects"]

_SAME_RATE: Final = 0.05
_COPY_RATE: Final = 0.15
_COPY_ONLINE_RATE: Final = 0.3
_COPY_ERASE_RATE: Final = 0.4
_LATEST: Final = 2
_SLOW_RATE: Final = 0.2
_SLOW_FACTOR: Final = 4.0
"""Slow bodies take up to so many times the age that an address may have."""
_SEEN_MAX: Final = 20


class Objects:
    """The objects of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._world = client.world
        self._random = client.random
        self._mine = [1]
        self._seen: list[int] = []
        self._homes: dict[int, str] = {}
        self._copies: set[int] = set()
        self._fresh: set[int] = set()

    async def new(self, branch: str, *, conditional: bool = False) -> int | None:
        """Returns a value to write, whose block is there; sometimes one that the client has written before."""
        collecting = self._world.plan.collecting
        if collecting is not None:
            value = await self._placed(branch)
            if value is not None and self._random.random() < _SLOW_RATE:
                slow = _SLOW_FACTOR * collecting.staging_seconds
                await asyncio.sleep(self._random.uniform(0.0, slow))
            return value
        value = await self._world.values.new()
        if not conditional:
            if self._random.random() < _SAME_RATE:
                value = self._random.choice(self._mine)
            self._mine.append(value)
        return value

    async def _placed(self, branch: str) -> int | None:
        """Writes a block, or chooses one; None if that failed."""
        client, values = self._client, self._world.values
        repository_id = branch.split("/", maxsplit=1)[0]
        try:
            home = await client.repositories.get(client.call(), repository_id)
        except TarnError:
            return None
        if self._world.plan.online_seconds and self._random.random() < _COPY_ONLINE_RATE:
            return await self._copied(branch, home)
        seen = [each for each in self._seen if values.place(each)[0] == home.namespace]
        rate = _COPY_RATE
        if self._world.plan.erasing is not None:  # more of them are young enough
            seen, rate = seen[-_LATEST:], _COPY_ERASE_RATE
        if seen and self._random.random() < rate:
            value = values.placed(home.namespace, values.place(self._random.choice(seen))[1])
            self._copies.add(value)
        else:
            gateway = self._world.some_gateway(self._random)
            address = gateway.ids.uuid7()
            key = BlockKey(home.namespace, physical_path(address))
            try:
                await gateway.ask(lambda: gateway.blocks.put(key, b"x"), client.patience_seconds)
            except (TarnError, LostError):
                return None
            value = values.placed(home.namespace, address)
            self._fresh.add(value)
        self._homes[value] = home.instance_uid
        return value

    async def _copied(self, branch: str, home: CachedRepository) -> int | None:
        """Looks a source up for a copy by reference, as a CopyObject does; None if there is none."""
        client, values = self._client, self._world.values
        repository_id, branch_id = branch.split("/")
        key = self._random.choice(client.keys)
        try:
            found = await client.graveler.lookup(
                client.call(), repository_id, branch_id, key, is_copy_source=True
            )
        except TarnError:
            return None
        address = address_of(found.entry)
        if address is None or not found.may_be_shared or found.storage_namespace != home.namespace:
            return None
        value = values.placed(home.namespace, address)
        self._copies.add(value)
        self._homes[value] = home.instance_uid
        return value

    def proof_of(self, packed: bytes) -> tuple[str, bool]:
        """Returns the token of a gateway, and whether it made the address of an entry for one write."""
        if not self._world.plan.online_seconds:
            return "", False
        return GATEWAY_TOKEN, self._world.values.of(packed) in self._fresh

    async def home_of(self, repository_id: str, packed: bytes) -> str:
        """Returns the instance of the repository to which an entry belongs.

        Raises:
            TarnError: it cannot be found out.
        """
        if self._world.plan.collecting is not None:
            return self._homes[self._world.values.of(packed)]
        home = await self._client.repositories.get(self._client.call(), repository_id)
        return home.instance_uid

    async def ended(self, op: Op) -> None:
        """Removes the block of an object that was surely not staged, as gateways do."""
        assert op.value is not None, "a put has a value"
        if self._world.plan.erasing is not None and op.is_ok:
            self._seen = [*self._seen, op.value][-_SEEN_MAX:]
        if self._world.plan.collecting is None or op.outcome is not Outcome.FAIL:
            return
        if op.value not in self._copies:
            key = self._world.values.block(op.value)
            gateway: Gateway = self._world.some_gateway(self._random)
            try:
                await gateway.ask(
                    lambda: gateway.blocks.delete_many(key.namespace, [key.path]),
                    self._client.patience_seconds,
                )
            except (TarnError, LostError):
                return

    def may_be_swept(self, error: TarnError, begun: float) -> bool:
        """Whether a read that began at a time of the loop took so long that a sweep may have taken what it reads: a
        range of a listing that has been replaced since.
        """
        collecting = self._world.plan.collecting
        if collecting is None or error.reason is not Reason.BLOCK_NOT_FOUND:
            return False
        return self._world.loop.time() - begun > collecting.reading_seconds

    def looked_up(self, op: Op, begun: float) -> None:
        """Notes that a read found a value; its lookup began at a time of the loop."""
        if self._world.plan.collecting is None or not op.is_ok or not op.value or op.value < 0:
            return
        self._seen = [*self._seen, op.value][-_SEEN_MAX:]
        self._world.kept.looked_up(op.value, begun)
