"""Names of the journal's files in a namespace (docs/formats/journal.md)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "EPOCHS",
    "FILE_NUMBER_MAX",
    "FOLDER",
    "HOLDER",
    "NUMBER_MAX",
    "PassName",
    "base_path",
    "base_prefix",
    "compacted_name",
    "compacted_path",
    "compacted_prefix",
    "compaction_number",
    "compaction_path",
    "compactions_prefix",
    "corrupt_error",
    "day_of",
    "epoch_folder",
    "epoch_number",
    "epoch_path",
    "epoch_store",
    "folder_number",
    "manifest_day",
    "manifest_path",
    "pass_name",
]

FOLDER: Final = "_tarn/journal/"
EPOCHS: Final = f"{FOLDER}epochs/"
NUMBER_MAX: Final = 9_999_999_999
"""Greatest number of an epoch. Numbers have ten digits, so names sort by them."""
FILE_NUMBER_MAX: Final = 9_999_999_999
"""Greatest number of a file of one holder, and of a base."""
HOLDER: Final = re.compile(r"[0-9a-f]{32}")
"""A life of a process that drains: 32 hex digits, never used again."""

_EPOCH: Final = re.compile(re.escape(EPOCHS) + r"([0-9]{10})\.json")
_EPOCH_FOLDER: Final = re.compile(r"[0-9]{10}-[0-9a-f]{32}")
_PASS: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})/([0-9a-f]{32})-([0-9]{10})-([0-9a-f]{64})\.parquet"
)
_COMPACTION: Final = re.compile(r"compactions/([0-9]{10})\.json")
_COMPACTED: Final = re.compile(r"compacted/([0-9a-f]{32})\.parquet")
_MANIFEST: Final = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})/manifest\.json")


def corrupt_error(path: str, detail: str) -> TarnError:
    """The error for a file of the journal that is damaged or missing."""
    text = f"the journal's file {path} is damaged: {detail}"
    return TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text, path=path)


def epoch_path(number: int) -> str:
    """The file that begins an epoch; numbers begin with 1."""
    return f"{EPOCHS}{_checked(number, NUMBER_MAX):010d}.json"


def epoch_number(path: str) -> int | None:
    """The number of the epoch that a file begins; None: the path is of no epoch."""
    found = _EPOCH.fullmatch(path)
    return int(found[1]) or None if found else None


def epoch_folder(number: int, random_hex: str) -> str:
    """The name of an epoch's folder.

    Args:
        number: of the epoch.
        random_hex: 32 hex digits: 16 of the store, the same in all of its attempts (`epoch_store`), and 16 that are new
            for each attempt.
    """
    folder = f"{_checked(number, NUMBER_MAX):010d}-{random_hex}"
    if not _EPOCH_FOLDER.fullmatch(folder):
        raise _invalid(f"{random_hex[:80]!a} is not 32 hex digits")
    return folder


def epoch_store(folder: str) -> str:
    """The 16 hex digits of a folder's name that all attempts of one store to begin this epoch share, and no others."""
    return folder[11:27]


def folder_number(path: str) -> int | None:
    """The number of the epoch in whose folder a path is; None: it is in no such folder."""
    folder = path.removeprefix(FOLDER).partition("/")[0]
    return int(folder[:10]) if _EPOCH_FOLDER.fullmatch(folder) else None


def base_prefix(folder: str) -> str:
    """The prefix of the files of an epoch's base."""
    return f"{FOLDER}{folder}/base/"


def base_path(folder: str, number: int) -> str:
    """A file of an epoch's base; numbers begin with 1."""
    return f"{base_prefix(folder)}{_checked(number, FILE_NUMBER_MAX):010d}.parquet"


def day_of(time_us: int) -> str:
    """The day (UTC) of a time in microseconds since the epoch, `yyyy-mm-dd`."""
    return datetime.fromtimestamp(time_us // 1_000_000, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True, order=True)
class PassName:
    """The name of a file of events.

    Attributes:
        holder: 32 hex digits of the life of the process that wrote it.
        number: of the file among those of the holder, from 1 without gaps.
        day: `yyyy-mm-dd`, when the pass began.
        sha256: of its bytes, 64 hex digits.
    """

    holder: str
    number: int
    day: str
    sha256: str

    def path(self, folder: str) -> str:
        """Its path in the namespace, for the folder of an epoch.

        Raises:
            TarnError: INVALID: a part of the name is.
        """
        number = _checked(self.number, FILE_NUMBER_MAX)
        name = f"{self.day}/{self.holder}-{number:010d}-{self.sha256}.parquet"
        if not _PASS.fullmatch(name):
            raise _invalid(f"{name!a} is no name of a file of events")
        return f"{FOLDER}{folder}/{name}"


def pass_name(folder: str, path: str) -> PassName | None:
    """Parses the path of a file of events of an epoch; None: it is of something else."""
    found = _PASS.fullmatch(path.removeprefix(f"{FOLDER}{folder}/"))
    if found is None or int(found[3]) == 0:
        return None
    return PassName(found[2], int(found[3]), found[1], found[4])


def manifest_path(folder: str, day: str) -> str:
    """The manifest of a past day of an epoch."""
    return f"{FOLDER}{folder}/{day}/manifest.json"


def manifest_day(folder: str, path: str) -> str | None:
    """The day whose manifest a path is; None: it is of something else."""
    found = _MANIFEST.fullmatch(path.removeprefix(f"{FOLDER}{folder}/"))
    return found[1] if found else None


def compactions_prefix(folder: str) -> str:
    """The prefix of the files that publish the compactions of an epoch."""
    return f"{FOLDER}{folder}/compactions/"


def compaction_path(folder: str, number: int) -> str:
    """The file that publishes a compaction of an epoch; numbers begin with 1."""
    return f"{compactions_prefix(folder)}{_checked(number, FILE_NUMBER_MAX):010d}.json"


def compaction_number(folder: str, path: str) -> int | None:
    """The number of the compaction that a file publishes; None: the path is of something else."""
    found = _COMPACTION.fullmatch(path.removeprefix(f"{FOLDER}{folder}/"))
    return int(found[1]) or None if found else None


def compacted_prefix(folder: str) -> str:
    """The prefix of the files that compactions of an epoch write."""
    return f"{FOLDER}{folder}/compacted/"


def compacted_path(folder: str, name: str) -> str:
    """A file that a compaction wrote; `name` has 32 hex digits, never used again."""
    return f"{compacted_prefix(folder)}{name}.parquet"


def compacted_name(folder: str, path: str) -> str | None:
    """The name of a file that a compaction wrote; None: the path is of something else."""
    found = _COMPACTED.fullmatch(path.removeprefix(f"{FOLDER}{folder}/"))
    return found[1] if found else None


def _checked(number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise _invalid(f"number {number} is not from 1 to {most}")
    return number


def _invalid(text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"journal: {text}")
