"""Cost of the journal of reads for a GET of a small object, in a gateway with all services in its process.

    python -m bench.reads [--seconds 20]

Two gateways serve the same object from stores of their own; graveler of one keeps the journal. The same client asks
them in turns, in the same process, so the CPU time is that of client and server. The ratio of each pair of batches is
one sample; the figure is their median. In the second table the journal forgets before each GET what it noted today, so
each GET is the first of an object. Then prints the time of a note alone.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from bench.telemetry import BATCH, Gateway, gateway

from tarn.core.entry import Entry, pack
from tarn.core.ids import RepositoryId
from tarn.kv.records import Repository
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn_graveler.reads.journal import WAITING_MAX, ReadJournal

ON = {"TARN_LIFECYCLE_READS_ENABLED": "true"}
NOTES = 100_000


def journal_of(served: Gateway) -> ReadJournal:
    found: ReadJournal | None = served.graveler._graveler.journal  # noqa: SLF001 - what is measured
    assert found is not None
    return found


async def batch(served: Gateway, journal: ReadJournal | None) -> float:
    """Returns the CPU seconds of a batch of GETs; with a journal, it forgets before each what it noted."""
    began = time.process_time()
    for _ in range(BATCH):
        if journal is not None:
            journal._day = 0  # noqa: SLF001
        await served.ask(served.get)
    return time.process_time() - began


async def compare(plain: Gateway, kept: Gateway, seconds: float, *, first: bool) -> None:
    journal = journal_of(kept) if first else None
    ratios: list[float] = []
    times: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pair = [plain, kept] if len(ratios) % 2 else [kept, plain]
        spent = {id(each): await batch(each, journal) for each in pair}
        times.append(spent[id(plain)])
        ratios.append(spent[id(kept)] / spent[id(plain)])
    low, middle, high = ((each - 1) * 100 for each in statistics.quantiles(ratios, n=4))
    per_get = statistics.median(times) / BATCH * 1e6
    which = "each the first of its object" if first else "of one object"
    print(
        f"{len(ratios)} pairs of {BATCH} GETs, {which}: {per_get:.0f} µs of CPU each without the journal, "
        f"{middle:+.1f} % with it (quartiles {low:+.1f} to {high:+.1f} %)"
    )


async def notes(journal: ReadJournal, repository: Repository) -> None:
    assert NOTES < WAITING_MAX
    entries = [pack(Entry(1, 0, number.to_bytes(16), bytes(16))) for number in range(1, NOTES + 1)]
    for what in ("the first of an object", "a later one"):
        began = time.process_time()
        for packed in entries:
            journal.note(repository, packed)
        spent = time.process_time() - began
        print(f"{spent / NOTES * 1e9:.0f} ns of CPU for a note, {what}")
    began = time.process_time()
    await journal.flush()
    spent = time.process_time() - began
    print(f"{spent / NOTES * 1e9:.0f} ns of CPU to write each of {NOTES}")


async def measure(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            plain = await gateway(Path(folder, "plain"), stack, measured=False)
            kept = await gateway(Path(folder, "kept"), stack, measured=False, settings=ON)
            for each in (plain, kept):
                await batch(each, None)
            await compare(plain, kept, seconds, first=False)
            await compare(plain, kept, seconds, first=True)
            graveler = kept.graveler._graveler  # noqa: SLF001
            repository = await graveler.repositories.read(RepositoryId("lake"), settle=False)
            await notes(journal_of(kept), repository)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(measure(seconds))


if __name__ == "__main__":
    main()
