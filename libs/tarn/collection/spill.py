"""Records partitioned on disk by their key: the two sides of a partitioned hash join.

A join of all blocks with all references needs room for both. So both sides are written to as many files as there
are partitions, and joined one partition at a time. The last byte of a key chooses the partition: it is random in
an address and a hash in an id. Memory is bounded by the buffer and one partition; the files together have the
size of the records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["PARTITIONS", "Spill"]

PARTITIONS: Final = 64
_BUFFER_RECORDS: Final = 1 << 16


class Spill:
    """One side of a join. A few records stay in memory.

    Args:
        folder: a folder of its own, made when it is needed; the caller removes it.
        dtype: of the records; has the field `key` of fixed width.
    """

    def __init__(self, folder: Path, dtype: np.dtype[np.void]) -> None:
        self._folder = folder
        self._dtype = dtype
        self._held: list[np.ndarray] = []
        self._held_count = 0
        self._order: np.ndarray | None = None
        self._on_disk = False
        self.count = 0
        """Records added."""

    def add(self, records: np.ndarray) -> None:
        """Adds records; the same key may come more than once. Writes them when the buffer is full. Blocks."""
        if not len(records):
            return
        self._held.append(records)
        self._order = None
        self._held_count += len(records)
        self.count += len(records)
        if self._held_count >= _BUFFER_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Writes the buffered records.

        Raises:
            TarnError: EXHAUSTED if the disk is full or cannot be written.
        """
        records, ends = self._sorted()
        self._held, self._held_count, self._order = [], 0, None
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for number in np.flatnonzero(np.diff(ends)).tolist():
                with self._file(number).open("ab") as file:
                    file.write(records[ends[number] : ends[number + 1]].tobytes())
        except OSError as error:
            text = (
                f"the collection cannot write its temporary files to {self._folder}: {error.strerror}; "
                "free space there, or choose another folder"
            )
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text) from error
        self._on_disk = True

    def partition(self, number: int) -> np.ndarray:
        """Returns the records of one partition, 0 to `PARTITIONS` - 1, in the order of their addition. Blocks."""
        if not self._on_disk:  # few records were added
            records, ends = self._sorted()
            return records[ends[number] : ends[number + 1]]
        if self._held:
            self.flush()
        file = self._file(number)
        if not file.exists():
            return np.zeros(0, self._dtype)
        return np.fromfile(file, self._dtype)

    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the buffered records by partition, and where each partition begins."""
        if self._order is None:
            records = np.concatenate(self._held or [np.zeros(0, self._dtype)])
            numbers = records["key"][:, -1] % PARTITIONS
            order = np.argsort(numbers, kind="stable")
            self._held = [records[order]]
            self._order = np.searchsorted(numbers[order], np.arange(PARTITIONS + 1))
        return self._held[0], self._order

    def _file(self, number: int) -> Path:
        return self._folder / f"{number:02d}"
