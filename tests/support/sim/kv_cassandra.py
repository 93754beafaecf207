"""A simulated Cassandra: three nodes, quorums, client timestamps, light-weight transactions.

It may do everything wrong that a real cluster may (docs/design/kv.md, "Cassandra"), and nothing else:

*Plain* partitions: each node holds its own cells. A write gets the timestamp `max(this client's clock, newest seen
write time + 1)`. It reaches each node at a different time and is acknowledged by two. A node that is down gets the
write later, as a hint. A write that waits at its coordinator arrives late, with the timestamp that it was sent
with. A read asks two nodes at different times, takes the newest cell (of equal times the greater value) and repairs
both nodes before it answers. Dropping a partition writes one Cassandra tombstone with a timestamp in the future.

*Register* partitions: every write is linearised. A compare-and-set may be applied or refused and answer so; its
answer may be lost in both cases; or it stays *undecided*. An undecided change is decided later by itself, or the
next Paxos round on its row finishes or forgets it. A compare-and-set may also wait at its coordinator while the
caller gives up. It has not begun, so no other round can cancel it; it runs late, and is applied if its predicate
holds then. Quorum reads may miss a decided change that is not committed, until one of them sees it. A settling
(SERIAL) read and every later compare-and-set see all decided changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import pyarrow as pa
from tests.support.sim.cassandra_rows import Change, Gone, Node, Proposal, Register
from tests.support.sim.clock import SimClock
from tests.support.sim.faults import FaultInjector, refused
from tests.support.sim.stamps import Cell, ReadFirst, StampRule

from tarn.aio.task_set import TaskSet
from tarn.core.errors import TarnError
from tarn.kv.limits import (
    check_companion_names,
    check_companions,
    check_group,
    check_register,
    check_row,
    check_scan_limit,
)
from tarn.kv.paging import sifted
from tarn.kv.port import (
    COMPANION_KEYS,
    PAST_COMPANIONS,
    Companion,
    CompanionName,
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionInfo,
    PartitionKind,
    Predicate,
    PredicateFailedError,
    Row,
    RowFilter,
    SiftedPage,
    Versioned,
)

__all__ = ["SimCassandra"]

_NODES = 3
_QUORUM = 2
_WRITE_TIMEOUT_SECONDS = 2.0
_DROP_AHEAD_US = 86_400_000_000
_GIVE_UP_SECONDS = 0.2
_EXAMINED_ROWS = 20


class SimCassandra:
    """The cluster. `open` gives each replica its own coordinator and clock.

    Attributes:
        stamps: how clients give plain rows their timestamps; tests replace it.
    """

    stamps: type[StampRule] = ReadFirst

    def __init__(self, faults: FaultInjector, tasks: TaskSet) -> None:
        self._faults = faults
        self._tasks = tasks
        self._nodes = [Node() for _ in range(_NODES)]
        self._registers: dict[str, dict[bytes, Register]] = {}
        self._versions = 0
        self.described: dict[str, Partition] = {}

    def open(self, clock: SimClock) -> _Client:
        """Returns the session of one replica."""
        return _Client(self, self._faults, self._nodes, clock)

    async def trouble(self) -> None:
        """Takes one node down at a time, for ever."""
        while True:
            await asyncio.sleep(self._faults.random.expovariate(0.5))
            if not self._faults.happens(self._faults.profile.down_rate):
                continue
            node = self._faults.random.choice(self._nodes)
            node.is_down = True
            await asyncio.sleep(self._faults.random.uniform(0.1, 6.0))
            self._up(node)

    def heal(self) -> None:
        """Starts all nodes, delivers all hints, and decides every undecided change."""
        for node in self._nodes:
            self._up(node)
        for rows in self._registers.values():
            for register in rows.values():
                self.serial_read(register)

    @staticmethod
    def _up(node: Node) -> None:
        node.is_down = False
        hints, node.hints = node.hints, []
        for hint in hints:
            hint()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts work in the background; its result is discarded."""
        self._tasks.spawn(work)

    def version(self, value: bytes) -> Versioned:
        """Returns a value with a version that is unique in the run."""
        return Versioned(value, Predicate(self.ballot().to_bytes(8, "big")))

    def ballot(self) -> int:
        """Returns a number that is greater than all before."""
        self._versions += 1
        return self._versions

    def token_names(self) -> list[str]:
        """Returns the names of the partitions of staging tokens; for checkers."""
        plain = {name for node in self._nodes for name, _ in node.cells}
        return sorted(name for name in plain | self._registers.keys() if ":" in name)

    async def peek(self, partition: str) -> tuple[dict[bytes, bytes], list[Companion]]:
        """Returns all rows and companions of a partition that any node has, at this moment; for checkers."""
        cells: dict[bytes, Cell] = {}
        for key, register in self._registers.get(partition, {}).items():
            if register.decided is not None:
                cells[key] = (register.order, register.decided.value, True)
        for node in self._nodes:
            for place, held in node.cells.items():
                if place[0] == partition:
                    for key, cell in held.items():
                        cells[key] = max(cells.get(key, cell), cell)
        rows = {key: (order, value) for key, (order, value, is_live) in cells.items() if is_live}
        companions = [
            Companion(key, value, order)
            for key, (order, value) in rows.items()
            if key.startswith(COMPANION_KEYS)
        ]
        own = {k: value for k, (_, value) in rows.items() if not k.startswith(COMPANION_KEYS)}
        return own, companions

    # ---- registers

    def register(self, partition: Partition, key: bytes) -> Register:
        """Returns the row; creates it if it is missing."""
        rows = self._registers.setdefault(partition.name, {})
        return rows.setdefault(key, Register())

    def keys(self, partition: Partition, start: bytes, end: bytes | None) -> list[bytes]:
        """Returns the keys of all rows that were ever written, in order."""
        rows = self._registers.get(partition.name, {})
        return sorted(k for k in rows if k >= start and (end is None or k < end))

    def forget(self, partition: Partition) -> None:
        """Drops a register partition."""
        self._registers.pop(partition.name, None)

    def quorum_read(self, register: Register) -> Versioned | None:
        """Reads two of three nodes, which may see or miss an undecided or uncommitted change. A read that sees the
        change repairs it, so that all later reads see it, too."""
        if register.committed is not register.decided and self._faults.random.random() < 0.3:
            register.committed = register.decided
        if register.proposal is not None and self._faults.random.random() < 0.1:
            self.decide(register, register.proposal)
            register.committed = register.decided
        return register.committed

    def serial_read(self, register: Register) -> Versioned | None:
        """Runs a Paxos round: finishes or forgets an undecided change, and commits a decided one."""
        proposal = register.proposal
        if proposal is not None:
            if self._faults.random.random() < 0.5:
                self.decide(register, proposal)
            register.proposal = None
        register.committed = register.decided
        return register.decided

    @staticmethod
    def decide(register: Register, proposal: Proposal) -> None:
        """Decides an undecided change, unless a later round has finished or forgotten it."""
        if register.proposal is proposal:
            register.decided = proposal.after
            register.proposal = None


class _Client:
    """`Kv` of one replica."""

    def __init__(
        self, cluster: SimCassandra, faults: FaultInjector, nodes: Sequence[Node], clock: SimClock
    ) -> None:
        self._cluster = cluster
        self._faults = faults
        self._nodes = nodes
        self._clock = clock
        self._stamps = cluster.stamps(self)
        self._known: set[str] = set()

    def _descriptor(self, partition: Partition) -> None:
        """Reads the partition's descriptor, which the driver needs before it sends anything; may raise UNAVAILABLE."""
        is_new = partition.name not in self._known
        self._faults.raise_unavailable(f"the descriptor of {partition.name}", is_new=is_new)
        self._known.add(partition.name)
        self._cluster.described[partition.name] = partition

    def crash(self) -> None:
        """Does nothing: a crash does not affect requests that were sent."""

    # ---- plain partitions

    @staticmethod
    def _place(partition: Partition, key: bytes) -> tuple[str, int]:
        digest = hashlib.blake2b(key, digest_size=4).digest()
        return partition.name, int.from_bytes(digest, "big") % partition.buckets

    def _two_nodes(self) -> list[Node]:
        up = [node for node in self._nodes if not node.is_down]
        if len(up) < _QUORUM:
            raise refused("a read without a quorum")
        return self._faults.random.sample(up, _QUORUM)

    async def _quorum_cells(
        self, what: str, place: tuple[str, int], wanted: Callable[[Node], Iterable[bytes]]
    ) -> dict[bytes, Cell]:
        """Returns the newest cells of a bucket on two nodes, and repairs both nodes.

        Args:
            what: for the faults.
            place: the bucket.
            wanted: keys, in byte order; those that a node lacks are passed over.
        """
        nodes = self._two_nodes()
        newest: dict[bytes, Cell] = {}
        for node in nodes:
            await self._faults.hop(what)
            cells = node.cells.get(place, {})
            for key in wanted(node):
                cell = cells.get(key)
                if cell is not None and (key not in newest or newest[key] < cell):
                    newest[key] = cell
        dropped_us = max(node.dropped_us.get(place[0], -1) for node in nodes)
        newest = {key: cell for key, cell in newest.items() if cell[0] > dropped_us}
        for node in nodes:
            cells = node.cells.get(place, {})
            for key, cell in newest.items():
                if cells.get(key) is not cell:  # most nodes have it
                    node.put(place, key, cell)
        return newest

    def now_us(self) -> int:
        """See `Coordinator`."""
        return self._clock.now_us()

    async def read(
        self, place: tuple[str, int], wanted: Callable[[bytes], bool]
    ) -> dict[bytes, Cell]:
        """See `Coordinator`; runs before a write or at the same time."""
        return await self._quorum_cells(
            "write rows", place, lambda node: filter(wanted, node.between(place, b"", None))
        )

    async def send(self, place: tuple[str, int], cells: Mapping[bytes, Cell]) -> None:
        """See `Coordinator`.

        Raises:
            OutcomeUnknownError: two nodes did not answer in time.
        """
        done: asyncio.Queue[None] = asyncio.Queue()
        late = self._late()

        async def write(node: Node) -> None:
            if late:
                await asyncio.sleep(late[1])
            await self._faults.hop("write rows")

            def land() -> None:
                for key, cell in cells.items():
                    node.put(place, key, cell)

            if node.is_down:
                node.hints.append(land)
                return
            land()
            await self._faults.hop("write rows")
            done.put_nowait(None)

        for node in self._nodes:
            self._cluster.spawn(write(node))
        if late:
            await self._give_up("a write waits at its coordinator", late[0])
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_SECONDS):
                for _ in range(_QUORUM):
                    await done.get()
        except TimeoutError:
            raise OutcomeUnknownError("a write without a quorum of answers") from None
        if self._faults.fails(self._faults.profile.lost_rate):
            raise OutcomeUnknownError("the answer to a write was lost")

    async def _write_plain(self, partition: Partition, group: Group) -> TarnError | None:
        try:
            check_group(group)
            self._faults.refuse("a write")
            place = self._place(partition, group.anchor)
            rows = dict((*group.rows, *group.companions))
            await self._stamps.write(place, rows, live=True)
        except TarnError as error:
            return error
        return None

    # ---- registers

    def _companions(
        self, partition: Partition, companions: Sequence[Row]
    ) -> list[tuple[Register, Versioned]]:
        rows = [
            (self._cluster.register(partition, key), self._cluster.version(value))
            for key, value in companions
        ]
        for row, _ in rows:
            row.is_beside = True
        return rows

    def _couple(
        self,
        partition: Partition,
        key: bytes,
        after: Versioned,
        beside: list[tuple[Register, Versioned]],
    ) -> None:
        """Has rows decided with a change of a row."""
        if beside:
            row = self._cluster.register(partition, key)
            row.couple(after, beside, self._cluster.ballot)

    async def _compare(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate | None,
        after: Versioned | None,
        *,
        is_conditional: bool = True,
    ) -> None:
        """One light-weight transaction."""
        # Take the row now: a late write must not reach a partition that was dropped and created again.
        register = self._cluster.register(partition, key)
        await self._faults.hop("change record")
        self._faults.refuse("a compare-and-set")
        change = Change(key, predicate, after, is_conditional)
        if late := self._late():
            self._cluster.spawn(self._run_late(register, change, late[1]))
            await self._give_up("a compare-and-set waits at its coordinator", late[0])
        await self._faults.hop("change record")
        await self._round(register, change)

    def _late(self) -> tuple[float, float] | None:
        """Returns when the caller gives up and when the request then runs, in seconds; None: it is not late.

        In half of the cases it runs soon after, while the caller settles it or tries again.
        """
        faults = self._faults
        if not faults.fails(faults.profile.queued_rate):
            return None
        up = faults.random.uniform(0, _GIVE_UP_SECONDS)
        is_long = faults.random.random() < 0.5
        longest = faults.profile.queue_seconds if is_long else 20 * faults.profile.hop_seconds
        return up, up + faults.random.uniform(0, longest)

    async def _give_up(self, what: str, seconds: float) -> NoReturn:
        """Fails as the driver does after a time-out."""
        await asyncio.sleep(seconds)
        raise OutcomeUnknownError(what)

    async def _run_late(self, register: Register, change: Change, seconds: float) -> None:
        await asyncio.sleep(seconds)
        with contextlib.suppress(TarnError):  # the caller has given up
            await self._round(register, change)

    async def _round(self, register: Register, change: Change) -> None:
        """The Paxos round of a change."""
        profile, after = self._faults.profile, change.after
        current = self._cluster.serial_read(register)
        expected = current.predicate if current is not None else None
        is_lost_race = expected != change.predicate or (current is None and after is None)
        if change.is_conditional and is_lost_race:
            await self._faults.hop("change record")
            raise PredicateFailedError(change.key, current)
        if self._faults.fails(profile.late_rate):
            register.proposal = Proposal(after)
            self._cluster.spawn(self._decide_late(register, register.proposal))
            await self._faults.hop("change record")
            raise OutcomeUnknownError("a compare-and-set is undecided")
        is_lost = self._faults.fails(profile.lost_rate)
        if is_lost and self._faults.random.random() < 0.5:
            raise OutcomeUnknownError("a compare-and-set was lost on its way")
        register.decided = after
        lingers = self._faults.happens(profile.linger_rate)
        if not is_lost:
            # Before the answer, quorum reads may see the old or the new value; afterwards only the new one.
            await self._faults.hop("change record")
            if register.decided is after:
                register.committed = after
            await self._faults.hop("change record")
            return
        if not lingers:
            register.committed = register.decided
        raise OutcomeUnknownError("the answer to a compare-and-set was lost")

    async def _decide_late(self, register: Register, proposal: Proposal) -> None:
        await asyncio.sleep(self._faults.random.expovariate(1.0))
        if self._faults.random.random() < 0.5:
            self._cluster.decide(register, proposal)

    # ---- the port

    async def get_many(
        self, partition: Partition, keys: Sequence[bytes], *, settle: bool = False
    ) -> list[Versioned | None]:
        """See `Kv.get_many`."""
        self._descriptor(partition)
        is_record = partition.kind is PartitionKind.REGISTER
        what = "read record" if is_record else "read rows"
        await self._faults.hop(what)
        self._faults.refuse("a read")
        found: list[Versioned | None] = []
        if is_record:
            read = self._cluster.serial_read if settle else self._cluster.quorum_read
            registers = [self._cluster.register(partition, key) for key in keys]
            found += [None if each.is_beside else read(each) for each in registers]
        else:
            places = sorted({self._place(partition, key) for key in keys})
            cells: dict[bytes, Cell] = {}
            for place in places:
                own = sorted({key for key in keys if self._place(partition, key) == place})
                cells |= await self._quorum_cells("read rows", place, lambda _, own=own: own)  # type: ignore[misc]
            self._stamps.saw(cells)
            for key in keys:
                cell = cells.get(key)
                is_there = cell is not None and cell[2]
                found.append(
                    Versioned(cell[1], Predicate(b"")) if cell is not None and is_there else None
                )
        await self._faults.hop(what)
        return found

    async def set_many(
        self, partition: Partition, groups: Sequence[Group]
    ) -> list[TarnError | None]:
        """See `Kv.set_many`; raises when nothing was written."""
        self._descriptor(partition)
        outcomes: list[TarnError | None] = []
        if partition.kind is PartitionKind.PLAIN:
            async with asyncio.TaskGroup() as writes:
                tasks = [writes.create_task(self._write_plain(partition, g)) for g in groups]
            return [task.result() for task in tasks]
        for group in groups:
            try:
                # One batch of one Paxos partition: all rows of a group or none.
                (key, value), *rest = group.rows
                after = self._cluster.version(value)
                beside = [
                    (self._cluster.register(partition, k), self._cluster.version(v))
                    for k, v in rest
                ]
                for other, _ in beside:
                    other.is_beside = partition.buckets > 1
                check_companions(group.companions)
                beside += self._companions(partition, group.companions)
                self._couple(partition, key, after, beside)
                await self._compare(partition, key, None, after, is_conditional=False)
                outcomes.append(None)
            except TarnError as error:
                outcomes.append(error)
        return outcomes

    async def set_if(
        self,
        partition: Partition,
        key: bytes,
        value: bytes,
        predicate: Predicate | None,
        *,
        companions: Sequence[Row] = (),
    ) -> Predicate:
        """See `Kv.set_if`."""
        check_register(partition, "set_if")
        check_row(key, value)
        check_companions(companions)
        self._descriptor(partition)
        after = self._cluster.version(value)
        self._couple(partition, key, after, self._companions(partition, companions))
        await self._compare(partition, key, predicate, after)
        return after.predicate

    async def delete_many(self, partition: Partition, keys: Sequence[bytes]) -> None:
        """See `Kv.delete_many`."""
        self._descriptor(partition)
        for key in keys:
            if partition.kind is PartitionKind.REGISTER:
                await self._compare(partition, key, None, None, is_conditional=False)
            else:
                await self._faults.hop("clean")
                self._faults.refuse("a delete")
                await self._stamps.write(self._place(partition, key), {key: b""}, live=False)

    async def delete_if(
        self,
        partition: Partition,
        key: bytes,
        predicate: Predicate,
        *,
        companions: Sequence[Row] = (),
    ) -> None:
        """See `Kv.delete_if`."""
        check_register(partition, "delete_if")
        check_companions(companions)
        self._descriptor(partition)
        beside = self._companions(partition, companions)
        gone = Gone(b"", self._cluster.version(b"").predicate) if beside else None
        if gone is not None:
            self._couple(partition, key, gone, beside)
        await self._compare(partition, key, predicate, gone)

    async def scan(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Row]:
        """See `Kv.scan`: each bucket is read at its own moment."""
        check_scan_limit(limit)
        self._descriptor(partition)
        await self._faults.hop("scan")
        self._faults.refuse("a scan")
        rows: list[Row] = []
        if partition.kind is PartitionKind.REGISTER:
            rows += [
                (key, found.value)
                for key in self._cluster.keys(partition, start, end)
                if not key.startswith(COMPANION_KEYS)
                and (found := self._cluster.quorum_read(self._cluster.register(partition, key)))
            ]
        else:
            for bucket in range(partition.buckets):
                cells = await self._quorum_cells(
                    "scan",
                    (partition.name, bucket),
                    lambda node, bucket=bucket: node.between(  # type: ignore[misc]
                        (partition.name, bucket), start, end
                    ),
                )
                rows += [
                    (key, value)
                    for key, (_, value, live) in cells.items()
                    if live and not key.startswith(COMPANION_KEYS)
                ]
        await self._faults.hop("scan")
        return sorted(rows)[:limit]

    async def scan_companions(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int
    ) -> list[Companion]:
        """See `Kv.scan_companions`."""
        check_scan_limit(limit)
        first = max(start, COMPANION_KEYS)
        last = PAST_COMPANIONS if end is None else min(end, PAST_COMPANIONS)
        self._descriptor(partition)
        await self._faults.hop("scan")
        self._faults.refuse("a scan")
        companions: list[Companion] = []
        if partition.kind is PartitionKind.REGISTER:
            for key in self._cluster.keys(partition, first, last):
                register = self._cluster.register(partition, key)
                if found := self._cluster.quorum_read(register):
                    companions.append(Companion(key, found.value, register.order))
        else:
            for bucket in range(partition.buckets):
                place = (partition.name, bucket)
                cells = await self._quorum_cells(
                    "scan",
                    place,
                    lambda node, place=place: node.between(place, first, last),  # type: ignore[misc]
                )
                companions += [
                    Companion(key, value, order)
                    for key, (order, value, live) in cells.items()
                    if live
                ]
        await self._faults.hop("scan")
        return sorted(companions, key=lambda each: each.key)[:limit]

    async def scan_without(
        self, partition: Partition, start: bytes, end: bytes | None, limit: int, unwanted: RowFilter
    ) -> SiftedPage:
        """See `Kv.scan_without`."""
        return await sifted(self, partition, start, end, limit, unwanted, _EXAMINED_ROWS)

    def scan_arrow(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Not used: `KvLink` reads pages."""
        raise NotImplementedError

    async def delete_companions(self, partition: Partition, names: Sequence[CompanionName]) -> None:
        """See `Kv.delete_companions`."""
        check_companion_names(names)
        self._descriptor(partition)
        for anchor, key in names:
            if partition.kind is PartitionKind.REGISTER:
                await self._compare(partition, key, None, None, is_conditional=False)
            else:
                await self._faults.hop("clean")
                self._faults.refuse("a delete")
                await self._stamps.write(self._place(partition, anchor), {key: b""}, live=False)

    async def drop_partition(self, partition: Partition) -> None:
        """See `Kv.drop_partition`."""
        self._descriptor(partition)
        await self._faults.hop("clean")
        self._faults.refuse("a drop")
        if partition.kind is PartitionKind.REGISTER:
            self._cluster.forget(partition)
            return
        time_us = self._clock.now_us() + _DROP_AHEAD_US
        for node in self._nodes:
            await self._faults.hop("clean")
            if node.is_down:
                node.hints.append(lambda node=node: node.drop(partition.name, time_us))  # type: ignore[misc]
            else:
                node.drop(partition.name, time_us)

    async def partitions(self, prefix: str) -> AsyncIterator[PartitionInfo]:
        """See `ListingKv.partitions`."""
        await self._faults.hop("scan")
        self._faults.refuse("the list of partitions")
        for name, each in list(self._cluster.described.items()):
            rows, _ = await self._cluster.peek(name)
            if rows and name.startswith(prefix):
                yield PartitionInfo(name, each.kind, each.buckets)

    async def close(self) -> None:
        """Does nothing: the cluster outlives its sessions."""
