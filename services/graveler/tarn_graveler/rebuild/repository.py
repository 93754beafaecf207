"""Rebuilds one repository: its records as its journal has them, and uncommitted changes as one listing of each branch.

Uncommitted layers are folded over the branch's commit, as a compaction does, and the branch gets an empty staging token
with a new name: a cleaner of the lost store that still runs drops only tokens that no record names.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from typing import Final

import pyarrow as pa

from tarn.block.committed import Committed
from tarn.block.port import BlockStore
from tarn.core.branch import Branch, Token, TokenKind
from tarn.core.clock import Clock, IdSource
from tarn.core.collection import NEVER, Collection
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.head_change import HeadChange
from tarn.core.ids import BranchId, MetarangeId, TokenId
from tarn.core.moments import iso_seconds
from tarn.journal.events import BRANCHES
from tarn.journal.replay import Record, StagedRows
from tarn.journal.replayed import BuiltListing, ReplayedJournal
from tarn.journal.source import JournalSource
from tarn.kv.collection_records import decode_collection, encode_collection
from tarn.kv.keys import InstallationKeys, RepositoryKeys
from tarn.kv.port import Kv, Partition, Row
from tarn.kv.record_kinds import KINDS, Place
from tarn.kv.records import (
    RefKind,
    RefName,
    Repository,
    decode_head_change,
    decode_ref_name,
    decode_tag,
    encode_branch,
    encode_head_change,
    encode_ref_name,
)
from tarn.snapshot.installation.looks import Looks, looks_of
from tarn.snapshot.installation.repository import collection_at_rest
from tarn_graveler.branch.building import BuildOrder, build_layers
from tarn_graveler.rebuild.commits import KnownCommits, rebuild_commits
from tarn_graveler.rebuild.listings import built_blocks
from tarn_graveler.rebuild.lost_branches import LostBranches
from tarn_graveler.rebuild.report import RepositoryReport
from tarn_graveler.rebuild.rows import write_rows
from tarn_graveler.rebuild.source import replayed

__all__ = ["HELD_UNTIL_US", "Rebuilder", "RebuiltRepository", "unreadable"]

HELD_UNTIL_US: Final = 4_102_444_800_000_000
"""Until when collections of a rebuilt repository are held: 2100, so until a person releases them."""
_COUNT_AHEAD: Final = 1_000
"""Counters of collections go on this far above the last drained ones: more than a lost store used since."""
_ROWS: Final = 1_000
_TAGS: Final = "tags/"
_NAMES: Final = "names/"
_PULLS: Final = RepositoryKeys.PULLS.decode()
_PLACES: Final = {Place.REFS, Place.COMMITS, Place.PULLS, Place.REFLOG}
_DAMAGE: Final = {Kind.CORRUPT, Kind.NOT_FOUND}


@dataclass(slots=True)
class RebuiltRepository:
    """What a rebuild made of a repository.

    Attributes:
        report: for people.
        source: that was read.
        looks: that its records need in the drop list (`tarn.snapshot.installation.looks`).
        newest_us: when a head last changed, as far as the records tell; Unix microseconds.
        lost_branches: those whose records cannot be read.
        blocks: paths of the files of listings that no commit has (`tarn_graveler.rebuild.listings`).
    """

    report: RepositoryReport
    source: JournalSource
    looks: Looks = field(default_factory=dict)
    newest_us: int = 0
    lost_branches: frozenset[BranchId] = frozenset()
    blocks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Rebuilder:
    """Rebuilds repositories into a store.

    Attributes:
        kv: gets the rows; a temporary one, which nobody reads meanwhile.
        keys: of the installation.
        blocks: has the journals, and gets listings.
        committed: builds listings.
        clock: times of new tokens.
        ids: names of new tokens.
        ready: by namespace, journals that were replayed already.
    """

    kv: Kv
    keys: InstallationKeys
    blocks: BlockStore
    committed: Committed
    clock: Clock
    ids: IdSource
    ready: Mapping[str, ReplayedJournal] = field(default_factory=dict)

    async def repository(self, repository: Repository) -> RebuiltRepository:
        """Rebuilds a repository; its own record is the caller's.

        Raises:
            TarnError: NOT_FOUND: it has no journal. CORRUPT: the base is damaged: nothing can be rebuilt. INVALID: its
                replayed journal was made of other files. Errors of the stores.
        """
        keys = self.keys.of_repository(repository.repository_id, repository.instance_uid)
        known = await rebuild_commits(self.kv, keys, repository, self.blocks)
        return await _Work(self, repository, keys, known).run()

    def new_token(self, before: Token) -> Token:
        """Returns an empty staging token with a new name."""
        token_id = TokenId(self.ids.uuid7().hex())
        return Token(token_id, TokenKind.PLAIN, before.buckets, self.clock.now_us())


@dataclass(slots=True)
class _Work:
    """The rebuild of one repository."""

    tools: Rebuilder
    repository: Repository
    keys: RepositoryKeys
    known: KnownCommits
    report: RepositoryReport = field(init=False)
    branches: dict[BranchId, Branch] = field(default_factory=dict)
    entries: dict[BranchId, dict[bytes, HeadChange]] = field(default_factory=dict)
    with_reflog: set[BranchId] = field(default_factory=set)
    names: dict[str, bytes] = field(default_factory=dict)
    owners: dict[str, RefName] = field(default_factory=dict)
    collection: Collection = field(default_factory=lambda: _held(NEVER))
    lost: LostBranches = field(default_factory=LostBranches)

    def __post_init__(self) -> None:
        name, namespace = self.repository.repository_id, self.repository.storage_namespace
        self.report = RepositoryReport(name, namespace, commits=len(self.known.intact))

    async def run(self) -> RebuiltRepository:
        self._tell_commits()
        namespace = self.repository.storage_namespace
        ready = self.tools.ready.get(namespace)
        async with replayed(self.tools.blocks, namespace, self._take, ready) as found:
            source = found.source
            self.report.epoch = source.epoch.number
            self.report.drained_until_us = found.report.drained_until_us
            self.report.files, self.report.events = found.report.files, found.report.events
            self.report.problems += found.report.lines()
            results = iter(found.results)
            first = await self._write_records(results)
            self._tell_lost(found.unreadable)
            await self._take_listings(found.listings)
            await self._fold_all(
                results if first is None else chain([first], results), {*found.listings}
            )
        await self._write_names()
        await self._write_branches()
        await self._write_outboxes()
        self._tell_younger()
        self.report.branches = len(self.branches)
        looks = looks_of(self.keys, self.repository.repository_id, self.branches, self.with_reflog)
        newest_us = max((each.head_time_us for each in self.branches.values()), default=0)
        lost, blocks = frozenset(self.lost.why), await self._built_blocks()
        return RebuiltRepository(self.report, source, looks, newest_us, lost, blocks)

    # ---- records

    async def _write_records(self, results: Iterator[Record | StagedRows]) -> StagedRows | None:
        """Writes all records but those of branches and names; returns the first uncommitted rows."""
        rows: dict[Place, list[Row]] = {place: [] for place in self._partitions()}
        first = None
        for each in results:
            if isinstance(each, StagedRows):
                first = each
                break
            try:
                place, made = self._rows_to_write(each)
            except TarnError as error:
                self.report.problems.append(unreadable(each.key, error))
                continue
            if place is not None:
                rows[place] += made
                if len(rows[place]) >= _ROWS:
                    await self._flush(rows)
        rows[Place.REFS].append((RepositoryKeys.COLLECTION, encode_collection(self.collection)))
        await self._flush(rows)
        return first

    def _rows_to_write(self, record: Record) -> tuple[Place | None, list[Row]]:
        """Notes a record, or returns which rows it makes, and where.

        Records come by their keys, so those of branches before the entries of reflogs.

        Raises:
            TarnError: CORRUPT: it cannot be read.
        """
        key = record.key.encode()
        place = _place_of(key)
        if place is Place.REFLOG:
            branch_id = BranchId(record.key.split("/")[1])
            return place, self._entry_rows(branch_id, decode_head_change(record.payload))
        if place is None:
            text = f"record {record.key!r} is of a kind that this release does not know"
            self.report.problems.append(text)
        elif record.key.startswith(BRANCHES):
            self._add_branch(record)
        elif record.key.startswith(_NAMES):
            name = record.key.removeprefix(_NAMES)
            decode_ref_name(record.payload)
            self.names[name] = record.payload
        elif key == RepositoryKeys.COLLECTION:
            self.collection = _held(decode_collection(record.payload))
        elif not record.key.startswith(_TAGS) or self._keeps_tag(record):
            if record.key.startswith(_PULLS):
                self.lost.take_pull(record.payload)
            return place, [(key, record.payload)]
        return None, []

    def _partitions(self) -> dict[Place, Partition]:
        return {
            Place.REFS: self.keys.refs,
            Place.COMMITS: self.keys.commits,
            Place.PULLS: self.keys.pulls,
            Place.REFLOG: self.keys.reflog,
        }

    async def _flush(self, rows: dict[Place, list[Row]]) -> None:
        partitions = self._partitions()
        for place, some in rows.items():
            await write_rows(self.tools.kv, partitions[place], some)
            some.clear()

    def _add_branch(self, record: Record) -> None:
        name = BranchId(record.key.removeprefix(BRANCHES))
        branch = record.branch
        if record.problem:
            self.lost.why[name] = record.problem
            return
        if branch is None:  # its creation, or the deletion of its repository, was not finished
            return
        if not self.known.has(branch.commit_id):
            self.report.problems.append(
                f"branch {name} is lost: its commit {branch.commit_id}, or an ancestor, is not in the bucket"
            )
            return
        self.branches[name] = branch
        self.owners[name] = RefName(RefKind.BRANCH, branch.incarnation)

    def _keeps_tag(self, record: Record) -> bool:
        name, tag = record.key.removeprefix(_TAGS), decode_tag(record.payload)
        if tag.is_pending:
            return False
        if not self.known.has(tag.commit_id):
            self.report.problems.append(
                f"tag {name} is lost: its commit {tag.commit_id}, or an ancestor, is not in the bucket"
            )
            return False
        if name in self.owners:
            self.report.problems.append(
                f"tag {name} at {tag.commit_id} is left out: there is a branch of this name"
            )
            return False
        self.owners[name] = RefName(RefKind.TAG, tag.nonce)
        self.report.tags += 1
        return True

    async def _write_names(self) -> None:
        """Writes who owns each name. Branches and tags decide; a record of the same owner says since when."""
        for name, owner in self.owners.items():
            stored = self.names.get(name)
            if stored is None or decode_ref_name(stored) != owner:
                self.names[name] = encode_ref_name(owner)
        # Those of refs that are gone stay: such a name is free.
        rows = [(RepositoryKeys.name(name), value) for name, value in self.names.items()]
        await write_rows(self.tools.kv, self.keys.refs, rows)

    async def _write_branches(self) -> None:
        rows = [
            (RepositoryKeys.branch(name), encode_branch(each))
            for name, each in self.branches.items()
        ]
        await write_rows(self.tools.kv, self.keys.refs, rows)
        default = self.repository.default_branch
        if default not in self.branches:
            self.report.problems.append(
                f"the default branch {default} is not among the rebuilt branches"
            )

    # ---- uncommitted changes

    async def _take_listings(self, listings: Mapping[str, BuiltListing]) -> None:
        """Gives branches the listings that a job has folded already."""
        for each in listings.values():
            name = BranchId(each.branch_id)
            if name not in self.branches:
                continue
            branch = self.branches[name]
            head = await self.known.listing_of(branch.commit_id)
            self.report.staged += each.rows
            listing = None
            try:
                if each.metarange_id is None:
                    raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, each.problem)
                listing = MetarangeId(each.metarange_id)
                await self.tools.committed.metarange(self.repository.storage_namespace, listing)
            except TarnError as error:
                self._lost(name, error)
                listing = None
            self.branches[name] = self._rested(branch, head, listing)

    async def _fold_all(self, results: Iterator[Record | StagedRows], folded: set[str]) -> None:
        """Folds the uncommitted rows of each branch, and gives all branches empty tokens; but those in `folded`."""
        staged = (each for each in results if isinstance(each, StagedRows))
        for name, rows in groupby(staged, key=lambda each: BranchId(each.branch_id)):
            if name in self.branches:
                folded.add(name)
                self.branches[name] = await self._folded(name, self.branches[name], rows)
        for name in self.branches.keys() - folded:
            self.branches[name] = await self._folded(name, self.branches[name], iter(()))

    async def _folded(self, name: BranchId, branch: Branch, rows: Iterator[StagedRows]) -> Branch:
        head = await self.known.listing_of(branch.commit_id)
        base = branch.compacted_metarange_id or head
        order = BuildOrder(
            self.repository.storage_namespace,
            base,
            (),
            head=head if base != head else None,
            counts_changes=False,
            finely=True,
            commits=self.keys.commits,
        )
        listing: MetarangeId | None = base
        first = next(rows, None)
        try:
            if first is None:
                await self.tools.committed.metarange(order.namespace, base)
            else:
                layer = self._layer(chain([first], rows))
                built = await build_layers(self.tools.kv, self.tools.committed, order, [layer])
                listing = built.metarange_id
        except TarnError as error:
            self._lost(name, error)
            listing = None
        return self._rested(branch, head, listing)

    def _lost(self, name: BranchId, error: TarnError) -> None:
        """Tells that uncommitted changes are lost.

        Raises:
            TarnError: the error, if it does not say that.
        """
        if error.kind not in _DAMAGE:
            raise error
        self.report.problems.append(
            f"uncommitted changes of branch {name} are lost: {error.message}"
        )

    def _rested(self, branch: Branch, head: MetarangeId, listing: MetarangeId | None) -> Branch:
        """Returns a branch without layers, over a listing."""
        return replace(
            branch,
            staging=self.tools.new_token(branch.staging),
            sealed=(),
            compacted_metarange_id=None if listing == head else listing,
            compaction_start_time_us=0,
            pins=(),
        )

    async def _built_blocks(self) -> frozenset[str]:
        listings = [
            (each.compacted_metarange_id, await self.known.listing_of(each.commit_id))
            for each in self.branches.values()
            if each.compacted_metarange_id is not None
        ]
        namespace = self.repository.storage_namespace
        return await built_blocks(self.tools.committed, namespace, listings)

    async def _layer(self, rows: Iterator[StagedRows]) -> AsyncIterator[pa.RecordBatch]:
        for each in rows:
            self.report.staged += len(each.paths)
            columns = [each.paths, each.payloads]
            yield pa.record_batch(columns, names=["path", "value"])

    # ---- reflogs

    def _take(self, branch: str, entries: tuple[HeadChange, ...]) -> None:
        found = self.entries.setdefault(BranchId(branch), {})
        found.update((each.entry_id, each) for each in entries)

    def _entry_rows(self, name: BranchId, entry: HeadChange) -> list[Row]:
        """The rows of an entry; none if it is later than the rebuilt branch, whose next change has its number."""
        branch = self.branches.get(name)
        if branch is not None and entry.sequence > branch.head_sequence:
            return []
        self.with_reflog.add(name)
        keys = [RepositoryKeys.reflog_row(name, entry)]
        if entry.is_deletion:
            keys.append(RepositoryKeys.deleted_row(name, entry))
        return [(key, encode_head_change(entry)) for key in keys]

    async def _write_outboxes(self) -> None:
        """Writes the entries that records had in their outboxes in this epoch, also of branches that are deleted."""
        rows: list[Row] = []
        for name, entries in self.entries.items():
            for entry in entries.values():
                rows += self._entry_rows(name, entry)
        await write_rows(self.tools.kv, self.keys.reflog, rows)

    # ---- telling

    def _tell_commits(self) -> None:
        damaged = self.known.damaged
        self.report.problems += [f"{path} cannot be used" for path in damaged]
        if self.known.incomplete:
            text = f"{self.known.incomplete} commits are left out, because ancestors are not in the bucket"
            self.report.problems.append(text)

    def _tell_lost(self, unreadable: Mapping[str, int]) -> None:
        self.report.problems += self.lost.told(self.known)
        for name, count in sorted(unreadable.items()):
            if BranchId(name) not in self.lost.why:
                text = f"{count} former records of branch {name} cannot be read: entries of its reflog may be missing"
                self.report.problems.append(text)

    def _tell_younger(self) -> None:
        """Tells of commits that became heads after the last drained change of their branch."""
        for name, notes in sorted(self.known.notes.items()):
            branch = self.branches.get(name)
            after_us = self.report.drained_until_us if branch is None else branch.head_time_us
            for time_us, commit_id in sorted(notes):
                if time_us > max(after_us, self.report.drained_until_us) and self.known.has(
                    commit_id
                ):
                    text = f"commit {commit_id} became the head of branch {name} at {iso_seconds(time_us)}"
                    self.report.younger.append(text)


def _place_of(key: bytes) -> Place | None:
    """The place of a repository's record; None: this release does not know the kind."""
    for kind in KINDS:
        # Of reflogs a base has all rows, although only those of deletions are journaled.
        is_told = kind.is_journaled or kind.place is Place.REFLOG
        if kind.place in _PLACES and is_told and kind.covers(key):
            return kind.place
    return None


def _held(found: Collection) -> Collection:
    """The collection record without a run, held, with counters above all that the lost store used."""
    return replace(
        collection_at_rest(found),
        hold_until_us=HELD_UNTIL_US,
        sweep_count=found.sweep_count + _COUNT_AHEAD,
        fence_count=found.fence_count + _COUNT_AHEAD,
    )


def unreadable(key: str, error: TarnError) -> str:
    """What a report says of a record that cannot be read, and is left out.

    Raises:
        TarnError: the error, if it is another one.
    """
    if error.kind is not Kind.CORRUPT:
        raise error
    return f"record {key!r} cannot be read, and is left out: {error.message}"
