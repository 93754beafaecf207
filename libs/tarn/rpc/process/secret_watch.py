"""Watches the files of a process's secrets, and takes new contents into use (`tarn.config.secret_changes`).

Files count only when two looks in a row found the same, because several of them may be replaced one after the other, or
one may be half written. If contents cannot be used, one log line says so, and a metric for as long as it lasts; the
secrets in use stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

import structlog

from tarn.aio.task_set import TaskSet
from tarn.config import Config, ConfigError, SecretChanges, SecretFiles, changed_secrets
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.meters import Meters

__all__ = ["SecretWatch"]

_LOOK_SECONDS = 1.0
"""Pause between two looks."""
_RETRY_SECONDS = 30.0
"""Pause before secrets that were refused are offered again, although no file has changed."""

_log = structlog.get_logger()


class SecretWatch:
    """An application that tells the others of new secrets; it starts after them.

    Args:
        config: the configuration in use.
        files: the files; without any it does nothing.
        changes: the users of secrets.
        clock: measures the pauses.
        meters: count the contents that were used and refused.
    """

    name = "secret watch"
    endpoints: Sequence[Endpoint] = ()

    def __init__(
        self,
        config: Config,
        files: SecretFiles,
        changes: SecretChanges,
        clock: Clock,
        meters: Meters,
    ) -> None:
        self._used = config
        self._files = files
        self._changes = changes
        self._clock = clock
        self._reloads = {
            outcome: meters.counter("secrets.reloads", outcome=outcome)
            for outcome in ("used", "refused")
        }
        self._tasks = TaskSet()
        self._seen: tuple[bytes | None, ...] | None = None
        self._settled: tuple[bytes | None, ...] | None = None
        self._refusal = ""
        self._retry_at = 0.0
        meters.sample("secrets.refused", lambda: float(bool(self._refusal)))

    async def __aenter__(self) -> Self:
        if self._files.paths:
            self._tasks.spawn(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.close()

    async def drain(self, timeout_s: float) -> None:
        """Does nothing: running calls may outlast a change of secrets."""

    async def look(self) -> None:
        """Reads the files; takes contents into use that two looks in a row have found."""
        found = await asyncio.to_thread(self._files.contents)
        if found != self._seen:
            self._seen = found
            return
        is_retry = bool(self._refusal) and self._clock.monotonic() >= self._retry_at
        if found == self._settled and not is_retry:
            return
        self._settled = found
        try:
            config = await asyncio.to_thread(self._files.load)
        except ConfigError as error:
            self._refuse([error.message])
            return
        await self._offer(config)

    async def _watch(self) -> None:
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_SECONDS)

    async def _offer(self, config: Config) -> None:
        """Tells everyone, also if one of them refuses: the secrets of the others may be good."""
        refusals = []
        for use in self._changes.users:
            try:
                await use(config)
            except (ConfigError, TarnError) as error:
                refusals.append(error.message)
        if refusals:
            self._refuse(refusals)
            return
        changed = changed_secrets(self._used, config)
        self._used = config
        if changed or self._refusal:
            self._refusal = ""
            self._reloads["used"].add()
            _log.info("secrets reloaded", changed=changed)

    def _refuse(self, problems: Sequence[str]) -> None:
        self._retry_at = self._clock.monotonic() + _RETRY_SECONDS
        text = "; ".join(problems)
        if text != self._refusal:
            self._refusal = text
            self._reloads["refused"].add()
            _log.warning("the new secrets are not used", error=text)
