"""What a case is given: sizes, a folder, a place for its rows; and the interleaved comparison."""

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
        folder: its own, empty, removed behind it.
        scale: 1.0 for real; sizes, times and counts shrink with it.
        quick: only the main figures.
        emit: takes a row as soon as it is measured, so that a time limit loses only what is missing.
    """

    case: str
    folder: Path
    scale: float
    quick: bool
    emit: Callable[[Row], None]

    @property
    def rounds(self) -> int:
        """Interleaved rounds of each figure."""
        return 2 if self.quick or self.scale < 1 else 5

    @property
    def seconds(self) -> float:
        """Of one round."""
        return max(0.2, (1.0 if self.quick else 2.0) * min(1.0, self.scale * 4))

    def count(self, full: int, least: int = 1) -> int:
        """A number of things, scaled."""
        return max(least, int(full * self.scale))

    def within(self, name: str) -> Path:
        """A new folder of the case."""
        folder = self.folder / name
        folder.mkdir(parents=True)
        return folder


@dataclass(frozen=True, slots=True)
class Case:
    """Something to measure.

    Attributes:
        name: for `CASES=`.
        run: measures and emits.
        limit_s: time for it in a full run.
        quick: part of `make bench-quick`.
        section: heading of the table that it stands in; empty: the first one.
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
        name: in the table.
        address: of its socket.
        processes: that serve.
        requests: of a round, by its number, if it is a Tarn that wants its own; None: the node's.
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
        """Adds what the work costs."""
        tarn_s, store_s = self.node.processes.cpu_s(), self.node.store.cpu_s()
        measured = work()
        self.tarn_s += self.node.processes.cpu_s() - tarn_s
        self.store_s += self.node.store.cpu_s() - store_s
        return measured

    def note(self, whole: Measured) -> str:
        """Who had the cores, if the metadata store is a server of its own."""
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
    """Measures the yardstick, Tarn, the yardstick, Tarn … with the same requests, and emits the row.

    The ratio of a round is to the mean of the yardstick's rounds before and after it: what the machine
    does beside drifts more slowly than that.

    Args:
        trial: for rounds and times.
        node: to measure.
        yardstick: to measure beside it.
        row: names and goal; the rest is filled in.
        requests: of a round, by its number; the yardstick gets them too. -1 is for warming up.
        connections: in a closed loop.
        repeat: whether requests may be sent again in a round.
        seconds: of a round, if not the trial's.
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
        # The yardstick does not look at the method: its answer to HEAD has a body like any other.
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
    """The row with what the runs say; `loops` has one more, around them."""
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
    """Several runs as one."""
    whole = Measured(latencies_s=array("d"))
    for run in runs:
        whole.seconds += run.seconds
        whole.client_cpu_s += run.client_cpu_s
        whole.latencies_s.extend(run.latencies_s)
        whole.failures.update(run.failures)
        whole.first_failure = whole.first_failure or run.first_failure
    return whole


def trouble(measured: Measured) -> str:
    """What went wrong, in words; empty if nothing did."""
    if not measured.failures:
        return ""
    kinds = ", ".join(f"{count} times {kind}" for kind, count in measured.failures.items())
    first = " ".join(measured.first_failure.split()).replace("|", "/")
    return f"{kinds}; the first: {first}"


def fsync_ms(folder: Path) -> float:
    """The median time of writing 1 KiB to a file and its fsync, here and now."""
    times = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(_FSYNC_TRIES):
            began = time.perf_counter()
            file.write(bytes(KIB))
            os.fsync(file.fileno())
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
