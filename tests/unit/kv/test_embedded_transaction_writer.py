"""Group writes: batches, failures of sqlite at every place, bounds of queue and log."""

from __future__ import annotations

import asyncio
import dataclasses
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.embedded import EmbeddedKv, EmbeddedLimits, open_embedded, sql
from tarn.kv.embedded.actions import SetRows
from tarn.kv.embedded.database import open_database
from tarn.kv.embedded.transaction import Transaction
from tarn.kv.port import (
    COMPANION_KEYS,
    COMPANIONS_MAX,
    Group,
    OutcomeUnknownError,
    Partition,
    PartitionKind,
    Predicate,
    PredicateFailedError,
)

PLAIN = Partition("p", PartitionKind.PLAIN)
REGISTER = Partition("r", PartitionKind.REGISTER)


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError("injected")
    error.sqlite_errorcode = code
    error.sqlite_errorname = str(code)
    return error


def no_fault(_: str) -> None:
    return None


class FaultyConnection(sqlite3.Connection):
    """A connection that fails chosen statements, before or after they are executed."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]  # passed on
        self.statements: list[str] = []
        self.fault: Callable[[str], sqlite3.Error | None] = no_fault
        self.fault_after: Callable[[str], sqlite3.Error | None] = no_fault

    def execute(self, statement: str, parameters: object = ()) -> sqlite3.Cursor:
        self.statements.append(statement)
        if error := self.fault(statement):
            raise error
        cursor = super().execute(statement, parameters)  # type: ignore[arg-type]  # passed on
        if error := self.fault_after(statement):
            raise error
        return cursor

    def transactions(self) -> int:
        return self.statements.count("COMMIT")


def failing(wanted: str, code: int) -> Callable[[str], sqlite3.Error | None]:
    return lambda statement: sqlite_error(code) if statement == wanted else None


async def open_faulty(
    path: Path, limits: EmbeddedLimits | None = None
) -> tuple[EmbeddedKv, FaultyConnection]:
    database = open_database(path, "fsync")
    database.writer.close()
    faulty = sqlite3.connect(
        path, factory=FaultyConnection, isolation_level=None, check_same_thread=False
    )
    for pragma in sql.connection_pragmas("fsync"):
        faulty.execute(pragma).fetchall()
    database = dataclasses.replace(database, writer=faulty)
    return EmbeddedKv(database, limits or EmbeddedLimits()), faulty


@pytest.fixture
async def faulty_kv(tmp_path: Path) -> AsyncIterator[tuple[EmbeddedKv, FaultyConnection]]:
    kv, faulty = await open_faulty(tmp_path / "kv.db")
    yield kv, faulty
    faulty.fault = faulty.fault_after = no_fault
    await kv.close()


async def put(kv: EmbeddedKv, key: bytes) -> TarnError | None:
    (outcome,) = await kv.set_many(PLAIN, [Group(key, ((key, b"v"), (key + b"/event", b"e")))])
    return outcome


async def keys(kv: EmbeddedKv, partition: Partition = PLAIN) -> list[bytes]:
    return [key for key, _ in await kv.scan(partition, b"", None, 10_000)]


async def outcome_of(write: Awaitable[object]) -> TarnError | None:
    try:
        await write
    except TarnError as error:
        return error
    return None


async def test_writes_of_one_tick_are_one_transaction(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    before = faulty.transactions()
    async with asyncio.TaskGroup() as tasks:
        for number in range(30):
            tasks.create_task(put(kv, b"%d" % number))
        for number in range(30):
            tasks.create_task(kv.set_if(REGISTER, b"%d" % number, b"", None))
    assert faulty.transactions() == before + 1
    assert len(await keys(kv)) == 60
    assert len(await keys(kv, REGISTER)) == 30


async def test_lost_compare_and_set_does_not_affect_its_batch(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    version = await kv.set_if(REGISTER, b"k", b"1", None)
    before = faulty.transactions()
    async with asyncio.TaskGroup() as tasks:
        writes = [
            tasks.create_task(outcome_of(write))
            for write in (
                put(kv, b"a"),
                kv.set_if(REGISTER, b"k", b"2", None),
                kv.set_if(REGISTER, b"k", b"2", version),
                kv.set_if(REGISTER, b"k", b"3", version),
                kv.delete_if(REGISTER, b"k", version),
                kv.set_if(REGISTER, b"absent", b"", Predicate(b"x")),
                put(kv, b"b"),
            )
        ]
    assert faulty.transactions() == before + 1
    lost = [isinstance(write.result(), PredicateFailedError) for write in writes]
    assert lost == [False, True, False, True, True, True, False]
    assert await keys(kv) == [b"a", b"a/event", b"b", b"b/event"]
    assert [v and v.value for v in await kv.get_many(REGISTER, [b"k", b"absent"])] == [b"2", None]


async def test_mixed_kinds_do_not_affect_their_batch(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, _ = faulty_kv
    wrong = Partition(PLAIN.name, PartitionKind.REGISTER)
    async with asyncio.TaskGroup() as tasks:
        # All three check before the name has a kind, so the writer thread must decide.
        first = tasks.create_task(put(kv, b"a"))
        second = tasks.create_task(outcome_of(kv.set_if(wrong, b"k", b"", None)))
        third = tasks.create_task(put(kv, b"b"))
    error = second.result()
    assert error is not None
    assert error.kind is Kind.INVALID
    assert (first.result(), third.result()) == (None, None)
    assert await keys(kv) == [b"a", b"a/event", b"b", b"b/event"]


async def test_order_of_writes_holds_inside_a_batch(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    before = faulty.transactions()
    async with asyncio.TaskGroup() as tasks:
        for number in range(100):
            row = (b"k", b"%d" % number)
            tasks.create_task(kv.set_many(REGISTER, [Group(b"k", (row,))]))
        tasks.create_task(kv.delete_many(REGISTER, [b"k"]))
        tasks.create_task(kv.set_if(REGISTER, b"k", b"created", None))
        tasks.create_task(kv.delete_many(REGISTER, [b"k"]))
        tasks.create_task(kv.set_many(REGISTER, [Group(b"k", ((b"k", b"last"),))]))
    assert faulty.transactions() == before + 1
    assert await kv.scan(REGISTER, b"", None, 10) == [(b"k", b"last")]


@pytest.mark.parametrize("statement", [sql.BEGIN_WRITE, sql.STATEMENTS[PLAIN.kind].put[2]])
async def test_failure_before_commit_is_rolled_back(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection], statement: str
) -> None:
    kv, faulty = faulty_kv
    faulty.fault = failing(statement, sqlite3.SQLITE_IOERR)
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(put(kv, b"a"))
        two = tasks.create_task(outcome_of(kv.set_if(REGISTER, b"k", b"", None)))
    for error in (one.result(), two.result()):
        # Two rows in one statement are the put of one group, not of a larger batch.
        assert error is not None
        assert error.kind is Kind.UNAVAILABLE
    assert await keys(kv) == []
    faulty.fault = no_fault
    assert await put(kv, b"a") is None
    await kv.set_if(REGISTER, b"k", b"", None)


async def test_commit_without_space_is_surely_not_applied(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    faulty.fault = failing("COMMIT", sqlite3.SQLITE_FULL)
    error = await put(kv, b"a")
    assert error is not None
    assert error.kind is Kind.UNAVAILABLE
    assert await kv.get_many(PLAIN, [b"a"], settle=True) == [None]
    faulty.fault = no_fault
    assert await put(kv, b"b") is None
    assert await keys(kv) == [b"b", b"b/event"]


async def test_failed_commit_is_unknown_and_fenced(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    version = await kv.set_if(REGISTER, b"k", b"1", None)
    faulty.fault = failing("COMMIT", sqlite3.SQLITE_IOERR | (4 << 8))
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(put(kv, b"a"))
        lost = tasks.create_task(outcome_of(kv.set_if(REGISTER, b"k", b"", None)))
        won = tasks.create_task(outcome_of(kv.set_if(REGISTER, b"k", b"2", version)))
    assert isinstance(one.result(), OutcomeUnknownError)
    assert isinstance(won.result(), OutcomeUnknownError)
    # It wrote nothing, but the value that it would return was never durable.
    assert lost.result() is not None
    assert lost.result().kind is Kind.UNAVAILABLE  # type: ignore[union-attr]  # not None
    assert faulty.statements[-1] == sql.FENCE
    (found,) = await kv.get_many(REGISTER, [b"k"], settle=True)
    assert found is not None
    assert found.predicate == version


async def test_nothing_settles_until_the_fence_holds(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    faulty.fault = lambda statement: (
        sqlite_error(sqlite3.SQLITE_IOERR) if statement in {"COMMIT", sql.FENCE} else None
    )
    assert isinstance(await put(kv, b"a"), OutcomeUnknownError)
    with pytest.raises(TarnError) as caught:
        await kv.get_many(PLAIN, [b"a"], settle=True)
    assert caught.value.kind is Kind.UNAVAILABLE
    assert await kv.get_many(PLAIN, [b"a"]) == [None]
    error = await put(kv, b"b")
    assert error is not None
    assert error.kind is Kind.UNAVAILABLE
    faulty.fault = no_fault
    assert await put(kv, b"c") is None
    assert await kv.get_many(PLAIN, [b"a", b"b"], settle=True) == [None, None]


@pytest.mark.parametrize("after", [False, True])
async def test_every_statement_may_fail_once(tmp_path: Path, *, after: bool) -> None:
    """Fails the n-th statement, for all n, before or after it took effect: what was acknowledged
    is there, what was refused is not, and an unknown group is whole or absent."""
    done = False
    nth = 0
    while not done:
        kv, faulty = await open_faulty(tmp_path / f"{nth}.db")
        begin = len(faulty.statements)
        at = begin + nth

        def fault(
            statement: str, faulty: FaultyConnection = faulty, at: int = at
        ) -> sqlite3.Error | None:
            nth_one = len(faulty.statements) == at + 1
            return sqlite_error(sqlite3.SQLITE_IOERR) if nth_one else None

        if after:
            faulty.fault_after = fault
        else:
            faulty.fault = fault
        outcomes = {key: await put(kv, key) for key in (b"a", b"b", b"c")}
        outcomes[b"d"] = await outcome_of(kv.set_if(REGISTER, b"d", b"v", None))
        found = {*await keys(kv), *await keys(kv, REGISTER)}
        for key, error in outcomes.items():
            whole = {key} if key == b"d" else {key, key + b"/event"}
            if error is None:
                assert found & whole == whole
            elif isinstance(error, OutcomeUnknownError):
                assert found & whole in (set(), whole)
            else:
                assert not found & whole
        assert sum(error is not None for error in outcomes.values()) <= 1
        done = len(faulty.statements) <= at
        await kv.close()
        nth += 1
    assert nth > 15


async def put_told(kv: EmbeddedKv, number: int) -> None:
    """Writes a row with a companion, whose key is the number."""
    event = COMPANION_KEYS + b"%04d" % number, b"e"
    assert await kv.set_many(PLAIN, [Group(b"k", ((b"k", b"%d" % number),), (event,))]) == [None]


async def orders(kv: EmbeddedKv) -> list[int]:
    """The orders of the companions, in the order of their numbers."""
    return [each.order for each in await kv.scan_companions(PLAIN, b"", None, 10_000)]


async def test_companions_of_several_stores_have_the_order_of_their_writes(tmp_path: Path) -> None:
    """Each keeps numbers for its next companions, and must not use them after another one has written."""
    stores = [await open_embedded(tmp_path / "kv.db") for _ in range(3)]
    turns = (0, 0, 1, 0, 2, 2, 1, 1, 0, 1, 2, 0)
    for number, turn in enumerate(turns):
        await put_told(stores[turn], number)
    found = await orders(stores[0])
    assert len(found) == len(turns)
    assert found == sorted(set(found))
    for store in stores:
        await store.close()


async def test_a_lone_writer_counts_companions_once_for_many(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    """The counter is a page of the log more, and other rows of the same process change nothing."""
    kv, faulty = faulty_kv
    for number in range(20):
        await put_told(kv, number)
        assert await put(kv, b"%d" % number) is None
        await kv.set_if(REGISTER, b"%d" % number, b"", None)
    assert faulty.statements.count(sql.TAKE_PLACES) == 1
    many = tuple((COMPANION_KEYS + b"m%d" % number, b"") for number in range(COMPANIONS_MAX))
    for at in range(5_000 // COMPANIONS_MAX + 1):
        assert await kv.set_many(PLAIN, [Group(b"m", ((b"m", b"%d" % at),), many)]) == [None]
    assert faulty.statements.count(sql.TAKE_PLACES) == 2
    await put_told(kv, 20)
    found = await orders(kv)
    assert found[20] == max(found)


@pytest.mark.parametrize("failing_one", ["COMMIT", sql.COMPANION_STATEMENTS.put[1]])
async def test_numbers_of_a_failed_transaction_are_taken_again(
    tmp_path: Path, failing_one: str
) -> None:
    """The counter lost them with it: the next opening would give companions the same ones."""
    kv, faulty = await open_faulty(tmp_path / "kv.db")
    faulty.fault = failing(failing_one, sqlite3.SQLITE_FULL)
    event = COMPANION_KEYS + b"0000", b"e"
    assert await kv.set_many(PLAIN, [Group(b"k", ((b"k", b""),), (event,))]) != [None]
    faulty.fault = no_fault
    for number in range(3):
        await put_told(kv, number)
    await kv.close()
    kv = await open_embedded(tmp_path / "kv.db")
    await put_told(kv, 3)
    found = await orders(kv)
    assert len(found) == 4
    assert found == sorted(set(found))
    await kv.close()


async def test_full_disk_is_unavailable_until_there_is_room(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    """Here sqlite reports it, because of its own limit of pages."""
    kv, faulty = faulty_kv
    assert await put(kv, b"a") is None
    faulty.execute("PRAGMA max_page_count = 20").fetchall()
    large = Group(b"b", ((b"b", bytes(200_000)),))
    (error,) = await kv.set_many(PLAIN, [large])
    assert error is not None
    assert error.kind is Kind.UNAVAILABLE
    assert "full" in error.message
    assert await keys(kv) == [b"a", b"a/event"]
    faulty.execute("PRAGMA max_page_count = 100000").fetchall()
    assert await kv.set_many(PLAIN, [large]) == [None]


async def test_full_queue_is_overloaded(tmp_path: Path) -> None:
    limits = EmbeddedLimits(queue_bytes_max=20_000)
    kv = await open_embedded(tmp_path / "kv.db", limits=limits)
    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(put(kv, b"%03d" % number)) for number in range(40)]
        other = tasks.create_task(outcome_of(kv.set_if(REGISTER, b"k", bytes(2_000), None)))
    refused = [write.result() for write in writes if write.result() is not None]
    assert 0 < len(refused) < len(writes)
    for error in (*refused, other.result()):
        assert error is not None
        assert (error.kind, error.reason) == (Kind.EXHAUSTED, Reason.OVERLOADED)
    landed = [b"%03d" % n for n, write in enumerate(writes) if write.result() is None]
    assert [key for key in await keys(kv) if b"event" not in key] == landed
    assert await put(kv, b"later") is None
    # A write that is larger than the whole queue is accepted if the queue is empty.
    assert await kv.set_many(PLAIN, [Group(b"x", ((b"x", bytes(30_000)),))]) == [None]
    await kv.close()


async def test_large_call_is_several_transactions(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    before = faulty.transactions()
    groups = [Group(b"k", ((b"%06d" % n, b"v"),)) for n in range(5_000)]
    assert await kv.set_many(PLAIN, groups) == [None] * 5_000
    assert 3 <= faulty.transactions() - before <= 8
    await kv.delete_many(PLAIN, [b"%06d" % n for n in range(4_999)])
    assert await keys(kv) == [b"004999"]


async def test_cancelled_write_does_not_disturb_others(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, _ = faulty_kv
    async with asyncio.TaskGroup() as tasks:
        one = tasks.create_task(put(kv, b"a"))
        two = tasks.create_task(put(kv, b"b"))
        await asyncio.sleep(0)
        one.cancel()
    assert two.result() is None
    assert await put(kv, b"c") is None
    assert one.cancelled()
    assert kv._writer._queued_bytes == 0


async def test_close_writes_what_is_queued(tmp_path: Path) -> None:
    kv = await open_embedded(tmp_path / "kv.db")
    async with asyncio.TaskGroup() as tasks:
        writes = [tasks.create_task(put(kv, b"%03d" % number)) for number in range(200)]
        await asyncio.sleep(0)
        tasks.create_task(kv.close())
        tasks.create_task(kv.close())
    assert all(write.result() is None for write in writes)
    kv = await open_embedded(tmp_path / "kv.db")
    assert len(await keys(kv)) == 400
    await kv.close()


async def test_failed_thread_answers_every_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", reported.append)
    kv = await open_embedded(tmp_path / "kv.db")

    class Broken(SetRows):
        def apply(self, transaction: Transaction) -> None:
            raise RuntimeError("a bug")

    async with asyncio.TaskGroup() as tasks:
        mate = tasks.create_task(put(kv, b"a"))
        await asyncio.sleep(0)  # the other write is queued, and not yet handed over
        future = kv._writer.submit(Broken(PLAIN))
    assert isinstance(mate.result(), OutcomeUnknownError)
    assert isinstance(future.exception(), OutcomeUnknownError)
    error = await outcome_of(put(kv, b"b"))
    while error is None:  # the end of the thread was not noticed yet
        error = await put(kv, b"b")
    assert error.kind is Kind.UNAVAILABLE
    await kv.close()
    assert [str(report.exc_value) for report in reported] == ["a bug"]


async def test_a_write_of_the_tick_in_which_the_thread_failed_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop learns of the failure before it hands the write over to the thread, which has ended."""
    monkeypatch.setattr(threading, "excepthook", lambda _report: None)
    kv = await open_embedded(tmp_path / "kv.db")

    class Broken(SetRows):
        def apply(self, transaction: Transaction) -> None:
            raise RuntimeError("a bug")

    lost = kv._writer.submit(Broken(PLAIN))
    await asyncio.sleep(0)  # handed over
    kv._writer._thread.join(10)  # the loop is blocked, so it has not learnt of the failure yet
    late = kv._writer.submit(SetRows(PLAIN))
    async with asyncio.timeout(10):
        await asyncio.wait([lost, late])
    assert isinstance(lost.exception(), OutcomeUnknownError)
    error = late.exception()
    assert isinstance(error, TarnError)
    assert error.kind is Kind.UNAVAILABLE
    await kv.close()


async def test_log_stays_bounded_beside_a_reader_that_left_late(tmp_path: Path) -> None:
    limits = EmbeddedLimits(log_bytes_max=512 << 10)
    kv = await open_embedded(tmp_path / "kv.db", limits=limits)
    log = tmp_path / "kv.db-wal"

    async def write(mib: int) -> None:
        for number in range(mib * 4):
            row = (b"%02d" % (number % 16), bytes(256 << 10))
            assert await kv.set_many(PLAIN, [Group(b"k", (row,))]) == [None]

    assert await put(kv, b"a") is None
    with closing(sqlite3.connect(tmp_path / "kv.db", isolation_level=None)) as snapshot:
        snapshot.execute("BEGIN")
        snapshot.execute("SELECT count(*) FROM plains").fetchall()
        await write(8)
        held = log.stat().st_size
        snapshot.execute("COMMIT")
    await write(8)
    await kv.close()  # waits for the writer thread
    assert held > 4 << 20
    kv = await open_embedded(tmp_path / "kv.db", limits=limits)
    await write(4)
    assert await put(kv, b"b") is None
    assert log.stat().st_size <= 2 << 20
    await kv.close()


async def test_drop_lets_others_write_in_between(tmp_path: Path) -> None:
    kv = await open_embedded(tmp_path / "kv.db")
    other = await open_embedded(tmp_path / "kv.db")
    groups = [Group(b"k", ((b"%06d" % n, b"v"),)) for n in range(30_000)]
    assert not any(await kv.set_many(PLAIN, groups))
    log = tmp_path / "kv.db-wal"
    during: dict[str, int] = {"same handle": 0, "other handle": 0}

    async def write(handle: EmbeddedKv, name: str, drop: asyncio.Task[None]) -> None:
        number = 0
        while not drop.done():
            number += 1
            await handle.set_if(REGISTER, f"{name}/{number}".encode(), b"", None)
            during[name] += not drop.done()

    async with asyncio.TaskGroup() as tasks:
        drop = tasks.create_task(kv.drop_partition(PLAIN))
        tasks.create_task(write(kv, "same handle", drop))
        tasks.create_task(write(other, "other handle", drop))
    assert min(during.values()) >= 3
    assert await keys(other) == []
    assert log.stat().st_size < 1 << 20
    await other.close()
    await kv.close()


async def test_drop_of_large_values_is_cut_by_bytes(
    faulty_kv: tuple[EmbeddedKv, FaultyConnection],
) -> None:
    kv, faulty = faulty_kv
    for number in range(20):
        group = Group(b"k", ((b"%02d" % number, bytes(1 << 20)),))
        assert await kv.set_many(PLAIN, [group]) == [None]
    before = faulty.transactions()
    await kv.drop_partition(PLAIN)
    assert faulty.transactions() - before >= 5
    assert await keys(kv) == []
