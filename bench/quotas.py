"""Cost of quotas for a GET and a PUT of a small object where no quota is set, with all services in one process.

    python -m bench.quotas [--seconds 30]

One gateway as in `bench/telemetry.py`. In turns of 10 requests it is as it is, or every check of a limit does nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from contextlib import AbstractContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

from bench.interleaved import BASELINE, CONTROL, Batch, difference, rounds
from bench.telemetry import BATCH, Gateway, gateway

from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn_graveler.usage.admission import NOT_LIMITED


class Switch:
    """Makes every check of a limit of a gateway and its graveler do nothing, or what it does."""

    def __init__(self, of: Gateway) -> None:
        self._gateway = of
        self._rates: Any = of.application.rates
        self._admission: Any = of.graveler._graveler.admission  # noqa: SLF001
        self._object = self._admission.object

    def batch(self, name: str, *, quotas: bool) -> Batch:
        """Returns a batch of GETs or PUTs with or without checks."""
        request = self._gateway.get if name == "GET" else self._gateway.put

        async def run() -> float:
            self._set(quotas=quotas)
            return await self._gateway.batch(request)

        return run

    def _set(self, *, quotas: bool) -> None:
        if quotas:
            vars(self._rates).pop("take", None)
            vars(self._rates).pop("charge", None)
            self._admission.object = self._object
            return

        async def admitted(*_: object) -> AbstractContextManager[None]:
            return NOT_LIMITED

        self._rates.take = lambda *_: None
        self._rates.charge = lambda *_: None
        self._admission.object = admitted


async def compare(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            switch = Switch(await gateway(Path(folder), stack, measured=False))
            for name in ("GET", "PUT"):
                off = switch.batch(name, quotas=False)
                on = {"with quotas": switch.batch(name, quotas=True)}
                spent = await rounds(off, on, seconds / 2)
                per_request = statistics.median(spent[BASELINE]) / BATCH * 1e6
                print(
                    f"{len(spent[BASELINE])} rounds of {BATCH} {name}s of 1 KiB each; "
                    f"{per_request:.0f} µs of CPU for a {name} without checks"
                )
                for variant in (CONTROL, *on):
                    print(f"{variant}: {difference(spent, variant)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
