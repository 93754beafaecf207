"""A single-node worker: auth, graveler, the gateway and the REST endpoint in one process, over in-process calls.

Every worker of a node is a replica of all these services on the shared embedded store and the
shared local blocks; the branch protocol keeps several replicas correct. They also share
the S3 port, the REST port and the rpc port: the kernel distributes the connections.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Self

from tarn.block.opening import open_blocks
from tarn.block.port import BlockStore
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.config import Config
from tarn.core.access.service import Service
from tarn.gate.access import Access
from tarn.kv.opening import open_kv
from tarn.kv.replicas import replica_of
from tarn.rpc.client.inprocess import InProcessTransport
from tarn.rpc.client.transport import Transport
from tarn.rpc.process.endpoint_tls import endpoint_tls
from tarn.rpc.process.serve import Application, Runtime
from tarn.rpc.process.standalone import run
from tarn.rpc.wire.methods import Endpoint
from tarn_api.application import ApiApplication
from tarn_api.config import settings_of as api_settings
from tarn_api.rpcs import Rpcs
from tarn_auth.application import AuthApplication
from tarn_auth.config import AuthConfig
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import settings_of as gateway_settings
from tarn_graveler.application import GravelerApplication
from tarn_graveler.config import open_committed_of
from tarn_graveler.config import settings_of as graveler_settings
from tarn_graveler.heavy.builder import open_builder

__all__ = ["main"]


class _Calls:
    """In-process calls as an application: it ends after the services that make the calls."""

    name = "calls"
    endpoints: Sequence[Endpoint] = ()

    def __init__(self, transport: InProcessTransport) -> None:
        self._transport = transport

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._transport.close()

    async def drain(self, timeout_s: float) -> None:
        """Waits for changes that outlived their callers."""
        await self._transport.drain(timeout_s)


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    """All services over one pair of stores, in order: each uses only earlier ones."""
    clock, ids = runtime.clock, runtime.ids
    kv = await open_kv(config, clock, ids, runtime.meters, runtime.secrets)
    stack.push_async_callback(kv.close)
    replica = replica_of("node", config, kv, runtime.clock, runtime.ids, runtime.stop)
    blocks = await open_blocks(config, clock, runtime.meters, runtime.secrets)
    stack.push_async_callback(blocks.close)
    committed = await stack.enter_async_context(open_committed_of(config, blocks))
    builder = await stack.enter_async_context(open_builder(config, runtime, kv, committed))
    secrets = AuthConfig.of(config)
    auth = AuthApplication(
        kv,
        secrets.installation_id,
        secrets.installation_secret,
        clock,
        ids,
        previous_secrets=secrets.previous_secrets,
        certificates=secrets.certificates,
        # The other services of a worker ask in process; only the compactor is a process of its own.
        remote_services=[Service.COMPACTOR],
        features=replica.features,
        keeps_events=secrets.keeps_events,
    )
    runtime.secrets.subscribe(lambda changed: auth.use_secrets(AuthConfig.of(changed).secrets))
    auth_calls = InProcessTransport(auth.endpoints_in_process, clock)
    access = Access(AuthClient(auth_calls), clock)
    graveler = GravelerApplication(
        settings=graveler_settings(config),
        kv=kv,
        blocks=blocks,
        committed=committed,
        access=access,
        clock=clock,
        ids=ids,
        builder=builder,
        stopped=runtime.stopped,
        features=replica.features,
        meters=runtime.meters,
    )
    graveler_calls = InProcessTransport(graveler.endpoints, clock)
    fronts = _fronts(config, runtime, graveler_calls, auth_calls, access, blocks)
    return [replica, auth, _Calls(auth_calls), graveler, _Calls(graveler_calls), *fronts]


def _fronts(
    config: Config,
    runtime: Runtime,
    graveler_calls: Transport,
    auth_calls: Transport,
    access: Access,
    blocks: BlockStore,
) -> Sequence[Application]:
    """The endpoints of S3 and REST, over one set of rates."""
    clock, ids = runtime.clock, runtime.ids
    gateway = GatewayApplication(
        gateway_settings(config, reuse_port=True),
        GravelerClient(graveler_calls),
        access,
        blocks,
        clock=clock,
        ids=ids,
        tls=endpoint_tls("gateways.s3", config.gateways.s3.tls, runtime.secrets),
        listens=runtime.listens,
        meters=runtime.meters,
        tracing=runtime.tracing,
        audit=runtime.audit,
    )
    api = ApiApplication(
        api_settings(config, reuse_port=True),
        GravelerClient(graveler_calls),
        AuthClient(auth_calls),
        Rpcs(graveler_calls, auth_calls),
        access,
        blocks,
        clock=clock,
        ids=ids,
        tls=endpoint_tls("api", config.api.tls, runtime.secrets),
        listens=runtime.listens,
        meters=runtime.meters,
        audit=runtime.audit,
        rates=gateway.rates,
        request_counts=gateway.request_counts,
    )
    return [gateway, api]


def main() -> int:
    """Runs a worker until SIGTERM; returns the exit code."""
    about = "A worker of `tarn up`."
    return run("node", about, _assemble, takes_rpcs_as="graveler", reuse_port=True)


if __name__ == "__main__":
    sys.exit(main())
