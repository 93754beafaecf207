"""The state of a store and of its journal's files, read without production's replay: what a rebuild must make.

A branch is what its record and the rows of its tokens say (rule 1): the rows of the newest layer, in each the one of
the greatest (order, value), over the compacted listing or the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from tests.support.sim.blocks import committed_over

from tarn.block.mem import MemBlockStore
from tarn.block.port import BlockKey
from tarn.core.branch import Branch
from tarn.core.entry import is_tombstone
from tarn.core.head_change import HeadChange
from tarn.core.ids import MetarangeId
from tarn.journal.accounts import Accounts
from tarn.journal.epochs import Epoch, decode_epoch
from tarn.journal.events import BRANCHES, EventRow, rows_of
from tarn.journal.names import PassName, epoch_path
from tarn.journal.reading import EpochReader
from tarn.kv.commit_records import decode_commit
from tarn.kv.keys import PATHS_END, PATHS_START, RepositoryKeys, path_of
from tarn.kv.port import COMPANION_KEYS, Companion
from tarn.kv.record_kinds import Place, kind_of
from tarn.kv.records import Repository, decode_branch, decode_head_change, encode_head_change
from tarn_proto.store.v1 import journal_pb2 as pb

if TYPE_CHECKING:
    from tests.sim.world import World, _Store

__all__ = [
    "DELETED",
    "Told",
    "contents_of",
    "epoch_of",
    "listings_of",
    "reflog_rows",
    "stored",
    "told_by",
]

DELETED = RepositoryKeys.DELETED.decode()
_LIMIT = 100_000
_Ordered = tuple[int, bytes]


@dataclass
class Told:
    """What a store or files say of a repository.

    Attributes:
        records: the newest order and payload of each key; an empty payload: there is no such record.
        rows: the same of each path, by branch and token id.
        events: what was added, so that no event counts as another one.
    """

    records: dict[str, _Ordered] = field(default_factory=dict)
    rows: dict[tuple[str, str], dict[str, _Ordered]] = field(default_factory=dict)
    events: set[tuple[str, str, str, int, bytes]] = field(default_factory=set)

    def add(self, branch: str, token: str, key: str, order: int, payload: bytes) -> None:
        """Adds an event; `token` is empty for one of a record."""
        self.events.add((branch if token else "", token, key, order, payload))
        of = self.rows.setdefault((branch, token), {}) if token else self.records
        of[key] = max(of.get(key, (-1, b"")), (order, payload))

    def with_events(self, other: Told) -> Told:
        """Returns both together."""
        both = Told()
        for event in (*self.events, *other.events):
            both.add(*event)
        return both

    @property
    def branches(self) -> dict[str, Branch]:
        """The branches that users see."""
        found = {
            key.removeprefix(BRANCHES): decode_branch(payload)
            for key, (_, payload) in self.records.items()
            if key.startswith(BRANCHES) and payload
        }
        return {name: each for name, each in found.items() if not each.is_deleted}


async def epoch_of(blocks: MemBlockStore, namespace: str, number: int) -> Epoch:
    """Returns an epoch that is in the bucket."""
    body = await blocks.read(BlockKey(namespace, epoch_path(number)))
    return decode_epoch(number, body)


async def told_by(
    world: World, namespace: str, epoch: Epoch, since: str = "", until: str = ""
) -> list[Told]:
    """Returns what the files of an epoch say: of its base, then with one more pass each time, as they were written.

    Only from the moment on at which the file `since` was written, and up to that of `until`.
    """
    blocks = world.blocks
    reader = EpochReader(blocks, namespace, epoch, Accounts(epoch.number, 0))
    tables = [table async for table in reader.base()]
    states = [Told()]
    _add(states[0], [row for table in tables for row in rows_of(table)])
    names = {name.path(epoch.folder): name for name in await reader.names()}
    for path in list(blocks._namespaces.get(namespace, {})):  # in the order of their writes
        if path == since:
            states = states[-1:]
        if path == until:
            break
        if path not in names:
            continue
        one = _OneFile(blocks, namespace, epoch, Accounts(epoch.number, 0))
        rows = [row for table in await one.rows(names[path]) for row in rows_of(table)]
        more = Told()
        _add(more, rows)
        states.append(states[-1].with_events(more))
    return states


class _OneFile(EpochReader):
    async def rows(self, name: PassName) -> list[pa.Table]:
        """Returns the rows of one file."""
        return [table async for table in self._read([name])]


def _add(told: Told, rows: Iterable[EventRow]) -> None:
    for row in rows:
        told.add(row.branch, row.token, row.key, row.order, row.payload)


async def stored(store: _Store, keys: RepositoryKeys) -> tuple[Told, Told]:
    """Returns what a store holds of a repository at this moment: its records and rows, and the events of both."""
    state, events = Told(), Told()
    names = {
        keys.refs.name: Place.REFS,
        keys.commits.name: Place.COMMITS,
        keys.pulls.name: Place.PULLS,
        keys.reflog.name: Place.REFLOG,
    }
    for name, place in names.items():
        rows, companions = await store.peek(name)
        for key, value in rows.items():
            # Entries of reflogs come back from the base and from outboxes.
            if (kind := kind_of(place, key)).is_journaled or place is Place.REFLOG:
                state.add("", "", key.decode(), 0, kind.told(value))
        _add_events(events, "", "", companions)
    for name in store.token_names():
        if not name.startswith(f"{keys.root}/"):
            continue
        branch, token = name.removeprefix(f"{keys.root}/").rsplit(":", 1)
        rows, companions = await store.peek(name)
        for key, value in rows.items():
            if PATHS_START <= key < PATHS_END:
                state.add(branch, token, path_of(key), 0, value)
        _add_events(events, branch, token, companions)
    return state, events


def _add_events(told: Told, branch: str, token: str, companions: Iterable[Companion]) -> None:
    for each in companions:
        if each.key.startswith(COMPANION_KEYS):
            event = pb.JournalEvent.FromString(each.value)
            told.add(branch, token, event.key, each.order, event.payload)


def reflog_rows(told: Told) -> dict[str, bytes]:
    """Returns the rows of reflogs that must be rebuilt: of entries in outboxes, and of deletions, which have events."""
    found: dict[str, bytes] = {}
    branches = told.branches
    for name, entry in _entries(told):
        now = branches.get(name)
        if now is not None and entry.sequence > now.head_sequence:
            continue  # the next change has its number
        packed = encode_head_change(entry)
        found[RepositoryKeys.reflog_row(name, entry).decode()] = packed
        if entry.is_deletion:
            found[RepositoryKeys.deleted_row(name, entry).decode()] = packed
    return found


def _entries(told: Told) -> Iterator[tuple[str, HeadChange]]:
    for _, token, key, _, payload in told.events:
        if token or not payload:
            continue
        if key.startswith(DELETED):
            yield key.split("/")[1], decode_head_change(payload)
        elif key.startswith(BRANCHES):
            record = decode_branch(payload)
            for entry in () if record.is_deleted else record.outbox:
                yield key.removeprefix(BRANCHES), entry


async def contents_of(
    world: World, repository: Repository, told: Told, commits: Mapping[str, MetarangeId]
) -> dict[str, dict[str, bytes]]:
    """Returns the entries that each branch shows, by name and path."""
    found = {}
    committed = committed_over(world.blocks, world.plan.rows_mean)
    for name, branch in told.branches.items():
        listing = branch.compacted_metarange_id or commits[branch.commit_id]
        page = await committed.page(repository.storage_namespace, listing, "", _LIMIT)
        entries = dict(zip(*page, strict=True))
        for token in reversed(branch.tokens):
            for path, (_, payload) in told.rows.get((name, token.token_id), {}).items():
                entries[path] = payload
        found[name] = {path: each for path, each in entries.items() if not is_tombstone(each)}
    return found


async def listings_of(store: _Store, keys: RepositoryKeys) -> dict[str, MetarangeId]:
    """Returns the listing of each commit that a store has."""
    rows, _ = await store.peek(keys.commits.name)
    prefix = keys.commit("")
    return {
        key.removeprefix(prefix).decode(): decode_commit(value).metarange_id
        for key, value in rows.items()
        if key.startswith(prefix)
    }
