"""Runs the REST endpoint as a separate process: `tarn-api [--config FILE]`.

It calls auth and graveler over gRPC, and moves the bodies of objects to and from the block store. Several may run;
they do not depend on each other.
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
from tarn_api.application import ApiApplication
from tarn_api.config import settings_of
from tarn_api.rpcs import Rpcs

__all__ = ["main"]


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    blocks = await open_blocks(config, runtime.clock, runtime.meters, runtime.secrets)
    stack.push_async_callback(blocks.close)
    to_auth = connect(config, runtime, "auth")
    stack.push_async_callback(to_auth.close)
    graveler = connect(config, runtime, "graveler")
    stack.push_async_callback(graveler.close)
    auth = AuthClient(to_auth, service_proofs(Service.API, config, runtime))
    api = ApiApplication(
        settings_of(config),
        GravelerClient(graveler),
        auth,
        Rpcs(graveler, to_auth),
        Access(auth, runtime.clock),
        blocks,
        clock=runtime.clock,
        ids=runtime.ids,
        tls=endpoint_tls("api", config.api.tls, runtime.secrets),
        listens=runtime.listens,
        meters=runtime.meters,
        audit=runtime.audit,
    )
    return [api]


def main() -> int:
    """Runs the endpoint until it is asked to stop; returns the exit code."""
    return run("api", "The REST endpoint of Tarn.", _assemble)


if __name__ == "__main__":
    sys.exit(main())
