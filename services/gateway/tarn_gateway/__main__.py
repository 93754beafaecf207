"""Runs the gateway as a separate process: `tarn-gateway [--config FILE]`.

It calls auth and graveler over gRPC, and moves the bodies of objects directly to and from the block store.
Several gateways may share one store; they do not depend on each other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tarn.block.opening import open_blocks
from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.client.service_proofs import service_proofs
from tarn.config import Config
from tarn.core.access.service import Service
from tarn.gate.access import Access
from tarn.rpc.process.endpoint_tls import endpoint_tls
from tarn.rpc.process.serve import Application, Runtime
from tarn.rpc.process.standalone import connect, run
from tarn_gateway.application import GatewayApplication
from tarn_gateway.config import settings_of

__all__ = ["main"]


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    blocks = await open_blocks(config, runtime.clock, runtime.meters, runtime.secrets)
    stack.push_async_callback(blocks.close)
    auth = connect(config, runtime, "auth")
    stack.push_async_callback(auth.close)
    graveler = connect(config, runtime, "graveler")
    stack.push_async_callback(graveler.close)
    gateway = GatewayApplication(
        settings_of(config),
        GravelerClient(graveler),
        Access(AuthClient(auth, service_proofs(Service.GATEWAY, config, runtime)), runtime.clock),
        blocks,
        clock=runtime.clock,
        ids=runtime.ids,
        tls=endpoint_tls("gateways.s3", config.gateways.s3.tls, runtime.secrets),
        listens=runtime.listens,
        meters=runtime.meters,
        tracing=runtime.tracing,
        audit=runtime.audit,
    )
    return [gateway]


def main() -> int:
    """Runs a gateway until it is asked to stop; returns the exit code."""
    return run("gateway", "The S3 endpoint of Tarn.", _assemble)


if __name__ == "__main__":
    sys.exit(main())
