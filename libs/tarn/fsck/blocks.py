"""Ranges → blocks: compares the listing of a namespace with the sorted references.

Two sorted sequences are merged, a page of the listing at a time. A reference without its block is a
*suspect*; a block without a reference is an orphan *candidate*. Neither is reported before it was read
again (`confirming.py`, and the second round in `check.py`). The last path of each finished page is saved,
so that an interrupted check can continue there.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tarn.block.port import BlockInfo, BlockKey, BlockNotFoundError
from tarn.core.commit import COMMIT_PATH, NOTE_PATH
from tarn.core.errors import TarnError
from tarn.core.ids import physical_path
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.fsck.finding import Code
from tarn.fsck.references import Records, SortedReferences, path_of_address
from tarn.fsck.session import Lake, or_corrupt

__all__ = ["Blocks"]

_DATA = "data/"
_TARN = "_tarn/"
_LAST = chr(0x10FFFF)
_GAPS = (("", _TARN), (_TARN + _LAST, _DATA), (_DATA + _LAST, None))
"""Ranges of paths, from after the first to the second, in which Tarn has no blocks."""
_BLOCK = re.compile(r"data/[0-9]{10}/([0-9a-f]{32})")
_COLLECTION = re.compile(
    r"_tarn/collection/[0-9a-f]{32}/[^.].*\.(json|parquet)|_tarn/owners/[0-9a-f]{32}\.json"
    r"|_tarn/reads/[0-9]{4}-[0-9]{2}-[0-9]{2}/[0-9a-f]{32}-[0-9]{6,}\.parquet"
    r"|_tarn/erased/[0-9a-f]{32}/[^.].*\.(json|parquet)|_tarn/journal/[^.].*\.(json|parquet)"
    r"|_tarn/symlinks/[^/]+/[^/]+/(.+/)?symlink\.txt|_tarn/symlink-runs/[^/]+/[^/]+/[0-9a-f]+",
    re.DOTALL,
)
"""Files of collections and erasures (`docs/formats/`), notes of restores, journals, and manifests for engines; no data
depends on them."""
_NOTE_BYTES_MAX = 64 << 10
_METADATA = (
    (re.compile(r"_tarn/ranges/([0-9a-f]{64})\.parquet"), "ranges", "range_id", Code.RANGE_ORPHAN),
    (
        re.compile(r"_tarn/metaranges/([0-9a-f]{64})\.parquet"),
        "metaranges",
        "metarange_id",
        Code.METARANGE_ORPHAN,
    ),
    (COMMIT_PATH, "commits", "commit_id", Code.COMMIT_ORPHAN),
)


@dataclass(frozen=True, slots=True)
class _Page:
    """The blocks of a page whose names have Tarn's form, in order."""

    addresses: npt.NDArray[np.bytes_]
    sizes: npt.NDArray[np.int64]
    times: npt.NDArray[np.int64]


class Blocks:
    """Checks the namespace of one repository."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._state = lake.session.state
        self._reads = lake.session.reads
        self._is_whole = not lake.session.options.ref

    async def _pages(self, prefix: str, step: str) -> AsyncIterator[list[BlockInfo]]:
        """Yields a listing from where it was left; a page counts as done when the next one is requested."""
        while True:
            after = self._state.meta(step)
            page = await self._reads.page(self._lake.namespace, prefix, after)
            if not page:
                return
            yield page
            self._lake.session.progress.done += len(page)
            self._state.set_meta(step, page[-1].path)
            self._state.save()

    # ---- data

    async def join(self) -> None:
        """Checks that every reference has its block, of the right size; a block without a reference becomes
        a candidate.
        """
        name = self._lake.repository.repository_id
        self._lake.session.progress.begin(f"{name}: blocks")
        step = f"listed {_DATA} {self._lake.uid}"
        references = SortedReferences(self._state, self._lake.uid, 1, self._state.meta(step))
        async for infos in self._pages(_DATA, step):
            self._match(self._parse(infos), references, infos[-1].path)
        self._match(self._parse([]), references, None)
        self._state.save()

    def _parse(self, infos: Sequence[BlockInfo]) -> _Page:
        found = [(info, match[1]) for info in infos if (match := _BLOCK.fullmatch(info.path))]
        addresses = [bytes.fromhex(digits) for _, digits in found]
        named = [
            place
            for place, (info, _) in enumerate(found)
            if info.path == _path_or_none(addresses[place])
        ]
        known = {found[place][0].path for place in named}
        self._foreign([info for info in infos if info.path not in known])
        return _Page(
            np.array([addresses[place] for place in named], "S16"),
            np.array([found[place][0].size for place in named], np.int64),
            np.array([found[place][0].mtime_us for place in named], np.int64),
        )

    def _foreign(self, infos: Sequence[BlockInfo]) -> None:
        for info in infos if self._is_whole else ():
            if info.mtime_us < self._lake.session.oldest_us:
                text = "its path does not have the form of a Tarn block"
                self._lake.find(Code.BLOCK_FOREIGN, info.path, text, info.size)

    def _match(self, page: _Page, references: SortedReferences, upto: str | None) -> None:
        is_named = np.zeros(len(page.addresses), np.bool_)
        for records in references.upto(upto):
            at = np.searchsorted(page.addresses, records["address"])
            inside = at < len(page.addresses)
            hit = inside.copy()
            hit[inside] = page.addresses[at[inside]] == records["address"][inside]
            is_named[at[hit]] = True
            sizes = np.full(len(records), -1, np.int64)
            sizes[hit] = page.sizes[at[hit]]
            self._suspect(records[(records["size"] >= 0) & (records["size"] != sizes)])
        old = page.times < self._lake.session.oldest_us
        rows = np.flatnonzero(old & ~is_named).tolist() if self._is_whole else []
        self._state.change_many(
            "INSERT OR IGNORE INTO orphans VALUES (?, ?, ?)",
            [
                (self._lake.uid, path_of_address(page.addresses[row]), int(page.sizes[row]))
                for row in rows
            ],
        )

    def _suspect(self, records: Records) -> None:
        self._state.change_many(
            "INSERT OR IGNORE INTO suspects VALUES (?, ?, ?, ?, 0)",
            [
                (self._lake.uid, int(source), path_of_address(address), int(size))
                for address, size, source in zip(
                    records["address"], records["size"], records["source"], strict=True
                )
            ],
        )

    @property
    def has_candidates(self) -> bool:
        """Whether there are orphan candidates."""
        return bool(self._state.all("SELECT 1 FROM orphans WHERE uid=? LIMIT 1", self._lake.uid))

    def clear_candidates(self) -> None:
        """Removes the candidates for which the second round found references."""
        for records in SortedReferences(self._state, self._lake.uid, 2).upto(None):
            self._state.change_many(
                "DELETE FROM orphans WHERE uid=? AND path=?",
                [(self._lake.uid, path_of_address(address)) for address in records["address"]],
            )
        self._state.save()

    # ---- metadata

    async def list_metadata(self) -> None:
        """Checks metadata files: unreferenced files, notes, and files that are not Tarn's."""
        name = self._lake.repository.repository_id
        self._lake.session.progress.begin(f"{name}: files")
        async for infos in self._pages(_TARN, f"listed {_TARN} {self._lake.uid}"):
            for info in infos:
                await self._metadata(info)
        for start, end in _GAPS:
            after = start
            while page := await self._reads.page(self._lake.namespace, "", after):
                self._foreign([info for info in page if end is None or info.path < end])
                after = page[-1].path
                if end is not None and after >= end:
                    break

    async def _metadata(self, info: BlockInfo) -> None:
        for pattern, table, column, _ in _METADATA:
            if match := pattern.fullmatch(info.path):
                if info.mtime_us < self._lake.session.oldest_us and not self._names(
                    table, column, match[1]
                ):
                    values = (self._lake.uid, info.path, info.size)
                    self._state.change("INSERT OR IGNORE INTO orphans VALUES (?, ?, ?)", *values)
                return
        if match := NOTE_PATH.fullmatch(info.path):
            await self._note(info, match[1], match[3])
        elif not _COLLECTION.fullmatch(info.path):
            self._foreign([info])

    def _names(self, table: str, column: str, name: str) -> bool:
        if name == EMPTY_METARANGE.metarange_id:
            return True  # every repository begins with the empty listing, which needs no file
        query = f"SELECT 1 FROM {table} WHERE uid=? AND {column}=?"  # noqa: S608 - of `_METADATA`
        return bool(self._state.all(query, self._lake.uid, name))

    async def _note(self, info: BlockInfo, branch: str, commit_id: str) -> None:
        """Checks that a note's content agrees with its name, and that its commit exists."""
        key = BlockKey(self._lake.namespace, info.path)
        try:
            note = json.loads(await self._reads.read(key, _NOTE_BYTES_MAX))
            claimed = (note["branch"], note["commit_id"])
        except BlockNotFoundError:
            return
        except TarnError as error:
            self._lake.find(Code.NOTE_INVALID, info.path, or_corrupt(error))
            return
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            self._lake.find(Code.NOTE_INVALID, info.path, f"it cannot be read: {error!r}")
            return
        if claimed != (branch, commit_id):
            self._lake.find(Code.NOTE_INVALID, info.path, f"its content belongs to {claimed}")
        elif not self._names("commits", "commit_id", commit_id):
            # The commit may be newer than the read of the commits; its row was durable before its note.
            keys = self._lake.keys
            if await self._reads.get(keys.commits, keys.commit(commit_id)) is None:
                self._lake.find(Code.NOTE_INVALID, info.path, "its commit does not exist")

    # ---- remaining candidates

    def tell_orphans(self) -> None:
        """Reports the remaining candidates as findings."""
        rows = self._state.pages(
            "SELECT path, size FROM orphans WHERE uid=? AND path>? ORDER BY path", self._lake.uid
        )
        for path, size in rows:
            code = Code.BLOCK_ORPHAN
            for pattern, table, column, found in _METADATA:
                if match := pattern.fullmatch(path):
                    code = found
                    if self._names(table, column, match[1]):
                        break
            else:
                self._lake.find(code, path, "nothing refers to it", size)


def _path_or_none(address: bytes) -> str | None:
    """Returns the path of an address; None if the address is invalid."""
    try:
        return physical_path(address)
    except (OverflowError, ValueError):
        return None
