"""The environment of a case (sizes, a folder, a sink for its rows), and the interleaved comparison."""

from __future__ import annotations

import itertools
import os
import statistics
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from bench.load.client import Load, Measured
from bench.load.node import Node
from bench.load.processes import Processes, pinned
from bench.load.signing import Request
from bench.load.sizes import KIB
from bench.load.table import Row

__all__ = ["Case", "Trial", "Yardstick", "compare", "fsync_ms", "pooled", "trouble"]

_WARM_SECONDS = 0.3
_FSYNC_TRIES = 50


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of one case.

    Attributes:
        case: its name.
        folder: its own folder, empty at first, removed afterwards.
        scale: 1.0 for a real run; sizes, times and counts shrink with it.
        quick: whether to measure only the main figures.
        emit: takes a row as soon as it is measured, so that a time limit loses only later rows.
    """

    case: str
    folder: Path
    scale: float
    quick: bool
    emit: Callable[[Row], None]

    @property
    def rounds(self) -> int:
        """Number of interleaved rounds of each figure."""
        return 2 if self.quick or self.scale < 1 else 5

    @property
    def seconds(self) -> float:
        """Length of one round, in seconds."""
        return max(0.2, (1.0 if self.quick else 2.0) * min(1.0, self.scale * 4))

    def count(self, full: int, least: int = 1) -> int:
        """Scales a number."""
        return max(least, int(full * self.scale))

    def within(self, name: str) -> Path:
        """Creates a new folder of the case."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder


@dataclass(frozen=True, slots=True)
class Case:
    """A case of the benchmark.

    Attributes:
        name: its name in `CASES=`.
        run: measures and emits rows.
        limit_s: time limit of a full run, in seconds.
        quick: whether it is part of `make bench-quick`.
        section: heading of the table of its rows; empty: the first table.
    """

    name: str
    run: Callable[[Trial], None]
    limit_s: int = 900
    quick: bool = False
    section: str = ""


@dataclass(frozen=True, slots=True)
class Yardstick:
    """A server to compare with.

    Attributes:
        name: its name in the table.
        address: address of its socket.
        processes: its processes.
        requests: returns the requests of a round by its number, if they differ from the node's; None: the
            same.
    """

    name: str
    address: tuple[str, int]
    processes: Processes
    requests: Callable[[int], Sequence[Request]] | None = None


@dataclass(slots=True)
class _Cost:
    """CPU seconds of a node while it is measured."""

    node: Node
    tarn_s: float = 0.0
    store_s: float = 0.0

    def of(self, work: Callable[[], Measured]) -> Measured:
        """Runs the work and adds its cost."""
        tarn_s, store_s = self.node.processes.cpu_s(), self.node.store.cpu_s()
        measured = work()
        self.tarn_s += self.node.processes.cpu_s() - tarn_s
        self.store_s += self.node.store.cpu_s() - store_s
        return measured

    def note(self, whole: Measured) -> str:
        """Describes the use of the cores, if the metadata store is a separate server."""
        if not self.node.store.pids:
            return ""
        cores = len(os.sched_getaffinity(0))
        shares = {
            "Tarn": self.tarn_s,
            "the metadata store": self.store_s,
            "the client": whole.client_cpu_s,
        }
        parts = (
            f"{who} {seconds / max(1e-9, whole.seconds) / cores:.0%}"
            for who, seconds in shares.items()
        )
        return f"of {cores} cores: {', '.join(parts)}"


def compare(
    trial: Trial,
    node: Node,
    yardstick: Yardstick,
    row: Row,
    requests: Callable[[int], Sequence[Request]],
    connections: int,
    *,
    repeat: bool = False,
    seconds: float = 0.0,
) -> None:
    """Measures the yardstick and Tarn alternately with the same requests, and emits the row.

    The ratio of a round refers to the mean of the yardstick's rounds before and after it, because other
    load of the machine drifts more slowly than that.

    Args:
        trial: defines rounds and times.
        node: the node to measure.
        yardstick: the server to compare with.
        row: names and goal; the other fields are filled in.
        requests: returns the requests of a round by its number, also for the yardstick. -1 is the
            warm-up.
        connections: number of connections in a closed loop.
        repeat: whether requests may be sent again in a round.
        seconds: length of a round, if it differs from the trial's.
    """
    seconds = seconds or trial.seconds

    def load(
        address: tuple[str, int], prepared: Sequence[Request], lasts: float = seconds
    ) -> Measured:
        with pinned(node.form.client_cores):
            return Load(address, prepared, connections, lasts, repeat=repeat).run()

    def loop(number: int, prepared: Sequence[Request], lasts: float = seconds) -> Measured:
        if yardstick.requests is not None:
            return load(yardstick.address, yardstick.requests(number), lasts)
        # The yardstick ignores the method: its answer to HEAD has a body like any other.
        return load(yardstick.address, [replace(r, is_head=False) for r in prepared], lasts)

    prepared = requests(-1)
    loop(-1, prepared, _WARM_SECONDS)
    load(node.address, prepared, _WARM_SECONDS)
    node.processes.forget_peak()
    prepared = requests(0)
    loops, runs, cost = [loop(0, prepared)], [], _Cost(node)
    for number in range(trial.rounds):
        prepared = prepared if number == 0 else requests(number)
        runs.append(cost.of(partial(load, node.address, prepared)))
        loops.append(loop(number + 1, prepared))
    measured = _compared(row, yardstick, runs, loops)
    whole = pooled(runs)
    count = max(1, whole.count)
    trial.emit(
        replace(
            measured,
            form=str(node.form),
            cpu_us=cost.tarn_s * 1e6 / count,
            store_cpu_us=cost.store_s * 1e6 / count if node.store.pids else None,
            rss_mib=node.processes.peak_rss_mib(),
            note="; ".join(filter(None, (measured.note, cost.note(whole)))),
        )
    )


def _compared(
    row: Row, yardstick: Yardstick, runs: Sequence[Measured], loops: Sequence[Measured]
) -> Row:
    """Fills in the row from the runs; `loops` has one run more, before and after them."""
    ratios = [
        2 * run.per_second / max(1e-9, before.per_second + after.per_second)
        for run, (before, after) in zip(runs, itertools.pairwise(loops), strict=True)
    ]
    whole, beside = pooled(runs), pooled(loops)
    return replace(
        row,
        per_second=statistics.median(run.per_second for run in runs),
        p50_ms=statistics.median(run.quantile_ms(0.5) for run in runs),
        p99_ms=whole.quantile_ms(0.99),
        ratio=statistics.median(ratios),
        ratio_low=min(ratios),
        ratio_high=max(ratios),
        yardstick=f"{yardstick.name}: {statistics.median(r.per_second for r in loops):,.0f}/s",
        note="; ".join(filter(None, (row.note, trouble(whole), trouble(beside)))),
        failed=not (whole.count and beside.count) or bool(whole.failures or beside.failures),
        rounds=len(runs),
    )


def pooled(runs: Sequence[Measured]) -> Measured:
    """Combines several runs into one."""
    whole = Measured(latencies_s=array("d"))
    for run in runs:
        whole.seconds += run.seconds
        whole.client_cpu_s += run.client_cpu_s
        whole.latencies_s.extend(run.latencies_s)
        whole.failures.update(run.failures)
        whole.first_failure = whole.first_failure or run.first_failure
    return whole


def trouble(measured: Measured) -> str:
    """Describes the failures; empty if there are none."""
    if not measured.failures:
        return ""
    kinds = ", ".join(f"{count} times {kind}" for kind, count in measured.failures.items())
    first = " ".join(measured.first_failure.split()).replace("|", "/")
    return f"{kinds}; the first: {first}"


def fsync_ms(folder: Path) -> float:
    """Measures the median time of writing 1 KiB to a file with fsync, in ms."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(_FSYNC_TRIES):
            began = time.perf_counter()
            file.write(bytes(KIB))
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
