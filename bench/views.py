"""Cost of a bucket view for a GET of a small object, in a gateway with all services in its process.

    python -m bench.views [--seconds 30]

One gateway serves one object, by the key of its repository (`lake/main/a`) and by a view (`sales/a`), in turns of 10
GETs. The client is in the same process, so the CPU time is that of client and server (`interleaved.py`).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from bench.interleaved import BASELINE, CONTROL, difference, rounds
from bench.telemetry import BATCH, gateway

from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to

VIEW = "through a view"


async def compare(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            served = await gateway(Path(folder), stack, measured=False)
            await served.client.create_bucket_view(served.admin, "sales", "lake")
            by_view = served.signer.request("GET", "/sales/a").head
            spent = await rounds(served.batch, {VIEW: partial(served.batch, by_view)}, seconds)
    per_get = statistics.median(spent[BASELINE]) / BATCH * 1e6
    print(
        f"{len(spent[BASELINE])} rounds of {BATCH} GETs, by the key of the repository ({per_get:.0f} µs of CPU) and"
    )
    for name in (CONTROL, VIEW):
        print(f"  {name}: {difference(spent, name)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds: float = parser.parse_args().seconds
    with logging_to(LogConfig(level="warning")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
