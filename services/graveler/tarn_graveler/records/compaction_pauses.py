"""The pause of all background compactions: one row of the installation, which compactors read before they start one.

The pause is a row because every compactor must keep to it, also after a restart. A compactor reads it through graveler,
because it has no store of its own. Graveler itself compacts on every request, so `tarn compact lake/main` works in a
pause.
"""

from __future__ import annotations

from tarn.core.clock import Clock
from tarn.core.compaction_pause import CompactionPause
from tarn.kv.compaction_records import decode_pause, encode_pause
from tarn_graveler.records.attempts import TRIES, change_row
from tarn_graveler.records.repositories import Repositories

__all__ = ["CompactionPauses"]


class CompactionPauses:
    """Reads and changes the pause."""

    def __init__(self, repositories: Repositories, clock: Clock) -> None:
        self._kv, self._keys = repositories.kv, repositories.keys
        self._clock = clock

    async def get(self) -> CompactionPause | None:
        """Returns the pause that holds now, by a read that is sent now; None: there is none.

        Raises:
            TarnError: CORRUPT: the record is damaged; errors of the store.
        """
        (found,) = await self._kv.get_many(self._keys.graveler, [self._keys.COMPACTION_PAUSE])
        pause = None if found is None else decode_pause(found.value)
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
        value = encode_pause(pause)
        await change_row(
            self._kv,
            self._keys.graveler,
            self._keys.COMPACTION_PAUSE,
            lambda found: (None, None if found is not None and found.value == value else value),
            tries=TRIES,
            text=f"the pause of compactions changed {TRIES} times during one change; try again",
        )
        return pause
