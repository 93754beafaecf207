"""The objects that one client writes: their blocks, before and after they are staged.

In a run with collections a block is written by a gateway into the namespace of its repository, as a PutObject does: its
address is as old as the request, and some bodies take longer than an address stays young (rule 11). Some objects
are copies that share the block of an object that the client has seen. In other runs every block is there from the
beginning.

In some plans objects are equal to earlier ones (`Values`): a client writes the bytes of the newest object of the path,
on this branch or another, or of any path, once more. These choices come from a stream of their own.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Final

from tests.sim.lost import LostError
from tests.sim.transport import GATEWAY_TOKEN
from tests.support.check.history import Op, OpKind, Outcome

from tarn.block.port import BlockKey
from tarn.core.entry import address_of
from tarn.core.errors import Reason, TarnError
from tarn.core.ids import address_time_us, physical_path

if TYPE_CHECKING:
    from tests.sim.gateways import Gateway
    from tests.sim.workload import Client

    from tarn.objects.repository_cache import CachedRepository

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
_AT_THE_PATH: Final = 0.6
_ON_ANY_BRANCH: Final = 0.8
"""Equal objects are equal to one of the path on the branch, or up to this share on any branch, or else of any path."""
_RECENT: Final = 30
_STRAY_MS: Final = 600_000
"""How far ahead a wrong clock is: much longer than any pause of a run, so that no such address ever becomes young."""
_STRAY_FACTOR: Final = 3.0
"""Objects with such addresses are staged up to so many times the cutoff and the grace later."""


class Objects:
    """The objects of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._world = client.world
        self._random = client.random
        # Of a rebuilt store, value 1 is one of the lost store, whose block a collection may have taken.
        self._mine = [] if self._world.is_second else [1]
        self._seen: list[int] = []
        self._homes: dict[int, str] = {}
        self._copies: set[int] = set()
        self._fresh: set[int] = set()
        self._equal = random.Random(f"equal {self._world.plan.seed} {client.name}")
        self._stray = random.Random(f"stray {self._world.plan.seed} {client.name}")

    async def new(self, branch: str, key: str, *, conditional: bool = False) -> int | None:
        """Returns a value to write, whose block is there; sometimes one that the client has written before, or an
        equal one."""
        like = self._original(branch, key)
        collecting = self._world.plan.collecting
        if collecting is not None:
            value = await self._placed(branch, like)
            if value is not None and self._random.random() < _SLOW_RATE:
                slow = _SLOW_FACTOR * collecting.staging_seconds
                await asyncio.sleep(self._random.uniform(0.0, slow))
            return value
        value = await self._world.values.new(like)
        if not conditional and like is None:
            if self._mine and self._random.random() < _SAME_RATE:
                old = self._random.choice(self._mine)
                # The first value of a run may be an upload's, whose ETag no PUT gives.
                value = old if self._world.values.may_be_equal(old) else value
            self._mine.append(value)
        return value

    async def again(self, branch: str, value: int) -> int | None:
        """Returns what a repeated request of a conditional write writes: in some plans the same bytes once more, under
        an address of their own, as gateways do; None if they could not be written."""
        if not self._world.plan.equal_rate:
            return value
        if self._world.plan.collecting is not None:
            return await self._placed(branch, value)
        return await self._world.values.new(value)

    def _original(self, branch: str, key: str) -> int | None:
        """Returns the object to which the next one is equal; mostly none."""
        if self._equal.random() >= self._world.plan.equal_rate:
            return None
        chance = self._equal.random()
        found = []
        for op in reversed(self._world.history.ops):
            if op.kind is not OpKind.PUT or not self._world.values.may_be_equal(op.value or 0):
                continue
            if chance < _AT_THE_PATH and (op.branch, op.key) != (branch, key):
                continue
            if chance < _ON_ANY_BRANCH and op.key != key:
                continue
            if chance < _ON_ANY_BRANCH:
                return op.value
            found.append(op.value)
            if len(found) == _RECENT:
                break
        return self._equal.choice(found) if found else None

    async def _placed(self, branch: str, like: int | None) -> int | None:
        """Writes a block, or chooses one; None if that failed."""
        client, values = self._client, self._world.values
        repository_id = branch.split("/", maxsplit=1)[0]
        try:
            home = await client.repositories.get(client.call(), repository_id)
        except TarnError:
            return None
        if (
            like is None
            and self._world.plan.online_seconds
            and self._random.random() < _COPY_ONLINE_RATE
        ):
            return await self._copied(branch, home)
        seen = [each for each in self._seen if values.place(each)[0] == home.namespace]
        if self._world.plan.online_seconds:
            seen = []  # gateways copy only what they looked up as the source of a copy
        rate = _COPY_RATE
        if self._world.plan.erasing is not None:  # more of them are young enough
            seen, rate = seen[-_LATEST:], _COPY_ERASE_RATE
        if like is None and seen and self._random.random() < rate:
            value = values.placed(home.namespace, values.place(self._random.choice(seen))[1])
            self._copies.add(value)
        else:
            gateway = self._world.some_gateway(self._random)
            address = gateway.ids.uuid7()
            if is_stray := self._stray.random() < self._world.plan.stray_rate:
                address = _from_the_future(address)
            key = BlockKey(home.namespace, physical_path(address))
            try:
                await gateway.ask(lambda: gateway.blocks.put(key, b"x"), client.patience_seconds)
            except (TarnError, LostError):
                return None
            value = values.placed(home.namespace, address, like)
            self._fresh.add(value)
            if is_stray:
                await self._wait_for_collections()
        self._homes[value] = home.instance_uid
        return value

    async def _wait_for_collections(self) -> None:
        """Waits for so long that the block may be judged and swept."""
        plan = self._world.plan.collecting
        assert plan is not None, "blocks are placed beside collections"
        self._world.statistics["addresses from the future"] += 1
        most = _STRAY_FACTOR * (plan.cutoff_seconds + plan.grace_seconds)
        await asyncio.sleep(self._stray.uniform(0.0, most))

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
        if op.is_ok and self._world.plan.equal_rate:
            self._world.statistics["equal objects"] += self._world.values.same(op.value) != op.value
        if self._world.plan.erasing is not None and op.is_ok:
            self._seen = [*self._seen, op.value][-_SEEN_MAX:]
        if self._world.plan.collecting is None or op.outcome is not Outcome.FAIL:
            return
        if op.value not in self._copies:
            await self.remove(op.value)

    async def remove(self, value: int) -> None:
        """Removes the block of an object, as a gateway does to whose block nothing refers."""
        key = self._world.values.block(value)
        gateway: Gateway = self._world.some_gateway(self._random)
        try:
            await gateway.ask(
                lambda: gateway.blocks.delete_many(key.namespace, [key.path]),
                self._client.patience_seconds,
            )
        except (TarnError, LostError):
            return

    def grounds(self, value: int) -> frozenset[str]:
        """Returns why graveler may have refused the address of a value by now (rule 11)."""
        plan = self._world.plan
        if plan.collecting is None:
            return frozenset()
        limits, skew_us = plan.collecting.limits, int(plan.skew_seconds * 1_000_000)
        age_us = self._client.transport.clock.now_us() - address_time_us(
            self._world.values.place(value)[1]
        )
        is_old = age_us + skew_us >= limits.staging_us
        is_ahead = skew_us - age_us > limits.ahead_us
        found = {Reason.ADDRESS_TOO_OLD: is_old, Reason.ADDRESS_IN_FUTURE: is_ahead}
        return frozenset(reason for reason, holds in found.items() if holds)

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


def _from_the_future(address: bytes) -> bytes:
    """Returns the address that a gateway whose clock is far ahead would have made."""
    return (int.from_bytes(address[:6], "big") + _STRAY_MS).to_bytes(6, "big") + address[6:]
