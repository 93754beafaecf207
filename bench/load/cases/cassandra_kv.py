"""The Cassandra driver alone: requests by number of buckets and of concurrent requests, and 1M rows in bulk.

Every row of the table is one operation on one row of the store. Compared operations alternate within the
same round. CPU is that of this process including the driver, as it would load a graveler.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import uvloop
from bench.load.cassandra import SECTION, cassandra_node
from bench.load.cassandra_unread import without_reading
from bench.load.client import Measured
from bench.load.processes import Processes
from bench.load.table import Row
from bench.load.trial import Case, Trial, pooled, trouble

from tarn.core.errors import TarnError
from tarn.kv.cassandra import CassandraKv, CassandraSettings, open_cassandra
from tarn.kv.port import Group, Kv, Partition, PartitionKind, Predicate, PredicateFailedError
from tarn.rpc.process.system import SystemClock, SystemIds

__all__ = ["CASES", "closed_loop", "compared"]

_BUCKETS = (1, 4, 16, 64)
_IN_FLIGHT = (1, 16, 128)
_ROUNDS = 3
_SECONDS = 0.5
_WARM_SECONDS = 0.1
_START_SECONDS = 0.7
"""Warm-up of each operation: Java compiles code that is called often."""
_KEYS = 20_000
"""Existing rows for reads and overwrites."""
_MILLION = 1_000_000
_CALL_ROWS = 2000
_CALLS = 4
_VALUE = bytes(range(200))

Operation = Callable[[int, int], Awaitable[None]]
"""Takes the number of the task, and the number of the request among all tasks."""


def _key(number: int) -> bytes:
    return b"data/lake/tables/events/part-%012d.parquet" % number


async def closed_loop(operation: Operation, in_flight: int, seconds: float) -> Measured:
    """Runs an operation repeatedly in a number of tasks, for some seconds.

    A `TarnError` counts as a failure; any other error ends the benchmark.
    """
    measured = Measured()
    numbers = itertools.count()
    began, cpu_s = time.perf_counter(), time.process_time()

    async def work(task: int) -> None:
        while (now := time.perf_counter()) < began + seconds and not measured.is_hopeless:
            try:
                await operation(task, next(numbers))
            except TarnError as error:
                measured.fail(str(error.reason), error.message)
            else:
                measured.latencies_s.append(time.perf_counter() - now)

    async with asyncio.TaskGroup() as group:
        for task in range(in_flight):
            group.create_task(work(task))
    measured.seconds = time.perf_counter() - began
    measured.client_cpu_s = time.process_time() - cpu_s
    return measured


async def _set(kv: Kv, partition: Partition, keys: Iterable[bytes]) -> None:
    groups = [Group(key, ((key, _VALUE),)) for key in keys]
    for error in await kv.set_many(partition, groups):
        if error is not None:
            raise error


class _Requests:
    """Single requests to partitions with a given number of buckets.

    Args:
        kv: the store.
        unread: the same store without the read before a write.
        buckets: number of buckets of each partition.
        keys: number of rows that `fill` writes.
    """

    def __init__(self, kv: CassandraKv, unread: CassandraKv, buckets: int, keys: int) -> None:
        self._kv = kv
        self._unread = unread
        self._keys = keys
        self._plain = Partition(f"bench/plain-{buckets}", PartitionKind.PLAIN, buckets)
        self._token = Partition(f"bench/token-{buckets}", PartitionKind.REGISTER, buckets)
        self._cas = Partition(f"bench/cas-{buckets}", PartitionKind.REGISTER, buckets)
        self._fresh = itertools.count(keys)
        self._versions: dict[bytes, Predicate] = {}

    async def fill(self) -> None:
        """Writes the rows that other operations read or overwrite."""
        for at in range(0, self._keys, _CALL_ROWS):
            until = min(at + _CALL_ROWS, self._keys)
            await _set(self._kv, self._plain, map(_key, range(at, until)))

    def _existing(self, number: int) -> bytes:
        """Returns one of the rows that `fill` wrote, far from the one before."""
        return _key(number * 7919 % self._keys)

    async def get(self, _task: int, number: int) -> None:
        (found,) = await self._kv.get_many(self._plain, (self._existing(number),))
        assert found is not None, "made by `fill`"

    async def set_fresh(self, _task: int, _number: int) -> None:
        await _set(self._kv, self._plain, (_key(next(self._fresh)),))

    async def set_fresh_unread(self, _task: int, _number: int) -> None:
        await _set(self._unread, self._plain, (_key(next(self._fresh)),))

    async def set_existing(self, _task: int, number: int) -> None:
        await _set(self._kv, self._plain, (self._existing(number),))

    async def set_existing_unread(self, _task: int, number: int) -> None:
        await _set(self._unread, self._plain, (self._existing(number),))

    async def set_token(self, _task: int, _number: int) -> None:
        await _set(self._kv, self._token, (_key(next(self._fresh)),))

    async def compare_and_set(self, task: int, _number: int) -> None:
        """Each task has its own row, so no compare-and-set fails without an error."""
        key = _key(task)
        try:
            version = self._versions.get(key)
            self._versions[key] = await self._kv.set_if(self._cas, key, _VALUE, version)
        except PredicateFailedError as error:
            self._versions.pop(key, None)
            if error.current is not None:
                self._versions[key] = error.current.predicate
            raise


@dataclass(frozen=True, slots=True)
class _Line:
    """One operation.

    Attributes:
        what: its name in the table.
        run: performs it.
        beside: the operation to compare it with; empty for none.
    """

    what: str
    run: Operation
    beside: str = ""


def _lines(requests: _Requests) -> tuple[_Line, ...]:
    fresh, existing = "set of a new key", "set of a key that is there"
    unread = "without the read"
    return (
        _Line("get", requests.get),
        _Line(fresh, requests.set_fresh, f"{fresh}, {unread}"),
        _Line(f"{fresh}, {unread}", requests.set_fresh_unread),
        _Line(existing, requests.set_existing, f"{existing}, {unread}"),
        _Line(f"{existing}, {unread}", requests.set_existing_unread),
        _Line("set of a new key of a conditional token", requests.set_token, fresh),
        _Line("compare-and-set, a row for each", requests.compare_and_set, existing),
    )


def _run(trial: Trial) -> None:
    with cassandra_node(trial.within("cassandra")) as nodes:
        settings = CassandraSettings(
            nodes.contact_points, nodes.LOCAL_DATACENTER, "bench", replication_factor=1
        )
        uvloop.run(_measure(trial, settings, Processes(nodes.pids)))


async def _measure(trial: Trial, settings: CassandraSettings, store: Processes) -> None:
    clock = SystemClock()
    kv = await open_cassandra(settings, clock=clock, ids=SystemIds(clock))
    try:
        unread = without_reading(kv)
        keys = trial.count(_KEYS, 200)
        start = _Requests(kv, unread, 2, keys)
        await start.fill()
        for line in _lines(start):
            await closed_loop(line.run, _IN_FLIGHT[-1], _START_SECONDS * min(1.0, trial.scale * 4))
        for buckets in _BUCKETS:
            requests = _Requests(kv, unread, buckets, keys)
            await requests.fill()
            lines = _lines(requests)
            for in_flight in _IN_FLIGHT:
                await _rounds(trial, store, lines, in_flight, f"driver, {_counted(buckets)}")
        for buckets in _BUCKETS:
            await _large(trial, kv, store, buckets)
    finally:
        await kv.close()


async def _rounds(
    trial: Trial, store: Processes, lines: Sequence[_Line], in_flight: int, form: str
) -> None:
    """Runs every operation in every round, so that operations of one round can be compared."""
    seconds = max(0.1, _SECONDS * min(1.0, trial.scale * 4))
    runs: dict[str, list[Measured]] = {line.what: [] for line in lines}
    store_s = dict.fromkeys(runs, 0.0)
    for line in lines:
        await closed_loop(line.run, in_flight, min(seconds, _WARM_SECONDS))
    for _ in range(min(_ROUNDS, trial.rounds)):
        for line in lines:
            before = store.cpu_s()
            runs[line.what].append(await closed_loop(line.run, in_flight, seconds))
            store_s[line.what] += store.cpu_s() - before
    for line in lines:
        whole = pooled(runs[line.what])
        count = max(1, whole.count)
        row = Row(
            trial.case,
            f"{line.what}, {in_flight} in flight",
            form=form,
            per_second=statistics.median(run.per_second for run in runs[line.what]),
            p50_ms=whole.quantile_ms(0.5),
            p99_ms=whole.quantile_ms(0.99),
            cpu_us=whole.client_cpu_s * 1e6 / count,
            store_cpu_us=store_s[line.what] * 1e6 / count,
            note=trouble(whole),
            failed=not whole.count or bool(whole.failures),
            rounds=len(runs[line.what]),
        )
        trial.emit(compared(row, runs[line.what], line.beside, runs.get(line.beside, ())))


def compared(row: Row, runs: Sequence[Measured], beside: str, others: Sequence[Measured]) -> Row:
    """Adds the ratio to another operation of the same rounds to a row, if there is one."""
    if not others:
        return row
    ratios = [
        run.per_second / max(1e-9, other.per_second)
        for run, other in zip(runs, others, strict=True)
    ]
    rate = statistics.median(other.per_second for other in others)
    return replace(
        row,
        ratio=statistics.median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        yardstick=f"{beside}: {rate:,.0f}/s",
    )


async def _large(trial: Trial, kv: CassandraKv, store: Processes, buckets: int) -> None:
    """Measures a million rows: write, scan, drop."""
    rows = trial.count(_MILLION, 10_000)
    partition = Partition(f"bench/large-{buckets}", PartitionKind.PLAIN, buckets)
    starts = iter(range(0, rows, _CALL_ROWS))

    async def load() -> None:
        for at in starts:
            await _set(kv, partition, map(_key, range(at, min(at + _CALL_ROWS, rows))))

    async def loads() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(_CALLS):
                group.create_task(load())

    async def count() -> int:
        found = 0
        async for batch in kv.scan_arrow(partition, b"", None):
            found += batch.num_rows
        return found

    async def scan() -> None:
        if (found := await count()) != rows:
            raise RuntimeError(f"the scan found {found} rows, not {rows}")

    async def drop() -> None:
        await kv.drop_partition(partition)

    whole = "1,000,000 rows; the time is of all"
    for what, work in (
        (f"sets of 2,000 rows a call, {_CALLS} in flight, {whole}", loads),
        (f"scan of {whole}", scan),
        (f"drop of {whole}", drop),
    ):
        form = f"driver, {_counted(buckets)}"
        trial.emit(await _at_once(Row(trial.case, what, form=form), rows, store, work))
    if found := await count():
        raise RuntimeError(f"{found} rows are left of a partition that was dropped")


async def _at_once(
    row: Row, rows: int, store: Processes, work: Callable[[], Awaitable[None]]
) -> Row:
    """Does the work once; rates and costs are per row of the store."""
    store_s, cpu_s, began = store.cpu_s(), time.process_time(), time.perf_counter()
    await work()
    seconds = time.perf_counter() - began
    return replace(
        row,
        per_second=rows / seconds,
        p50_ms=seconds * 1e3,
        cpu_us=(time.process_time() - cpu_s) * 1e6 / rows,
        store_cpu_us=(store.cpu_s() - store_s) * 1e6 / rows,
    )


def _counted(buckets: int) -> str:
    return f"{buckets} bucket{'s' if buckets > 1 else ''}"


CASES = (Case("cassandra-kv", _run, limit_s=390, section=SECTION),)
