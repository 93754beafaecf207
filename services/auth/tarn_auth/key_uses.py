"""When a key pair was last used, and how (services/auth/README.md, "Last uses").

A use is counted where auth learns that the caller *holds* the secret: a valid log-in, a valid signature of version 2, a
session of a browser, or the caller token that a gateway passes on after it has verified a signature. The request of a
gateway for a signing key proves nothing, because anybody can send an access key id.

Nothing waits for a note. It is a look at a record that is there anyway; what is due waits in memory, and one task
writes it, at most once an hour for each key pair. A crash loses at most what waits; the next use is noted again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Final

from tarn.aio.ttl_cache import TtlCache
from tarn.core.clock import Clock
from tarn.core.errors import TarnError
from tarn.core.ids import AccessKeyId
from tarn.core.levels import Feature, FeatureGate
from tarn.kv.auth_records import Credential, decode_credential, encode_credential
from tarn.kv.keys import AuthKeys
from tarn_auth.registers import Registers

__all__ = ["USE_GRAIN_US", "WAITING_MAX", "WRITE_SECONDS", "KeyUses"]

USE_GRAIN_US: Final = 3_600_000_000
"""A use within an hour of the one that is recorded is not written."""
WRITE_SECONDS: Final = 30.0
"""Between two looks of the writer at what waits."""
WAITING_MAX: Final = 1000
"""Uses that wait to be written. More are dropped: their key pairs are noted at their next use."""

_TRIED_SECONDS: Final = 60.0
"""After a write, or an attempt: until every cached record shows it, and as a pause if the store refuses."""
_TRIED_MAX: Final = 8192


class KeyUses:
    """Notes uses of key pairs, and writes them to their records.

    Args:
        features: release 0.9.0 would remove the fields from records that it changes.
    """

    def __init__(self, registers: Registers, clock: Clock, features: FeatureGate) -> None:
        self._registers = registers
        self._clock = clock
        self._features = features
        self._waiting: dict[AccessKeyId, tuple[int, str]] = {}
        self._tried: TtlCache[AccessKeyId, bool] = TtlCache(clock, _TRIED_MAX)

    def note(self, credential: Credential, kind: str) -> None:
        """Notes that a key pair is used now; never waits.

        Args:
            credential: as it was read, seconds ago at most.
            kind: of `tarn.core.access.key_use`; empty if a token of an earlier release does not tell.
        """
        now_us, key = self._clock.now_us(), credential.access_key_id
        if (
            credential.use_time_us + USE_GRAIN_US > now_us
            or key in self._waiting
            or len(self._waiting) >= WAITING_MAX
            or self._tried.get(key) is not None
            or not self._features.allows(Feature.NEW_FIELDS)
        ):
            return
        self._waiting[key] = (now_us, kind)

    async def write(self) -> None:
        """Writes what waits, one record after the other. What the store refuses is left to the next use."""
        while self._waiting:
            key = next(iter(self._waiting))
            use_time_us, kind = self._waiting.pop(key)
            self._tried.put(key, True, self._clock.monotonic() + _TRIED_SECONDS)
            with suppress(TarnError):
                await self._write(key, use_time_us, kind)

    async def run(self) -> None:
        """Writes what waits, every `WRITE_SECONDS`; ends when it is cancelled."""
        while True:
            await self._clock.sleep(WRITE_SECONDS)
            await self.write()

    async def _write(self, key: AccessKeyId, use_time_us: int, kind: str) -> None:
        def decide(found: Credential | None) -> Credential | None:
            # One that was deleted meanwhile stays so. Another replica may have noted a use.
            if found is None or found.use_time_us + USE_GRAIN_US > use_time_us:
                return found
            return replace(found, use_time_us=use_time_us, use_kind=kind)

        row = self._registers.record(
            AuthKeys.credential(key), decode_credential, encode_credential, f"access key {key}"
        )
        await row.change(decide)
