"""Runs auth as a separate process: `tarn-auth [--config FILE]`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tarn.config import Config
from tarn.kv.agreement import agree
from tarn.kv.opening import open_kv
from tarn.kv.replicas import replica_of
from tarn.rpc.process.serve import Application, Runtime
from tarn.rpc.process.standalone import run
from tarn_auth.application import AuthApplication
from tarn_auth.config import AuthConfig

__all__ = ["main"]


async def _assemble(
    config: Config, runtime: Runtime, stack: AsyncExitStack
) -> Sequence[Application]:
    settings = AuthConfig.of(config)
    kv = await open_kv(config, runtime.clock, runtime.ids, runtime.meters, runtime.secrets)
    stack.push_async_callback(kv.close)
    await agree(kv, settings.installation_id, settings.shared)
    replica = replica_of("auth", config, kv, runtime.clock, runtime.ids, runtime.stop)
    auth = AuthApplication(
        kv,
        settings.installation_id,
        settings.installation_secret,
        runtime.clock,
        runtime.ids,
        previous_secrets=settings.previous_secrets,
        certificates=settings.certificates,
        features=replica.features,
        keeps_events=settings.keeps_events,
    )
    runtime.secrets.subscribe(lambda changed: auth.use_secrets(AuthConfig.of(changed).secrets))
    return [replica, auth]


def main() -> int:
    """Runs auth until it is asked to stop; returns the exit code."""
    about = "Tarn's service of users, keys and authorisation."
    return run("auth", about, _assemble, takes_rpcs_as="auth")


if __name__ == "__main__":
    sys.exit(main())
