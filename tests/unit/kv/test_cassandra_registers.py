"""Compare-and-set on a fake cluster with injected failures: which outcomes are settled, and how."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import OperationTimedOut, Unavailable, WriteTimeout
from tests.support.clock import ManualClock, RestlessClock, SeededIds

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.cassandra.cluster.retry import Retry
from tarn.kv.cassandra.cluster.session import Answered, Profile
from tarn.kv.cassandra.cluster.statements import seal_value
from tarn.kv.cassandra.rows.partition_queues import PartitionQueues
from tarn.kv.cassandra.rows.registers import Registers, RegisterSet
from tarn.kv.cassandra.rows.request_batches import CassandraPartition, Reads
from tarn.kv.cassandra.settings import CassandraLimits
from tarn.kv.port import OutcomeUnknownError, Predicate, PredicateFailedError
from tarn.telemetry.meters import Meters

PLACE = CassandraPartition(b"p", 0)
SERVER_TIMEOUT = WriteTimeout("contention", write_type=5)
CUT = OperationTimedOut()
PLAIN = ("plain_get", "plain_get_cross_bucket", "plain_stamps", "plain_stamps_cross_bucket")


class Bound(tuple):  # type: ignore[type-arg]  # name and parameters
    """A bound statement of the fake cluster."""

    __slots__ = ()


class Fault(SimpleNamespace):
    """An error for the next conditional statement, before or after it is applied."""

    error: Exception
    applied: bool


class Cluster:
    """One partition of registers, with the session's `submit`; each statement is one step of the loop."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[bytes, bytes]] = {}
        self.faults: deque[Fault] = deque()
        self.sent: list[str] = []
        self.late: list[Bound] = []
        """Statements that are applied after the next settling read, as if they had waited in a queue."""

    def statements(self) -> Any:
        names = ("cas_get", "cas_insert", "cas_update", "cas_upsert", "cas_delete_if", "cas_delete")
        made = {
            name: SimpleNamespace(bind=lambda args, name=name: Bound((name, args)))
            for name in names
        }
        return SimpleNamespace(**made, **dict.fromkeys(PLAIN))

    def submit(self, statement: Any, profile: Profile, answered: Answered) -> None:
        asyncio.get_running_loop().call_soon(self._do, statement, profile, answered)

    def _do(self, bound: Bound, profile: Profile, answered: Answered) -> None:
        name, args = bound
        self.sent.append(name)
        if profile is not Profile.CAS:
            found = [(k, *self.rows[k]) for k in args[2] if k in self.rows]
            late, self.late = self.late, []
            for statement in late:
                self._apply(*statement)
            answered(found, None)
            return
        fault = self.faults.popleft() if self.faults else None
        rows = [self._apply(name, args)] if fault is None or fault.applied else []
        answered(rows or None, fault.error if fault else None)

    def _apply(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        if name == "cas_insert":
            _, _, key, cell, nonce = args
            holds = key not in self.rows
        elif name == "cas_update":
            cell, nonce, _, _, key, predicate = args
            holds = self.rows.get(key, (b"", None))[1] == predicate
        elif name == "cas_upsert":
            cell, nonce, _, _, key = args
            holds = True
        else:
            _, _, key, predicate = args
            cell, nonce = None, None
            holds = self.rows.get(key, (b"", None))[1] == predicate
        before = self.rows.get(key)
        if not holds:
            shown = {} if before is None else {"v": before[0], "n": before[1]}
            return {"[applied]": False} | shown
        if cell is None:
            del self.rows[key]
        else:
            self.rows[key] = (cell, nonce)
        return {"[applied]": True}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
async def registers(cluster: Cluster) -> Registers:
    clock = RestlessClock()
    limits = CassandraLimits(attempts=3)
    retry = Retry(clock, random.Random(1), limits.attempts)
    session: Any = cluster
    reads = Reads(session, cluster.statements(), limits, retry)
    queues = PartitionQueues(session, clock, limits)
    return Registers(queues, reads, cluster.statements(), SeededIds(ManualClock()), retry)


def stored(cluster: Cluster, value: bytes, nonce: bytes = b"before") -> Predicate:
    cluster.rows[b"k"] = (seal_value(value), nonce)
    return Predicate(nonce)


async def test_an_applied_write_of_unknown_outcome_is_success(
    cluster: Cluster, registers: Registers
) -> None:
    for error in (CUT, SERVER_TIMEOUT):
        before = stored(cluster, b"1")
        cluster.faults.append(Fault(error=error, applied=True))
        mine = await registers.set_if(PLACE, b"k", b"2", before)
        assert cluster.rows[b"k"] == (seal_value(b"2"), mine)
    assert cluster.sent == ["cas_update", "cas_get"] * 2


async def test_a_write_that_was_not_applied_is_repeated(
    cluster: Cluster, registers: Registers
) -> None:
    before = stored(cluster, b"1")
    cluster.faults.append(Fault(error=CUT, applied=False))
    mine = await registers.set_if(PLACE, b"k", b"2", before)
    assert cluster.rows[b"k"] == (seal_value(b"2"), mine)
    assert cluster.sent == ["cas_update", "cas_get", "cas_update"]


async def test_a_repetition_that_meets_our_own_late_attempt_is_success(
    cluster: Cluster,
    registers: Registers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first attempt waits in a node's queue while the settling read does not see it."""
    before = stored(cluster, b"1")
    cluster.faults.append(Fault(error=CUT, applied=False))
    task_nonce: list[bytes] = []
    submit = cluster.submit

    def keep(statement: Any, profile: Profile, answered: Answered) -> None:
        if isinstance(statement, Bound) and statement[0] == "cas_update" and not task_nonce:
            task_nonce.append(statement[1][1])
            cluster.late.append(statement)
        submit(statement, profile, answered)

    monkeypatch.setattr(cluster, "submit", keep)
    mine = await registers.set_if(PLACE, b"k", b"2", before)
    assert [mine] == task_nonce
    assert cluster.sent == ["cas_update", "cas_get", "cas_update"]


async def test_a_repetition_that_loses_after_a_lost_answer_is_unknown(
    cluster: Cluster, registers: Registers
) -> None:
    """Our late attempt may have been applied and overwritten; after a node's own answer that is impossible."""
    for error, kind in ((CUT, Kind.UNKNOWN_OUTCOME), (SERVER_TIMEOUT, Kind.CONFLICT)):
        before = stored(cluster, b"1")
        cluster.faults.append(Fault(error=error, applied=False))
        cluster.late.append(Bound(("cas_upsert", (seal_value(b"3"), b"other", b"p", 0, b"k"))))
        with pytest.raises(TarnError) as caught:
            await registers.set_if(PLACE, b"k", b"2", before)
        assert caught.value.kind is kind


async def test_a_write_that_keeps_failing_is_unknown_or_not_by_what_was_answered(
    cluster: Cluster, registers: Registers
) -> None:
    before = stored(cluster, b"1")
    cases = [
        ([SERVER_TIMEOUT] * 3, Kind.UNAVAILABLE),
        ([Unavailable("")] * 3, Kind.UNAVAILABLE),
        ([CUT, Unavailable(""), Unavailable("")], Kind.UNKNOWN_OUTCOME),
    ]
    for errors, kind in cases:
        cluster.faults.extend(Fault(error=error, applied=False) for error in errors)
        with pytest.raises(TarnError) as caught:
            await registers.set_if(PLACE, b"k", b"2", before)
        assert caught.value.kind is kind


async def test_a_creation_or_removal_that_the_row_does_not_tell_of_is_unknown(
    cluster: Cluster, registers: Registers
) -> None:
    cluster.faults.append(Fault(error=CUT, applied=False))
    with pytest.raises(OutcomeUnknownError):
        await registers.set_if(PLACE, b"k", b"1", None)
    before = stored(cluster, b"1")
    cluster.faults.append(Fault(error=CUT, applied=True))
    with pytest.raises(OutcomeUnknownError):
        await registers.delete_if(PLACE, b"k", before)


async def test_a_removal_whose_late_attempt_was_applied_is_unknown(
    cluster: Cluster, registers: Registers
) -> None:
    """The answer "it was absent" would be wrong: it would mean that another caller removed the row."""
    before = stored(cluster, b"1")
    cluster.faults.append(Fault(error=CUT, applied=False))
    cluster.late.append(Bound(("cas_delete_if", (b"p", 0, b"k", before))))
    with pytest.raises(OutcomeUnknownError):
        await registers.delete_if(PLACE, b"k", before)


async def test_losers_that_waited_are_answered_without_a_request(
    cluster: Cluster, registers: Registers
) -> None:
    """Of ten compare-and-sets of one version one is sent, and nine lose to the winner's value."""
    before = stored(cluster, b"0")

    async def write(number: int) -> bytes | None:
        try:
            await registers.set_if(PLACE, b"k", b"%d" % number, before)
        except PredicateFailedError as error:
            return error.current.value if error.current else None
        return b"won"

    async with asyncio.TaskGroup() as tasks:
        racers = [tasks.create_task(write(number)) for number in range(1, 11)]
    assert [racer.result() for racer in racers] == [b"won"] + [b"1"] * 9
    assert cluster.sent == ["cas_update"]


async def test_a_compare_and_set_queued_during_a_request_is_sent(
    cluster: Cluster, registers: Registers
) -> None:
    """Its predicate may be newer than what that request saw."""
    before = stored(cluster, b"0")
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(registers.set_if(PLACE, b"k", b"1", before))
        for _ in range(3):
            await asyncio.sleep(0)
        assert cluster.sent
        # Another process writes after our request was decided; the next task has read that.
        newer = stored(cluster, b"5", b"newer")
        second = tasks.create_task(registers.set_if(PLACE, b"k", b"6", newer))
    assert first.result()
    assert cluster.rows[b"k"] == (seal_value(b"6"), second.result())


async def test_other_rows_of_a_bucket_wait_but_do_not_lose(
    cluster: Cluster, registers: Registers
) -> None:
    before = stored(cluster, b"0")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(registers.set_if(PLACE, b"k", b"1", before))
        tasks.create_task(registers.set_if(PLACE, b"new", b"1", None))
    assert sorted(cluster.rows) == [b"k", b"new"]


async def test_a_set_of_unknown_outcome_is_settled_by_its_nonce(
    cluster: Cluster, registers: Registers
) -> None:
    rows = RegisterSet(PLACE, ((b"a", b"1"),), 2)
    cluster.faults.append(Fault(error=CUT, applied=True))
    assert await registers.set_rows([rows]) == [None]
    cluster.faults.append(Fault(error=CUT, applied=False))
    (outcome,) = await registers.set_rows([rows])
    assert isinstance(outcome, OutcomeUnknownError)


async def test_the_rows_of_each_grouped_write_are_measured(registers: Registers) -> None:
    meters = Meters()
    registers._queues.sizes = meters.histogram("kv.batch")
    assert await registers.set_rows([RegisterSet(PLACE, ((b"a", b"1"),), 2)]) == [None]
    await registers.set_if(PLACE, b"new", b"1", None)
    assert [*meters.samples("kv.batch.count")] == [({}, 1)]
    assert [*meters.samples("kv.batch.sum")] == [({}, 1)]


async def test_a_removal_that_finds_the_queue_full_was_not_sent(
    cluster: Cluster, registers: Registers
) -> None:
    stored(cluster, b"kept")
    limits = CassandraLimits(queued_max=0)
    registers._queues = PartitionQueues(registers._queues._session, RestlessClock(), limits)
    with pytest.raises(TarnError) as caught:
        await registers.delete_rows(PLACE, frozenset({b"k"}))
    assert (caught.value.kind, caught.value.reason) == (Kind.EXHAUSTED, Reason.OVERLOADED)
    assert cluster.sent == []
    assert b"k" in cluster.rows


async def test_sets_of_one_call_do_not_expire_behind_each_other(
    cluster: Cluster,
    registers: Registers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a second, as on an overloaded node; together they take longer than the limit for one."""
    clock = ManualClock()
    registers._queues._now = clock.monotonic
    submit = cluster.submit

    def slow(statement: Any, profile: Profile, answered: Answered) -> None:
        clock.advance(1.0)
        submit(statement, profile, answered)

    monkeypatch.setattr(registers._queues._session, "submit", slow)
    large = CassandraLimits().batch_bytes_max
    sets = [RegisterSet(PLACE, ((b"%d" % n, b"v"),), large) for n in range(10)]
    assert CassandraLimits().request_seconds < len(sets)
    assert await registers.set_rows(sets) == [None] * len(sets)
    assert len(cluster.rows) == len(sets)


async def test_after_a_set_failed_those_behind_it_are_not_sent(
    cluster: Cluster, registers: Registers
) -> None:
    cluster.faults.append(Fault(error=CUT, applied=False))
    other = CassandraPartition(b"p", 1)
    sets = [RegisterSet(p, ((b"%d" % n, b"v"),), 2) for n, p in enumerate([PLACE, PLACE, other])]
    first, second, elsewhere = await registers.set_rows(sets)
    assert first is not None
    assert first.kind is Kind.UNKNOWN_OUTCOME
    assert second is not None
    assert second.kind is Kind.UNAVAILABLE
    assert "not sent" in second.message
    assert elsewhere is None
    assert list(cluster.rows) == [b"2"]
