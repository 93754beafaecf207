"""Space on the disk that objects leave free, so that a full disk still takes deletes, commits and their metadata.

The store's own writes are refused before the disk is full; other programs may fill it all the same. The free space is
asked for at most every `_LOOK_SECONDS`, so that objects may use a little of the reserve.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["DiskReserve"]

_LOOK_SECONDS: Final = 0.2
_SHARE_MAX: Final = 20
"""The reserve is at most this part of the disk (a twentieth), for small disks."""


class DiskReserve:
    """Decides whether objects may take more of a disk. Safe to use from any thread.

    Args:
        free: returns the bytes that are free on the disk, and its size.
        reserve_bytes: space to leave free; 0: none.
        setting: that of `reserve_bytes`, for the error.
        monotonic: seconds, for the age of the last look.
    """

    def __init__(
        self,
        free: Callable[[], tuple[int, int]],
        reserve_bytes: int,
        setting: str = "blockstore.local.reserve",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._free = free
        self._setting = setting
        self._reserve_bytes = reserve_bytes
        self._monotonic = monotonic
        # Without a reserve, the last look is for ever.
        self._looked = -math.inf if reserve_bytes else math.inf
        self._refusal = ""

    @staticmethod
    def of(descriptor: int, reserve_bytes: int) -> DiskReserve:
        """Returns the reserve of the disk of an open directory, which stays open as long."""
        return DiskReserve(lambda: _space(os.fstatvfs(descriptor)), reserve_bytes)

    @staticmethod
    def of_folder(folder: Path, reserve_bytes: int, setting: str) -> DiskReserve:
        """Returns the reserve of the disk of a folder, which stays as long."""
        return DiskReserve(lambda: _space(os.statvfs(folder)), reserve_bytes, setting)

    def check(self, doing: str) -> None:
        """Refuses an object if the disk has no more than its reserve.

        Args:
            doing: names the refused action in the error, such as `write block data/x`.

        Raises:
            TarnError: UNAVAILABLE: nothing was written.
        """
        now = self._monotonic()
        if now - self._looked >= _LOOK_SECONDS:
            self._looked = now
            self._refusal = self._look()
        if self._refusal:
            text = f"cannot {doing}: the disk is full: {self._refusal}"
            raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)

    def _look(self) -> str:
        free, size = self._free()
        reserve = min(self._reserve_bytes, size // _SHARE_MAX)
        if free > reserve:
            return ""
        return (
            f"{free >> 20} MiB are free, and {reserve >> 20} MiB are reserved for deletes and metadata "
            f"({self._setting}); delete objects and collect garbage, or enlarge the disk"
        )


def _space(found: os.statvfs_result) -> tuple[int, int]:
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
