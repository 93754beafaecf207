"""Runs a compactor: `tarn-compactor [--config FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tarn.client.auth import AuthClient
from tarn.client.service_proofs import service_proofs
from tarn.config import Config
from tarn.core.access.service import Service
from tarn.rpc.process.serve import Application, Runtime
from tarn.rpc.process.standalone import connect, connect_each, run
from tarn_compactor.application import CompactorApplication
from tarn_compactor.config import CompactorSettings

__all__ = ["main"]


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    auth = connect(config, runtime, "auth")
    stack.push_async_callback(auth.close)
    graveler = connect(config, runtime, "graveler")
    stack.push_async_callback(graveler.close)
    replicas = connect_each(config, runtime)
    stack.push_async_callback(replicas.close)
    compactor = CompactorApplication(
        CompactorSettings.of(config),
        replicas=replicas.transports,
        graveler=graveler,
        auth=AuthClient(auth, service_proofs(Service.COMPACTOR, config, runtime)),
        clock=runtime.clock,
        ids=runtime.ids,
        rng=runtime.rng,
        meters=runtime.meters,
        failed=runtime.stop,
    )
    return [compactor]


def main() -> int:
    """Runs a compactor until it is stopped by a signal; returns the exit code."""
    about = "Tarn's service that compacts uncommitted changes in the background."
    return run("compactor", about, _assemble, takes_rpcs_as="compactor")


if __name__ == "__main__":
    sys.exit(main())
