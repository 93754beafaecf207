"""graveler as a process of its own: `tarn-graveler [--config FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tarn.block.opening import open_blocks
from tarn.client.auth import AuthClient
from tarn.client.service_proofs import service_proofs
from tarn.config import Config
from tarn.core.access.service import Service
from tarn.gate.access import Access
from tarn.kv.opening import open_kv
from tarn.kv.replicas import replica_of
from tarn.rpc.process.serve import Application, Runtime
from tarn.rpc.process.standalone import connect, run
from tarn_graveler.application import GravelerApplication
from tarn_graveler.config import open_committed_of, settings_of
from tarn_graveler.heavy.builder import open_builder

__all__ = ["main"]


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    kv = await open_kv(config, runtime.clock, runtime.ids, runtime.meters, runtime.secrets)
    stack.push_async_callback(kv.close)
    replica = replica_of("graveler", config, kv, runtime.clock, runtime.ids, runtime.stop)
    blocks = await open_blocks(config, runtime.clock, runtime.meters, runtime.secrets)
    stack.push_async_callback(blocks.close)
    committed = await stack.enter_async_context(open_committed_of(config, blocks))
    builder = await stack.enter_async_context(open_builder(config, runtime, kv, committed))
    auth = connect(config, runtime, "auth")
    stack.push_async_callback(auth.close)
    graveler = GravelerApplication(
        settings=settings_of(config),
        kv=kv,
        blocks=blocks,
        committed=committed,
        access=Access(
            AuthClient(auth, service_proofs(Service.GRAVELER, config, runtime)), runtime.clock
        ),
        clock=runtime.clock,
        ids=runtime.ids,
        builder=builder,
        stopped=runtime.stopped,
        features=replica.features,
        meters=runtime.meters,
    )
    return [replica, graveler]


def main() -> int:
    """Runs graveler until it is stopped by a signal; returns the exit code."""
    about = "Tarn's service of refs, commits and staged entries."
    return run("graveler", about, _assemble, takes_rpcs_as="graveler")


if __name__ == "__main__":
    sys.exit(main())
