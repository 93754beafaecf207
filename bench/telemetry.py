"""Cost of metrics and traces for a GET of a small object, in a gateway with all services in its process.

    python -m bench.telemetry [--seconds 30]

One gateway serves one object. In turns of 10 GETs its telemetry is off (stores, requests and traces are neither
measured nor counted), or on with no request traced, or with each one traced, into an exporter that discards the spans.
Few requests are traced, so the cost of 1 % is a hundredth of that. The client is in the same process, so the CPU time
is that of client and server (`interleaved.py`).
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
from typing import Any

from bench.interleaved import BASELINE, CONTROL, Batch, difference, median_difference, rounds
from bench.load.signing import Signer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from tarn.block.opening import open_blocks
from tarn.block.port import BlockStore
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.config import Config, load
from tarn.gate.access import Access
from tarn.kv.opening import open_kv
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.process.defects import new_loop
from tarn.rpc.process.log import LogConfig, logging_to
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.log import AuditLog
from tarn.telemetry.meters import Meters
from tarn.telemetry.spans import SpanSink
from tarn.telemetry.tracing import Tracing
from tarn_api.application import ApiApplication
from tarn_api.config import settings_of as api_settings
from tarn_api.rpcs import Rpcs
from tarn_auth.application import AuthApplication
from tarn_auth.config import AuthConfig
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import settings_of as gateway_settings
from tarn_gateway.traces import Traces
from tarn_graveler.application import GravelerApplication
from tarn_graveler.config import open_committed_of
from tarn_graveler.config import settings_of as graveler_settings

BATCH = 10
"""Short, so that most batches pass without an interruption by another process."""
SAMPLED = 0.01
METRICS, TRACED = "metrics, none traced", "metrics, all traced"
BODY = bytes(1024)


class Discard(SpanExporter):
    def export(self, _spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@dataclass
class Gateway:
    """A client's connection to a gateway, and the requests that it repeats.

    Attributes:
        rest_port: of the REST endpoint in the same process.
    """

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    get: bytes
    put: bytes
    application: GatewayApplication
    graveler: GravelerApplication
    kv: object
    blocks: object
    signer: Signer
    client: GravelerClient
    admin: Call
    rest_port: int

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
    traced: float = SAMPLED,
    audit: AuditLog | None = None,
) -> Gateway:
    """Starts all services in this process; `settings` are further variables of the configuration, `traced` is the
    fraction of S3 requests that are traced."""
    clock = SystemClock()
    ids = SystemIds(clock)
    config = _config(folder, settings or {})
    meters, tracing = (Meters(), tracer(traced)) if measured else (None, None)
    kv = await open_kv(config, clock, ids, meters)
    stack.push_async_callback(kv.close)
    blocks = await open_blocks(config, clock, meters)
    stack.push_async_callback(blocks.close)
    committed = await stack.enter_async_context(open_committed_of(config, blocks))
    secrets = AuthConfig.of(config)
    auth = AuthApplication(kv, secrets.installation_id, secrets.installation_secret, clock, ids)
    await stack.enter_async_context(auth)
    auth_calls = InProcessTransport(auth.endpoints_in_process, clock)
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
    stack.push_async_callback((calls := InProcessTransport(graveler.endpoints, clock)).close)
    application = GatewayApplication(
        gateway_settings(config),
        GravelerClient(calls),
        access,
        blocks,
        clock=clock,
        ids=ids,
        meters=meters,
        tracing=tracing,
        audit=audit,
    )
    await stack.enter_async_context(application)
    rest = rest_endpoint(config, calls, auth_calls, blocks, application, clock, ids, meters)
    await stack.enter_async_context(rest)
    anonymous = Call("bench", "", clock.monotonic() + 600)
    made = await client.set_up(anonymous, secrets.installation_secret, "root")
    key = made.credential.access_key_id, made.secret_access_key
    signer = Signer(f"127.0.0.1:{application.port}", *key, clock)
    reader, writer = await asyncio.open_connection("127.0.0.1", application.port)
    stack.callback(writer.close)
    session = await client.log_in(anonymous, *key, now_us=clock.now_us(), nonce=ids.nonce()[:16])
    admin = Call("bench", session.grant.caller_token, anonymous.deadline)
    parts = application, graveler, kv, blocks, signer, GravelerClient(calls), admin, rest.port
    get = signer.request("GET", "/lake/main/a").head
    put = signer.request("PUT", "/lake/main/a", body=BODY).head
    found = Gateway(reader, writer, get, put, *parts)
    await found.client.create_repository(admin, "lake")
    await found.ask(put)
    return found


def _config(folder: Path, settings: Mapping[str, str]) -> Config:
    variables = {
        "TARN_DATA_DIR": str(folder),
        "TARN_DURABILITY": "os",
        "TARN_GATEWAYS_S3_LISTEN_ADDRESS": "127.0.0.1:0",
        "TARN_API_LISTEN_ADDRESS": "127.0.0.1:0",
        "TARN_INSTALLATION_SECRET": "5" * 64,
        "HOME": str(folder),
        **settings,
    }
    return load(None, variables)


def rest_endpoint(
    config: Config,
    graveler: InProcessTransport,
    auth: InProcessTransport,
    blocks: BlockStore,
    gateway: GatewayApplication,
    clock: SystemClock,
    ids: SystemIds,
    meters: Meters | None,
) -> ApiApplication:
    """Returns the REST endpoint beside a gateway, over the same services."""
    client = AuthClient(auth)
    return ApiApplication(
        api_settings(config),
        GravelerClient(graveler),
        client,
        Rpcs(graveler, auth),
        Access(client, clock),
        blocks,
        clock=clock,
        ids=ids,
        meters=meters,
        rates=gateway.rates,
    )


def tracer(ratio: float = SAMPLED) -> Tracing:
    rng = random.Random(1)
    sink = SpanSink(BatchSpanProcessor(Discard()), Resource.get_empty(), rng)
    return Tracing(sink, ratio, rng)


class Switch:
    """Turns the telemetry of a gateway, which was opened with it, off and on, and runs batches."""

    def __init__(self, of: Gateway) -> None:
        observer: Any = of.application._server._context.observer  # type: ignore[union-attr]  # noqa: SLF001
        traces = observer.__self__
        assert isinstance(traces, Traces)
        self._gateway = of
        self._traces: Any = traces
        self._stores: list[Any] = [of.kv._kv, of.blocks._blocks]  # type: ignore[attr-defined]  # noqa: SLF001
        self._reads = [store._reads for store in self._stores]  # noqa: SLF001
        assert all(self._reads), "the stores measure their reads by themselves"
        self._tracing: Any = traces._tracing  # noqa: SLF001
        self._aside: dict[bool, list[Any]] = {True: [], False: []}
        self._is_counted = True

    def set(self, *, counts: bool, ratio: float) -> None:
        """Measures, counts and traces from now on, or does not."""
        traces = self._traces
        for store, reads in zip(self._stores, self._reads, strict=True):
            store._reads = reads if counts else None  # noqa: SLF001
        traces._tracing = self._tracing if counts else None  # noqa: SLF001
        self._tracing.ratio = ratio
        # Requests that were put aside are counted among their like.
        self._aside[self._is_counted] = traces._ended  # noqa: SLF001
        traces._ended = self._aside[counts]  # noqa: SLF001
        self._is_counted = counts
        traces.__dict__.pop("_count_ended", None)
        if not counts:
            traces._count_ended = traces._ended.clear  # noqa: SLF001

    def batch(self, *, counts: bool, ratio: float = 0.0) -> Batch:
        """Returns a batch with this telemetry."""

        async def run() -> float:
            self.set(counts=counts, ratio=ratio)
            return await self._gateway.batch()

        return run


async def compare(seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with AsyncExitStack() as stack:
            switch = Switch(await gateway(Path(folder), stack, measured=True))
            variants = {
                METRICS: switch.batch(counts=True),
                TRACED: switch.batch(counts=True, ratio=1.0),
            }
            spent = await rounds(switch.batch(counts=False), variants, seconds)
    per_get = statistics.median(spent[BASELINE]) / BATCH * 1e6
    print(
        f"{len(spent[BASELINE])} rounds of {BATCH} GETs of 1 KiB each; {per_get:.0f} µs of CPU for a GET "
        "without telemetry"
    )
    for name in (CONTROL, *variants):
        print(f"{name}: {difference(spent, name)}")
    more = {name: median_difference(spent, name) for name in variants}
    total = more[METRICS] + SAMPLED * (more[TRACED] - more[METRICS])
    print(f"metrics, and {SAMPLED:.0%} traced: {total:+.2f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=30)
    seconds = parser.parse_args().seconds
    with logging_to(LogConfig(output="/dev/null")), asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(compare(seconds))


if __name__ == "__main__":
    main()
