"""Cost of the check of entries for a PUT of a small object, and alone, beside the unpacking that it replaced.

    python -m bench.entry_check [--seconds 30]

One gateway as in `bench/telemetry.py`, with all services in one process. In turns of 10 PUTs graveler checks entries
(`tarn.core.entry_check`), unpacks them as release 0.9.0 did, or only reads their size.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import timeit
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.interleaved import BASELINE, CONTROL, Batch, difference, rounds
from bench.telemetry import BATCH, Gateway, gateway

from tarn.core.entry import Checksum, Entry, pack, size_of, unpack
from tarn.core.entry_check import check_entry
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn_graveler.handlers import entries

_ADDRESS = bytes(range(16))
_PLAIN = Entry(1024, 1_790_000_000_000_000, _ADDRESS, _ADDRESS)
_ENTRIES = {
    "no header": _PLAIN,
    "content type and CRC32, as boto3 sends": Entry(
        *(1024, 1_790_000_000_000_000, _ADDRESS, _ADDRESS),
        content_type="binary/octet-stream",
        checksums=(Checksum("CRC32", "AAAAAA=="),),
    ),
    "eight user metadata and SHA-256": Entry(
        *(1024, 1_790_000_000_000_000, _ADDRESS, _ADDRESS),
        content_type="text/plain",
        cache_control="no-cache",
        metadata=tuple((f"key{number}", "v" * 30) for number in range(8)),
        checksums=(Checksum("SHA256", "A" * 43 + "="),),
    ),
}

Check = Callable[[bytes], tuple[int, str]]


def _unpacked(packed: bytes) -> tuple[int, str]:
    found = unpack(packed)
    return found.size, found.operation_id


def _size_only(packed: bytes) -> tuple[int, str]:
    return size_of(packed), ""


def alone(repeat: int = 7, number: int = 5000) -> None:
    for name, made in _ENTRIES.items():
        packed = pack(made)
        times = {
            what: min(timeit.repeat(partial(run, packed), number=number, repeat=repeat))
            for what, run in (("unpacked", unpack), ("checked", check_entry))
        }
        shown = ", ".join(f"{what} {each / number * 1e6:.1f} µs" for what, each in times.items())
        print(f"{name}: {shown}; ratio {times['checked'] / times['unpacked']:.2f}")


def _puts(of: Gateway, check: Check) -> Batch:
    async def run() -> float:
        vars(entries)["check_entry"] = check
        return await of.batch(of.put)

    return run


async def compare(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            of = await gateway(Path(folder), stack, measured=False)
            variants = {"checked": _puts(of, check_entry), "unpacked": _puts(of, _unpacked)}
            spent = await rounds(_puts(of, _size_only), variants, seconds)
            per_request = statistics.median(spent[BASELINE]) / BATCH * 1e6
            print(
                f"{len(spent[BASELINE])} rounds of {BATCH} PUTs of 1 KiB each; "
                f"{per_request:.0f} µs of CPU for a PUT whose entry is not looked at"
            )
            for variant in (CONTROL, *variants):
                print(f"{variant}: {difference(spent, variant)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    alone()
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
