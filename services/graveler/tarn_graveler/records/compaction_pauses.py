"""The pause of all background compactions: one row of the installation, which compactors read before they start one.

The pause is a row because every compactor must keep to it, also after a restart. A compactor reads it through graveler,
because it has no store of its own. Graveler itself compacts on every request, so `tarn compact lake/main` works in a
pause.
"""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.core.compaction_pause import CompactionPause
from tarn.kv.compaction_records import decode_pause, encode_pause
from tarn.kv.register import Register
from tarn_graveler.records.repositories import Repositories

__all__ = ["CompactionPauses"]


class CompactionPauses:
    """Reads and changes the pause."""

    def __init__(self, repositories: Repositories, clock: Clock) -> None:
        kv, keys = repositories.kv, repositories.keys
        place, row = keys.graveler, keys.COMPACTION_PAUSE
        what = "the pause of compactions"
        self._register = Register(kv, place, row, _decoded, _encoded, what)
        self._clock = clock

    async def get(self) -> CompactionPause | None:
        """Returns the pause that holds now, by a read that is sent now; None: there is none.

        Raises:
            TarnError: CORRUPT: the record is damaged; errors of the store.
        """
        pause = await self._register.read()
        return pause if pause is not None and pause.holds(self._clock.now_us()) else None

    async def begin(self, user_id: str, seconds: int) -> CompactionPause:
        """Begins a pause that ends after some seconds, or with 0 by `end` only; replaces the present one.

        Raises:
            TarnError: TOO_MANY_RETRIES. OUTCOME_UNKNOWN. UNAVAILABLE.
        """
        now_us = self._clock.now_us()
        end_us = now_us + seconds * 1_000_000 if seconds else 0
        return await self._set(CompactionPause(user_id, now_us, end_us))

    async def end(self, user_id: str) -> None:
        """Ends the pause, if there is one.

        Raises:
            TarnError: as `begin`.
        """
        await self._set(CompactionPause(user_id, self._clock.now_us(), is_resumed=True))

    async def _set(self, pause: CompactionPause) -> CompactionPause:
        await self._register.change(lambda _: pause)
        return pause


def _decoded(value: bytes | None) -> CompactionPause | None:
    return None if value is None else decode_pause(value)


def _encoded(pause: CompactionPause | None) -> bytes | None:
    return None if pause is None else encode_pause(pause)
