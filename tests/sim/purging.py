"""A repository that is deleted with its data, beside purges and restores (docs/design/erase.md).

Purgers are production's, over the simulated store: they crash, pause for longer than everything else takes, and their
deletions may be late. A client deletes the repository with its data and restores it from a dump, again and again. At
each deletion of a block the row of the namespace must say that a purge has begun: from then on no restore takes the
namespace. In the end the repository is there with all of its objects, or nothing of it is.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from tests.sim.admins import Admin
from tests.sim.collectors import CollectorProcess
from tests.sim.workload import Client
from tests.support.sim.kv_sqlite import SimSqlite
from tests.support.sim.swept_blocks import SweptBlockLink

from tarn.block.port import BlockKey
from tarn.client.erasures import ErasureClient
from tarn.collection.progress import CollectionProgress
from tarn.collection.purging import PURGE_FOLDER, Purger, is_due
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.keys import InstallationKeys
from tarn.kv.namespace_records import Namespace, decode_namespace
from tarn.rpc.wire.call import Call

if TYPE_CHECKING:
    from tests.sim.world import World

__all__ = ["DELETED", "RESTORED", "play"]

R = TypeVar("R")

DELETED: Final = "purge: blocks deleted"
RESTORED: Final = "purge: restores"
_LAKE: Final = "lake"
_MAIN: Final = "lake/main"
_KEYS: Final = InstallationKeys("sim")
_PURGERS: Final = 2
_GRACE_SECONDS: Final = 1
_CALL_SECONDS: Final = 5.0
_LIVES: Final = 3
_RESTORE_RATE: Final = 0.8
_ROUNDS: Final = 40
_ALL: Final = 10_000
_ORDER: Final = ("settings", "commit", "expired", "reflog", "branch", "tag")
_AGAIN: Final = {Kind.UNAVAILABLE, Kind.UNKNOWN_OUTCOME, Kind.DEADLINE, Kind.EXHAUSTED}


class _PurgerProcess(CollectorProcess):
    """Purges all namespaces that are due, also by an old list of doomed ones."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name, [_LAKE])
        self._what = "purge"

    def prepare(self) -> None:
        """See `CollectorProcess.prepare`."""
        super().prepare()
        transport = self._transport
        self.purger = Purger(
            ErasureClient(transport),
            lambda: transport.call(_CALL_SECONDS),
            self.open_blocks(),
            self.clock,
            self._random,
            CollectionProgress(),
        )

    def open_blocks(self) -> SweptBlockLink:
        """See `CollectorProcess.open_blocks`."""
        world = self.world
        return world.swept_link(self.wire, world.collector_faults, lambda key: _check(world, key))

    async def turn(self, repository_id: str) -> str:
        """Purges all that is due; returns what it did."""
        done = 0
        doomed = await self.purger.doomed()
        await asyncio.sleep(self._random.choice([0.0, 0.0, 1.5]))  # the list grows old
        for each in doomed:
            if is_due(each, self.clock.now_us()):
                report = await self.purger.purge(each, self.ids.nonce().hex())
                done += report.is_complete
        return f"{done} complete"


def _check(world: World, key: BlockKey) -> None:
    """Requires that a purge of the namespace has begun when a block goes."""
    row = _row(world, key.namespace)
    world.statistics[DELETED] += 1
    if not (row.doom_time_us and row.purge_begin_us):
        world.problem(f"a purge deletes {key.path}, but its namespace says: {row}")
    skew_us = int(2 * world.plan.skew_seconds * 1e6)
    if row.purge_begin_us + skew_us < row.purge_after_us:
        world.problem(f"a purge began before the end of the grace time: {row}")


def _row(world: World, namespace: str) -> Namespace:
    """Returns the row of a namespace from the store itself."""
    name, key = _KEYS.graveler.name, InstallationKeys.namespace(namespace)
    if isinstance(world.store, SimSqlite):
        found = world.store._rows._partitions[name].values[key]
    else:
        assert world.cassandra is not None, "there are two stores"
        decided = world.cassandra._registers[name][key].decided
        assert decided is not None, "the repository was created"
        found = decided
    return decode_namespace(found.value)


def _restored(line: str) -> tuple[int, int]:
    """Sorts a commit after its parents, and a ref after its commit."""
    fields = json.loads(line)
    return _ORDER.index(fields["kind"]), int(fields.get("generation", 0))


async def _sure(make: Callable[[], Awaitable[R]]) -> R:
    """Repeats a call until there is an answer.

    Raises:
        TarnError: the answer.
    """
    while True:
        try:
            return await make()
        except TarnError as error:
            if error.kind not in _AGAIN:
                raise
        await asyncio.sleep(0.05)


class _Owner(Client):
    """Deletes the repository with its data, and restores it."""

    def _call(self) -> Call:
        return self.transport.call(_CALL_SECONDS)

    async def dump(self) -> Sequence[str]:
        """Returns the lines of a dump, in the order in which they are restored."""
        lines: list[str] = []
        token = ""
        while True:
            page = await self.graveler.read_dump(self._call(), _LAKE, page_token=token)
            lines += page.lines
            token = page.next_page_token
            if not token:
                return sorted(lines, key=_restored)

    async def doom(self) -> None:
        """Deletes the repository with its data, until it is gone."""
        try:
            await _sure(
                lambda: self.graveler.delete_repository(
                    self._call(), _LAKE, with_data=True, grace_seconds=_GRACE_SECONDS
                )
            )
        except TarnError as error:
            if error.reason is not Reason.REPOSITORY_NOT_FOUND:
                raise

    async def restore(self, namespace: str, restore_id: str, lines: Sequence[str]) -> bool:
        """Restores the repository; whether the namespace could be taken."""
        try:
            bare = await _sure(
                lambda: self.graveler.begin_restore(
                    self._call(), _LAKE, namespace, default_branch_id="main", restore_id=restore_id
                )
            )
        except TarnError as error:
            if error.kind not in {Kind.ALREADY_EXISTS, Kind.INVALID}:
                raise
            return False
        try:
            await _sure(
                lambda: self.graveler.restore_records(self._call(), _LAKE, restore_id, lines)
            )
            await _sure(
                lambda: self.graveler.finish_restore(
                    self._call(), _LAKE, restore_id, bare.instance_uid
                )
            )
        except TarnError as error:
            self.world.problem(f"a restore that has its namespace failed: {error!r}")
        self.world.statistics[RESTORED] += 1
        return True


async def play(world: World) -> None:
    """Plays one run; problems are those of the world."""
    rng = random.Random(f"purges {world.plan.seed}")
    for replica in world.replicas:
        replica.start()
    await Admin(world, "admin", []).create(_MAIN)
    owner = _Owner(world, "owner", [_MAIN])
    for _ in range(2):
        for key in owner.keys:
            await owner.put(_MAIN, key)
        await owner.commit(_MAIN)
    found = await owner.graveler.get_repository(owner.call(), _LAKE)
    namespace, lines = found.storage_namespace, await owner.dump()
    before = {info.path for info in await world.blocks.list_page(namespace, "", "", _ALL)}
    world.collectors += [_PurgerProcess(world, f"p{n}") for n in range(_PURGERS)]
    for purger in world.collectors:
        purger.start()
    world.start_faults()
    is_there = True
    for life in range(_LIVES):
        await owner.doom()
        is_there = False
        await asyncio.sleep(rng.uniform(0.0, 2.5))
        if rng.random() < _RESTORE_RATE:
            is_there = await owner.restore(namespace, f"restore-{life}", lines)
        if not is_there:
            break
        await asyncio.sleep(rng.uniform(0.0, 1.0))
    await world.calm_down()
    if not is_there:
        await _purge_all(world)
    await _compare(world, namespace, before if is_there else set())
    for machine in [*world.replicas, *world.gateways]:
        machine.crash()


async def _purge_all(world: World) -> None:
    """Purges without faults, until nothing is left to do."""
    last = _PurgerProcess(world, "last purger")
    last.prepare()
    for _ in range(_ROUNDS):
        if all(each.HasField("purge_end_time") for each in await last.purger.doomed()):
            break
        await last.turn(_LAKE)
        await asyncio.sleep(0.2)
    else:
        world.problem(f"a purge did not end in {_ROUNDS} rounds")
    last.crash()


async def _compare(world: World, namespace: str, wanted: set[str]) -> None:
    left = {info.path for info in await world.blocks.list_page(namespace, "", "", _ALL)}
    left = {path for path in left if not path.startswith(PURGE_FOLDER)}
    for path in sorted(wanted - left):
        world.problem(f"{path} of a restored repository is missing")
    for path in sorted(left if not wanted else set()):
        world.problem(f"{path} of a purged repository is left")
