"""Cost of metrics and traces for a GET of a small object, in a gateway with all services in its process.

    python bench/telemetry.py [--seconds 20]

Two gateways serve the same object from stores of their own: one counts everything and traces 1 % of the requests
into an exporter that discards them; the other one neither measures its stores nor counts requests. The same client
asks them alternately, in the same process, so the CPU time is that of client and server. The ratio of each pair of
batches is one sample; the figure is their median.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from load.signing import Signer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tarn.block.opening import open_blocks
from tarn.client.access import Access
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.config import load
from tarn.kv.opening import open_kv
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call
from tarn.telemetry.meters import Meters
from tarn.telemetry.spans import SpanSink
from tarn.telemetry.tracing import Tracing
from tarn_auth.application import AuthApplication
from tarn_auth.config import AuthConfig
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import settings_of as gateway_settings
from tarn_gateway.trace import Traces
from tarn_graveler.application import GravelerApplication
from tarn_graveler.config import open_committed_of
from tarn_graveler.config import settings_of as graveler_settings

BATCH = 25
BODY = bytes(1024)


class Discard(SpanExporter):
    def export(self, _spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


OFF = Meters()
"""Marks the gateway that does not count."""


def without_counting() -> None:
    """Makes `Traces` skip its counts for the gateway that got `OFF`."""
    count = Traces._count_ended  # noqa: SLF001 - what is measured

    def counted(self: Traces) -> None:
        if self._meters is OFF:
            self._ended.clear()
        else:
            count(self)

    Traces._count_ended = counted  # type: ignore[method-assign]  # noqa: SLF001


@dataclass
class Gateway:
    """A client's connection to a gateway, and the requests that it repeats."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    get: bytes
    put: bytes
    application: GatewayApplication
    graveler: GravelerApplication

    async def ask(self, request: bytes) -> None:
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        await self.reader.readexactly(length)

    async def batch(self, request: bytes = b"") -> float:
        """Returns the CPU seconds of one batch; of GETs, if no other request is given."""
        began = time.process_time()
        for _ in range(BATCH):
            await self.ask(request or self.get)
        return time.process_time() - began


async def gateway(
    folder: Path,
    stack: AsyncExitStack,
    *,
    measured: bool,
    settings: Mapping[str, str] | None = None,
) -> Gateway:
    """Starts all services in this process; `settings` are further variables of the configuration."""
    clock = SystemClock()
    ids = SystemIds(clock)
    variables = {
        "TARN_DATA_DIR": str(folder),
        "TARN_DURABILITY": "os",
        "TARN_GATEWAYS_S3_LISTEN_ADDRESS": "127.0.0.1:0",
        "TARN_INSTALLATION_SECRET": "5" * 64,
        "HOME": str(folder),
        **(settings or {}),
    }
    config = load(None, variables)
    meters, tracing = (Meters(), tracer()) if measured else (None, None)
    kv = await open_kv(config, clock, ids, meters)
    stack.push_async_callback(kv.close)
    blocks = await open_blocks(config, clock, meters)
    stack.push_async_callback(blocks.close)
    committed = await stack.enter_async_context(open_committed_of(config, blocks))
    secrets = AuthConfig.of(config)
    auth = AuthApplication(kv, secrets.installation_id, secrets.installation_secret, clock, ids)
    await stack.enter_async_context(auth)
    auth_calls = InProcessTransport(auth.endpoints, clock)
    stack.push_async_callback(auth_calls.close)
    client = AuthClient(auth_calls)
    access = Access(client, clock)
    graveler = GravelerApplication(
        settings=graveler_settings(config),
        kv=kv,
        blocks=blocks,
        committed=committed,
        access=access,
        clock=clock,
        ids=ids,
        meters=meters,
    )
    await stack.enter_async_context(graveler)
    calls = InProcessTransport(graveler.endpoints, clock)
    stack.push_async_callback(calls.close)
    application = GatewayApplication(
        gateway_settings(config),
        GravelerClient(calls),
        access,
        blocks,
        clock=clock,
        ids=ids,
        meters=meters or OFF,
        tracing=tracing,
    )
    await stack.enter_async_context(application)
    anonymous = Call("bench", "", clock.monotonic() + 600)
    made = await client.set_up(anonymous, secrets.installation_secret, "root")
    key = made.credential.access_key_id, made.secret_access_key
    signer = Signer(f"127.0.0.1:{application.port}", *key, clock)
    reader, writer = await asyncio.open_connection("127.0.0.1", application.port)
    stack.callback(writer.close)
    get = signer.request("GET", "/lake/main/a").head
    put = signer.request("PUT", "/lake/main/a", body=BODY).head
    found = Gateway(reader, writer, get, put, application, graveler)
    session = await client.log_in(anonymous, *key, now_us=clock.now_us(), nonce=ids.nonce()[:16])
    admin = Call("bench", session.grant.caller_token, anonymous.deadline)
    await GravelerClient(calls).create_repository(admin, "lake")
    await found.ask(put)
    return found


def tracer() -> Tracing:
    rng = random.Random(1)
    sink = SpanSink(BatchSpanProcessor(Discard()), Resource.get_empty(), rng)
    return Tracing(sink, 0.01, rng)


async def compare(seconds: float) -> None:
    without_counting()
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            plain = await gateway(Path(folder, "plain"), stack, measured=False)
            measured = await gateway(Path(folder, "measured"), stack, measured=True)
            for each in (plain, measured):
                await each.batch()
            ratios: list[float] = []
            times: list[float] = []
            more: list[float] = []
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                pair = [plain, measured] if len(ratios) % 2 else [measured, plain]
                spent = {id(each): await each.batch() for each in pair}
                times.append(spent[id(plain)])
                more.append(spent[id(measured)])
                ratios.append(spent[id(measured)] / spent[id(plain)])
    quartiles = [(each - 1) * 100 for each in statistics.quantiles(ratios, n=4)]
    per_get = statistics.median(times) / BATCH * 1e6
    print(
        f"{len(ratios)} pairs of {BATCH} GETs of 1 KiB; {per_get:.0f} µs of CPU each without telemetry"
    )
    low, middle, high = (f"{each:+.1f}" for each in quartiles)
    calm = (statistics.quantiles(more, n=10)[0] / statistics.quantiles(times, n=10)[0] - 1) * 100
    mean = (sum(more) / sum(times) - 1) * 100
    print(
        f"with metrics, and 1 % traced: {middle} % (quartiles {low} to {high} %); "
        f"of all batches together {mean:+.1f} %, "
        f"of the fastest tenth of each {calm:+.1f} %"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=20)
    seconds = parser.parse_args().seconds
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
