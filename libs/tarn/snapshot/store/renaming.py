"""New names for the staging tokens of a store that is filled from a snapshot.

A snapshot goes back in time: its records name tokens that the store before it may have given up since. A cleaner of
that store, paused between its last look at the record and its drop, would drop a token which the filled store uses. So
each token that a branch record names gets a new name there, and so do its partition and whatever else names it: the
attempts of uploads. A token that no record names keeps its name: whoever drops it does no harm. Entries of the drop
list and registrations of events stay as they are: under an old name they find a token that is over and has no rows.

The new name follows from the first attempt of the transfer, which the fence has, and from the old name. So each attempt
gives the same names, and no other transfer does. `tarn kv migrate` gives none: it goes on with the newest state, in
which a token that was given up is never named again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from tarn.core.branch import Token
from tarn.core.errors import TarnError
from tarn.core.ids import BranchId, UploadId
from tarn.kv.keys import RepositoryKeys, after_prefix
from tarn.kv.port import Kv, Partition, Row
from tarn.kv.records import parse_record, token_from
from tarn.snapshot.files.ranges import Range, range_of
from tarn.snapshot.store.sources import Piece, Source, Unit
from tarn_proto.store.v1 import graveler_pb2 as pb

__all__ = ["NewNames", "PairedNames", "RenamedSource"]

_BRANCHES: Final = RepositoryKeys.branch("")
_BRANCHES_END: Final = after_prefix(_BRANCHES)
_UPLOADS: Final = RepositoryKeys.upload(UploadId(""))
_REFS: Final = re.compile(r"[^/]+/[^/]+-[0-9a-f]+", re.DOTALL)
_UPLOAD_DAY: Final = re.compile(r"([^/]+/[^/]+-[0-9a-f]+)/uploads/\d+", re.DOTALL)
_KEPT: Final = 17
"""Leading digits of a token's id that its new name has, too: time, version and variant of the UUIDv7, by which
tokens sort. The other 15 are new."""
_PAGE: Final = 1_000

Renames = dict[str, str]
"""The new id of a token, by the name of its partition."""


class TokenNames(Protocol):
    """Gives tokens their names."""

    async def of(self, keys: RepositoryKeys, branches: Mapping[bytes, Sequence[Token]]) -> Renames:
        """Returns the names of the tokens of some branches, which are given by the keys of their records."""
        ...


@dataclass(frozen=True, slots=True)
class NewNames:
    """Names that no token ever had.

    Attributes:
        first_run_id: the first attempt of the transfer (`Fence.first_run_id`).
    """

    first_run_id: str

    async def of(self, keys: RepositoryKeys, branches: Mapping[bytes, Sequence[Token]]) -> Renames:
        """See `TokenNames`."""
        renames = {}
        for key, tokens in branches.items():
            for token in tokens:
                name = keys.token(_branch_of(key), token).name
                digest = hashlib.sha256(f"{self.first_run_id}:{name}".encode()).hexdigest()
                renames[name] = token.token_id[:_KEPT] + digest[: 32 - _KEPT]
        return renames


@dataclass(frozen=True, slots=True)
class PairedNames:
    """The names that the tokens have in a store that was filled from the source, for a comparison with it.

    Attributes:
        kv: the store. A branch whose record has other layers there keeps the names of the source.
    """

    kv: Kv

    async def of(self, keys: RepositoryKeys, branches: Mapping[bytes, Sequence[Token]]) -> Renames:
        """See `TokenNames`."""
        renames: Renames = {}
        there = await self.kv.get_many(keys.refs, list(branches))
        for (key, tokens), found in zip(branches.items(), there, strict=True):
            others = _tokens_of(found.value) if found is not None else ()
            if len(others) == len(tokens):
                for token, other in zip(tokens, others, strict=True):
                    renames[keys.token(_branch_of(key), token).name] = other.token_id
        return renames


class RenamedSource:
    """A source whose staging tokens have other names.

    Args:
        source: the rows. A record that cannot be read stays as it is.
        names: gives the names.
    """

    def __init__(self, source: Source, names: TokenNames) -> None:
        self._source = source
        self._names = names
        self._renames: Renames = {}
        self._known: dict[Range, Range] = {}

    async def look(self, concurrency: int) -> tuple[dict[str, Partition], Sequence[Unit]]:
        """See `Source`."""
        partitions, units = await self._source.look(concurrency)
        renames: Renames = {}
        for partition in partitions.values():
            if _REFS.fullmatch(partition.name):
                renames |= await self._renames_of(partition)
        self._renames = renames
        renamed = {each.name: each for each in map(self._renamed, partitions.values())}
        return renamed, [_RenamedUnit(self, unit) for unit in units]

    async def rows(
        self, partition: Partition, start: bytes, end: bytes | None
    ) -> AsyncIterator[Row]:
        """See `Source`; with the names of the source."""
        async for row in self._source.rows(partition, start, end):
            yield row

    async def _renames_of(self, refs: Partition) -> Renames:
        keys = RepositoryKeys(refs.name)
        renames: Renames = {}
        some: dict[bytes, Sequence[Token]] = {}
        async for key, value in self.rows(refs, _BRANCHES, _BRANCHES_END):
            if tokens := _tokens_of(value):
                some[key] = tokens
            if len(some) == _PAGE:
                renames |= await self._names.of(keys, some)
                some = {}
        return renames | await self._names.of(keys, some)

    def _renamed(self, partition: Partition) -> Partition:
        new = self._renames.get(partition.name)
        if new is None:
            return partition
        return replace(partition, name=f"{partition.name.rpartition(':')[0]}:{new}")

    async def piece(self, piece: Piece) -> Piece:
        """Returns a piece of the source with the new names."""
        old = piece.range
        partition = self._renamed(old.partition)
        if partition is old.partition and not _may_name_tokens(old):
            return piece

        async def load() -> list[Row]:
            return [self._row(old.partition.name, row) for row in await piece.load()]

        if (known := self._known.get(old)) is not None:
            return Piece(known, load)
        rows = await load()
        self._known[old] = found = range_of(partition, old.start, old.end, rows)

        async def loaded() -> list[Row]:
            return rows

        return Piece(found, loaded)

    def _row(self, partition: str, row: Row) -> Row:
        key, value = row
        if key.startswith(_BRANCHES) and _REFS.fullmatch(partition):
            return key, self._branch(RepositoryKeys(partition), key, value)
        if key.startswith(_UPLOADS) and (day := _UPLOAD_DAY.fullmatch(partition)):
            return key, self._upload(RepositoryKeys(day[1]), value)
        return row

    def _branch(self, keys: RepositoryKeys, key: bytes, value: bytes) -> bytes:
        if not _tokens_of(value):
            return value
        record = parse_record(pb.BranchRecord(), value)
        tokens = [record.staging, *record.sealed]
        return self._with_names(record, keys, _branch_of(key), tokens) or value

    def _upload(self, keys: RepositoryKeys, value: bytes) -> bytes:
        try:
            record = parse_record(pb.UploadRecord(), value)
        except TarnError:
            return value
        tokens = [each.token for each in record.attempts]
        return self._with_names(record, keys, BranchId(record.branch_id), tokens) or value

    def _with_names(
        self,
        record: pb.BranchRecord | pb.UploadRecord,
        keys: RepositoryKeys,
        branch_id: BranchId,
        tokens: Sequence[pb.Token],
    ) -> bytes | None:
        """Gives the tokens of a record their names; returns its bytes, None if all of them had these names."""
        has_changed = False
        for token in tokens:
            new = self._renames.get(keys.token(branch_id, token_from(token)).name)
            if new is not None and new != token.token_id:
                token.token_id = new
                has_changed = True
        return record.SerializeToString() if has_changed else None


@dataclass(frozen=True, slots=True)
class _RenamedUnit:
    source: RenamedSource
    unit: Unit

    async def pieces(self) -> AsyncIterator[Piece]:
        async for piece in self.unit.pieces():
            yield await self.source.piece(piece)


def _may_name_tokens(found: Range) -> bool:
    """Whether a range may have branch records or uploads."""
    if _REFS.fullmatch(found.partition.name):
        return found.start < _BRANCHES_END and (found.end is None or found.end > _BRANCHES)
    return _UPLOAD_DAY.fullmatch(found.partition.name) is not None


def _tokens_of(value: bytes) -> Sequence[Token]:
    """The tokens of a branch record, newest first; none if it cannot be read."""
    try:
        record = parse_record(pb.BranchRecord(), value)
    except TarnError:
        return ()
    tokens = [token_from(each) for each in (record.staging, *record.sealed)]
    return tokens if all(token.token_id for token in tokens) else ()


def _branch_of(key: bytes) -> BranchId:
    return BranchId(key[len(_BRANCHES) :].decode(errors="surrogateescape"))
