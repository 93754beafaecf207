"""The result of a replay that another process made: `tarn_spark.rebuild` leaves it, and a rebuild takes it over.

It is one file of JSON, with what a rebuild writes into the store, and without the uncommitted rows: these are in the
bucket already, as one listing of each branch. So it is small. It is good for the files that it was made of, and for no
others.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Final

import msgspec

from tarn.core.errors import Kind, Reason, TarnError
from tarn.journal.accounts import Report

__all__ = ["BuiltListing", "ReplayedJournal", "load_replayed", "save_replayed"]

_FORMAT: Final = "tarn replayed journal"
_BYTES_MAX: Final = 4 << 30
"""Some 500 bytes for each record, and a third more in JSON: five million branches and tags."""

_Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class BuiltListing(msgspec.Struct, frozen=True):
    """The uncommitted rows of a branch, folded over its compacted listing, or over that of its commit.

    Attributes:
        branch_id: its name. Branches without uncommitted rows have none.
        rows: that were folded, tombstones included.
        metarange_id: the listing; that of the commit if it has the same entries. None: they are lost.
        problem: why they are lost.
    """

    branch_id: str
    rows: _Count
    metarange_id: _Sha256 | None
    problem: str = ""


class ReplayedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay made of an epoch.

    Attributes:
        namespace: of the journal.
        epoch: number of the epoch.
        folder: of the epoch.
        files_sha256: see `tarn.journal.source.files_digest`.
        report: what was read and what is missing.
        records: that exist: key, value and order, ascending by key.
        entries: of reflogs: name of the branch, and the encoded entry; each once.
        unreadable: how many records of a branch, also former ones, cannot be read, by its name.
        listings: by the names of the branches.
        sha256: in hex, of this JSON with an empty `sha256`.
        format: always "tarn replayed journal".
        version: of the format.
    """

    namespace: str
    epoch: _Count
    folder: str
    files_sha256: _Sha256
    report: Report
    records: tuple[tuple[str, bytes, int], ...]
    entries: tuple[tuple[str, bytes], ...]
    unreadable: tuple[tuple[str, _Count], ...]
    listings: tuple[BuiltListing, ...]
    sha256: str = ""
    format: str = _FORMAT
    version: int = 1

    def digest(self) -> str:
        """Returns what `sha256` must be."""
        return hashlib.sha256(
            msgspec.json.encode(msgspec.structs.replace(self, sha256=""))
        ).hexdigest()


def save_replayed(path: Path, replayed: ReplayedJournal) -> None:
    """Writes a result, whole or not at all; only its owner may read it, as it has the records of the store.

    Raises:
        OSError: it cannot be written.
    """
    signed = msgspec.structs.replace(replayed, sha256=replayed.digest())
    draft = path.with_name(f"{path.name}.part")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600, exist_ok=False)
    with draft.open("wb") as file:
        file.write(msgspec.json.encode(signed))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


def load_replayed(path: Path) -> ReplayedJournal:
    """Reads a result.

    Raises:
        TarnError: CORRUPT: it is damaged, or of another kind. INVALID: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            body = file.read(_BYTES_MAX + 1)
    except OSError as error:
        text = f"the replayed journal {path} cannot be read: {error.strerror}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text) from error
    try:
        if len(body) > _BYTES_MAX:
            raise ValueError(f"it has more than {_BYTES_MAX} bytes")
        found = msgspec.json.decode(body, type=ReplayedJournal)
        if (found.format, found.version) != (_FORMAT, 1):
            raise ValueError(f"it is a {found.format!r} of version {found.version}")
        if found.digest() != found.sha256:
            raise ValueError("its SHA-256 is not the one that it names")
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError) as error:
        text = f"{path} is not a replayed journal, or is damaged: {error}; run tarn_spark.rebuild again"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text) from error
    return found
