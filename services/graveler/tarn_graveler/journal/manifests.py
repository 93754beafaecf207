"""Manifests of past days: without them, a rebuild would not notice that the last files of a holder are missing.

The holder of the rounds writes the manifest of a day one hour after its end, so that passes that began in it have
ended. A file that comes even later counts without a manifest (docs/formats/journal.md).
"""

from __future__ import annotations

from typing import Final

from tarn.aio.bounded_map import BoundedMap
from tarn.block.port import BlockStore
from tarn.core.clock import Clock
from tarn.journal.days import write_manifest
from tarn.journal.epochs import Epoch
from tarn.journal.names import FOLDER, day_of, manifest_path
from tarn_graveler.journal.epochs import JournalPlace

__all__ = ["Manifests"]

_LATE_US: Final = 3_600_000_000
_BACK_US: Final = 7 * 24 * 3_600_000_000
"""How far back it looks for days without a manifest: nothing may have drained for some days."""
_REPOSITORIES_MAX: Final = 10_000
_PAST_FILES: Final = "g"
"""Sorts after the names of all files of passes, which begin with a hexadecimal digit, and before `manifest.json`."""


class Manifests:
    """Writes the manifests that are due."""

    def __init__(self, blocks: BlockStore, clock: Clock) -> None:
        self._blocks = blocks
        self._clock = clock
        self._looked: BoundedMap[str, tuple[str, str]] = BoundedMap(_REPOSITORIES_MAX)

    async def write_due(self, place: JournalPlace, epoch: Epoch) -> None:
        """Writes the manifests of the past days of an epoch that have files and no manifest.

        Looks once a day, and after a start of this process.

        Raises:
            TarnError: errors of the store; those that were not written are written by the next call.
        """
        ended_us = self._clock.now_us() - _LATE_US
        look = (epoch.folder, day_of(ended_us))
        if self._looked.get(place.root) == look:
            return
        for day in await self._days(place.namespace, epoch.folder, ended_us):
            await write_manifest(self._blocks, place.namespace, epoch.folder, day)
        self._looked.put(place.root, look)

    async def _days(self, namespace: str, folder: str, ended_us: int) -> list[str]:
        """Returns the days that ended before a time and need a manifest. Jumps over the files of each day."""
        prefix = f"{FOLDER}{folder}/"
        after = prefix + day_of(max(0, ended_us - _BACK_US))
        found: list[str] = []
        while page := await self._blocks.list_page(namespace, prefix, after, 1):
            day = page[0].path.removeprefix(prefix).partition("/")[0]
            if day >= day_of(ended_us):  # also the base, whose name is no date
                break
            past = f"{prefix}{day}/{_PAST_FILES}"
            next_ = await self._blocks.list_page(namespace, prefix, past, 1)
            if [each.path for each in next_] != [manifest_path(folder, day)]:
                found.append(day)
            after = f"{prefix}{day}0"  # the character after the slash
        return found
