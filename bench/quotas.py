"""Cost of quotas for a GET and a PUT of a small object where no quota is set, with all services in one process.

    python bench/quotas.py [--seconds 20]

Two gateways as in `bench/telemetry.py`, with stores of their own: one is as it is, in the other one every check of a
limit does nothing. The same client asks them alternately; the ratio of the CPU times of each pair of batches is one
sample, and the figure is their median.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from telemetry import BATCH, Gateway, gateway

from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to


def without_quotas(of: Gateway) -> None:
    """Makes every check of a limit of one gateway and its graveler do nothing."""
    rates = of.application._rates  # noqa: SLF001 - what is measured
    rates.admit = lambda *_: None  # type: ignore[method-assign]
    rates.charge = lambda *_: None  # type: ignore[method-assign]

    async def admitted(*_: object) -> None:
        """Admits everything."""

    admission = of.graveler._graveler.admission  # noqa: SLF001
    admission.object = admitted  # type: ignore[method-assign]


def report(name: str, pairs: list[tuple[float, float]]) -> None:
    ratios = [(with_them / without - 1) * 100 for without, with_them in pairs]
    low, middle, high = (f"{each:+.1f}" for each in statistics.quantiles(ratios, n=4))
    per_request = statistics.median(without for without, _ in pairs) / BATCH * 1e6
    print(
        f"{len(pairs)} pairs of {BATCH} {name}s of 1 KiB, {per_request:.0f} µs of CPU each: "
        f"with quotas {middle} % (quartiles {low} to {high} %)"
    )


async def compare(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            plain = await gateway(Path(folder, "plain"), stack, measured=False)
            limited = await gateway(Path(folder, "limited"), stack, measured=False)
            without_quotas(plain)
            for name in ("GET", "PUT"):
                pairs: list[tuple[float, float]] = []
                end = time.monotonic() + seconds / 2
                while time.monotonic() < end:
                    order = [plain, limited] if len(pairs) % 2 else [limited, plain]
                    spent = {
                        id(each): await each.batch(each.get if name == "GET" else each.put)
                        for each in order
                    }
                    pairs.append((spent[id(plain)], spent[id(limited)]))
                report(name, pairs[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
