"""A summary of the files of a collection, for a report: ages, days and sizes of its candidates, outcomes, earlier runs.

Works on the files of every engine. Memory does not grow with the number of candidates: a file is read at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import numpy.typing as npt

from tarn.block.port import ReadBlocks
from tarn.collection.block_names import BlockKind, Listed
from tarn.collection.outcomes import Report, read_report
from tarn.collection.quarantine import (
    Manifest,
    Tally,
    marked_runs,
    read_manifest,
    read_part,
)
from tarn.core.clock import DAY_US
from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["Band", "RunSummary", "summarize"]

_AGES: Final = (
    (2, "less than 2 days"),
    (7, "2 to 7 days"),
    (30, "7 to 30 days"),
    (90, "30 to 90 days"),
    (365, "90 days to a year"),
    (None, "more than a year"),
)
_SIZES: Final = (
    (1 << 10, "less than 1 KiB"),
    (1 << 17, "1 to 128 KiB"),
    (1 << 20, "128 KiB to 1 MiB"),
    (1 << 24, "1 to 16 MiB"),
    (1 << 27, "16 to 128 MiB"),
    (None, "128 MiB or more"),
)
_DAYS_MAX: Final = 30
_RUNS_MAX: Final = 50


@dataclass(frozen=True, slots=True)
class Band:
    """Blocks of a certain age, day or size.

    Attributes:
        name: for people.
        tally: number and bytes.
    """

    name: str
    tally: Tally


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The candidates of a mark, and their outcomes.

    Attributes:
        manifest: of the mark.
        report: of its sweep; None: no sweep has ended.
        ages: candidates by their age at the mark.
        days: candidates by the day on which they became visible, the days with the most bytes, in order of time.
        sizes: candidates by their size.
        before: earlier marks whose files are still there, oldest first.
    """

    manifest: Manifest
    report: Report | None
    ages: tuple[Band, ...]
    days: tuple[Band, ...]
    sizes: tuple[Band, ...]
    before: tuple[Manifest, ...]

    def listed(self) -> Tally:
        """Returns all blocks at the time of the mark."""
        return total_of(self.manifest.listed)

    def candidates(self) -> Tally:
        """Returns the blocks in quarantine."""
        return candidates_of(self.manifest)


def total_of(tallies: Mapping[str, Tally]) -> Tally:
    """Returns the sum of tallies."""
    found = Tally()
    for tally in tallies.values():
        found.add(tally.count, tally.size_bytes)
    return found


def candidates_of(manifest: Manifest) -> Tally:
    """Returns the blocks in quarantine, of all kinds."""
    return total_of({kind.value: manifest.candidates(kind) for kind in BlockKind})


async def summarize(
    blocks: ReadBlocks, namespace: str, repository: str, run_id: str = ""
) -> RunSummary:
    """Reads the files of a collection.

    Args:
        blocks: holds the files.
        namespace: of the repository.
        repository: its name, for errors.
        run_id: the mark; empty: the last one.

    Raises:
        TarnError: FAILED_PRECONDITION, COLLECTION_NO_MARK, if there is no such mark; CORRUPT if a file is missing or
            damaged.
    """
    runs = await marked_runs(blocks, namespace)
    wanted = run_id or (runs[-1] if runs else "")
    manifest = await read_manifest(blocks, namespace, wanted) if wanted else None
    if manifest is None:
        what = f"no mark {run_id}" if run_id else "no finished mark"
        text = f"{repository} has {what} whose files are still there; `tarn gc run --only mark {repository}` makes one"
        raise TarnError(Kind.FAILED_PRECONDITION, Reason.COLLECTION_NO_MARK, text)
    earlier = [each for each in runs if each < wanted][-_RUNS_MAX:]
    found = [await read_manifest(blocks, namespace, each) for each in earlier]
    ages, sizes = _Bands(_AGES), _Bands(_SIZES)
    days: dict[int, Tally] = {}
    for part in manifest.parts:
        rows = await read_part(blocks, namespace, part)
        ages.add((manifest.marked_us - rows["mtime"]) // DAY_US, rows)
        sizes.add(rows["size"], rows)
        _add_days(days, rows)
    largest = sorted(days, key=lambda day: (-days[day].size_bytes, day))[:_DAYS_MAX]
    return RunSummary(
        manifest,
        await read_report(blocks, namespace, manifest.run_id),
        ages.found(),
        tuple(Band(_day_name(day), days[day]) for day in sorted(largest)),
        sizes.found(),
        tuple(each for each in found if each is not None),
    )


class _Bands:
    """Counts rows by the band of a value."""

    def __init__(self, bands: Sequence[tuple[int | None, str]]) -> None:
        self._names = [name for _, name in bands]
        self._ends = np.array([end for end, _ in bands if end is not None], np.int64)
        self._tallies = [Tally() for _ in bands]

    def add(self, values: npt.NDArray[np.int64], rows: Listed) -> None:
        """Counts rows; a value that equals the end of a band is in the next one."""
        places = np.searchsorted(self._ends, values, side="right")
        for number, tally in enumerate(self._tallies):
            own = rows["size"][places == number]
            tally.add(len(own), int(own.sum()))

    def found(self) -> tuple[Band, ...]:
        """Returns all bands, in order."""
        return tuple(itertools.starmap(Band, zip(self._names, self._tallies, strict=True)))


def _add_days(days: dict[int, Tally], rows: Listed) -> None:
    numbers, places = np.unique(rows["mtime"] // DAY_US, return_inverse=True)
    for place, number in enumerate(numbers.tolist()):
        own = rows["size"][places == place]
        days.setdefault(number, Tally()).add(len(own), int(own.sum()))


def _day_name(day: int) -> str:
    return datetime.fromtimestamp(day * 86_400, UTC).strftime("%Y-%m-%d")
