"""Builds every part of graveler once, in the order of their dependencies.

The application serves these parts; tests and the simulator use the same objects over other ports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from tarn.aio.task_set import TaskSet
from tarn.block.committed import Committed
from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.collection import LIMITS, CollectionLimits
from tarn.core.levels import ALL_FEATURES, FeatureGate
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.telemetry.operations import Operations
from tarn_graveler.branch.address_age import AddressAge
from tarn_graveler.branch.building import Builder, InlineBuilder
from tarn_graveler.branch.committing import Committing
from tarn_graveler.branch.compacted_listings import CompactedListings
from tarn_graveler.branch.compacting import Compacting
from tarn_graveler.branch.conditional import ConditionalStaging
from tarn_graveler.branch.copy_sources import CopySources
from tarn_graveler.branch.drop_list import DropList
from tarn_graveler.branch.expiring import BranchExpiring
from tarn_graveler.branch.head_moves import HeadMoves
from tarn_graveler.branch.kept_objects import KeptObjects
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN
from tarn_graveler.branch.online_deletion import OFFLINE, OnlineDeletion, OnlineSettings
from tarn_graveler.branch.part_resets import PartResets
from tarn_graveler.branch.publications import Publications
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.records import Branches
from tarn_graveler.branch.reflog_rows import ReflogLimits, ReflogRows
from tarn_graveler.branch.staged_branches import StagedBranches
from tarn_graveler.branch.staging import Staging
from tarn_graveler.branch.staging_statistics import StagingStatistics
from tarn_graveler.branch.token_cleanup import TokenCleanup
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.collection.expired import ExpiredCommits
from tarn_graveler.collection.fences import Fences
from tarn_graveler.collection.records import Collections
from tarn_graveler.handlers.page_keys import PageKeys
from tarn_graveler.history.ancestry import History
from tarn_graveler.history.annotating import Annotating
from tarn_graveler.history.commits import Commits
from tarn_graveler.history.diffing import Diffing
from tarn_graveler.history.path_changes import PathChanges
from tarn_graveler.history.path_records import PathRecords
from tarn_graveler.history.ref_names import RefNames
from tarn_graveler.history.reflog import Reflog
from tarn_graveler.history.resolving import Refs
from tarn_graveler.history.tags import Tags
from tarn_graveler.history.virtual_bases import MergeBases
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.quotas.admission import Admission
from tarn_graveler.quotas.records import QuotaDefaults, QuotaRecords
from tarn_graveler.quotas.usage import UsageCounter
from tarn_graveler.reads.coverage import ReadObjects
from tarn_graveler.reads.journal import ReadJournal
from tarn_graveler.repository.dumping import Dumping
from tarn_graveler.repository.purges import Purges
from tarn_graveler.repository.records import Repositories
from tarn_graveler.repository.recovering import Recovering
from tarn_graveler.repository.restoring import Restoring
from tarn_graveler.repository.settings import RepositorySettings
from tarn_graveler.tasks.quotas import TaskQuotas
from tarn_graveler.tasks.records import TaskRecords
from tarn_graveler.tasks.runner import TaskRunner
from tarn_graveler.uploads.abandoned import AbandonedUploads
from tarn_graveler.uploads.completion import Completion
from tarn_graveler.uploads.daily_partitions import DailyUploads
from tarn_graveler.uploads.links import Links
from tarn_graveler.uploads.state import Uploads
from tarn_graveler.versioning.merge_branches import MergeBranches
from tarn_graveler.versioning.merges import Merges
from tarn_graveler.versioning.range_reverts import RangeReverts

__all__ = ["Graveler", "GravelerSettings", "assemble"]


@dataclass(frozen=True, slots=True)
class GravelerSettings:
    """The settings of graveler.

    Attributes:
        installation_id: first part of every partition's name.
        drop_delay_seconds: the delay of rules 2 and 5; must be equal in all replicas.
        clock_skew_seconds: greatest difference between the wall clocks of two replicas. One replica
            registers a drop by its clock and another one drops by its own, so readers rely only on the
            drop delay less this.
        namespace_prefix: start of the storage namespace of repositories that name none; ends in `/`.
        cleanup_poll_seconds: pause between two looks for partitions to drop.
        reflog_retention_seconds: age at which an entry of a reflog expires.
        reflog_entries_max: entries of one branch name that are kept.
        leap_rows_min: hidden rows for which a listing makes a leap (`branch.leaps`); less in tests.
        collection: the times of garbage collections; shorter in tests, equal in all replicas.
        slow_operation_seconds: an operation on a branch that takes longer is logged with its phases.
        online: of the deletion of private blocks.
        keeps_reads: whether the replica keeps the journal of reads; must be equal in all replicas.
        quotas: the limits of repositories and users for which none were set.
    """

    installation_id: str
    drop_delay_seconds: float = 60.0
    cleanup_poll_seconds: float = 3.0
    clock_skew_seconds: float = 5.0
    namespace_prefix: str = "local://"
    reflog_retention_seconds: float = 90 * 86_400.0
    reflog_entries_max: int = 10_000
    leap_rows_min: int = LEAP_ROWS_MIN
    collection: CollectionLimits = LIMITS
    slow_operation_seconds: float = inf
    online: OnlineSettings = OFFLINE
    keeps_reads: bool = False
    quotas: QuotaDefaults = field(default_factory=QuotaDefaults)

    @property
    def reflog_limits(self) -> ReflogLimits:
        """How much of a reflog is kept."""
        return ReflogLimits(int(self.reflog_retention_seconds * 1_000_000), self.reflog_entries_max)

    @property
    def read_seconds_max(self) -> float:
        """How long after a token left its record all replicas can still read it, in seconds."""
        return max(self.drop_delay_seconds - self.clock_skew_seconds, self.drop_delay_seconds / 2)

    @property
    def shared(self) -> dict[str, str]:
        """Settings that must be equal in all replicas (`tarn.kv.agreement`), by configuration key.

        The clock skew is not among them: it is a constant of the version of Tarn.
        """
        return {
            "graveler.drop_delay": f"{round(self.drop_delay_seconds * 1000)}ms",
            "graveler.clock_skew": f"{round(self.clock_skew_seconds * 1000)}ms",
            "lifecycle.online.enabled": str(self.online.is_enabled).lower(),
            "lifecycle.reads.enabled": str(self.keeps_reads).lower(),
        }


@dataclass(frozen=True, slots=True)
class Graveler:
    """The parts of one replica.

    Attributes:
        journal: notes what is looked up; None: nothing does. The application adds it.
        features: refuses what the store's feature level does not allow (`Replica.features`).
    """

    repositories: Repositories
    branches: Branches
    commits: Commits
    committed: Committed
    tags: Tags
    names: RefNames
    refs: Refs
    reflog: Reflog
    layers: Layers
    reading: Reading
    iterators: Iterators
    staging: Staging
    conditional: ConditionalStaging
    cleaning: TokenCleanup
    committing: Committing
    moves: HeadMoves
    part_resets: PartResets
    compacting: Compacting
    staging_statistics: StagingStatistics
    merges: Merges
    publications: Publications
    diffing: Diffing
    history: History
    annotating: Annotating
    daily_uploads: DailyUploads
    uploads: Uploads
    page_keys: PageKeys
    settings: RepositorySettings
    task_runner: TaskRunner
    restoring: Restoring
    dumping: Dumping
    collections: Collections
    copy_sources: CopySources
    online: OnlineDeletion | None
    admission: Admission
    expired: ExpiredCommits
    purges: Purges
    expiring: BranchExpiring
    clock: Clock
    journal: ReadJournal | None = None
    features: FeatureGate = ALL_FEATURES

    @property
    def merge_branches(self) -> MergeBranches:
        """Makes what-if merges."""
        return MergeBranches(self.merges, self.branches, self.publications)

    @property
    def recovering(self) -> Recovering:
        """Reading of namespaces."""
        return Recovering(self.restoring.blocks)

    @property
    def links(self) -> Links:
        """Objects that clients write themselves."""
        return Links(self.uploads, self.restoring.blocks, self.clock)

    @property
    def abandoned_uploads(self) -> AbandonedUploads:
        """Aborts of uploads that are never completed."""
        blocks = self.restoring.blocks
        return AbandonedUploads(
            self.iterators, self.settings, self.daily_uploads, self.uploads, blocks, self.clock
        )

    @property
    def staged_branches(self) -> StagedBranches:
        """Branches with staged rows."""
        return StagedBranches(self.iterators, self.layers)

    @property
    def range_reverts(self) -> RangeReverts:
        """Reverts of ranges."""
        return RangeReverts(self.commits, self.merges, self.moves)


def assemble(
    *,
    settings: GravelerSettings,
    kv: Kv,
    blocks: BlockStore,
    committed: Committed,
    clock: Clock,
    ids: IdSource,
    tasks: TaskSet,
    builder: Builder | None = None,
    operations: Operations | None = None,
    fences: Fences | None = None,
    expired: ExpiredCommits | None = None,
) -> Graveler:
    """Builds one replica over its ports; owns none. `builder` builds listings; `fences` and `expired` are for tests."""
    keys = InstallationKeys(settings.installation_id)
    records = _records(settings, keys, kv, blocks, clock, ids, tasks, expired)
    branches, commits, cleaning = records.branches, records.commits, records.cleaning
    layers = _layers(settings, records, kv, committed)
    reading = _reading(records, settings, layers, blocks, clock)
    fences = fences or Fences(records.collections, records.expired, blocks, clock)
    builder, operations = builder or InlineBuilder(kv, committed), operations or Operations(clock)
    listings = CompactedListings(branches, layers, builder, fences)
    ending = records.publications, cleaning, clock, operations
    path_changes, bases = PathChanges(records.paths, commits, committed), MergeBases(commits)
    changes = UncommittedChanges(layers, committed)
    moves = HeadMoves(branches, layers, changes, *ending, records.expired)
    online = _online(settings, kv, branches, layers, records.collections, blocks, clock)
    iterators = Iterators(kv, keys, records.repositories, commits, layers, reading)
    return Graveler(
        repositories=records.repositories,
        branches=branches,
        commits=commits,
        committed=committed,
        tags=records.tags,
        names=records.names,
        refs=records.refs,
        reflog=records.reflog,
        layers=layers,
        reading=reading,
        iterators=iterators,
        staging=_staging(kv, branches, layers, tasks, records.age, online),
        conditional=ConditionalStaging(kv, branches, layers, records.age),
        cleaning=cleaning,
        committing=Committing(branches, commits, records.paths, layers, builder, fences, *ending),
        moves=moves,
        part_resets=PartResets(branches, layers, committed, builder, listings, cleaning, clock),
        compacting=Compacting(branches, layers, listings, cleaning, clock, tasks, operations),
        staging_statistics=StagingStatistics(kv, branches, layers, committed),
        merges=Merges(commits, committed, moves, clock, records.paths, bases, fences),
        publications=records.publications,
        diffing=Diffing(bases, layers, reading, committed, changes),
        history=History(commits, path_changes),
        annotating=Annotating(commits, committed, path_changes),
        daily_uploads=records.daily_uploads,
        uploads=_uploads(settings, kv, branches, layers, records.daily_uploads, clock, ids),
        page_keys=PageKeys(kv, keys, ids),
        task_runner=_task_runner(kv, keys, cleaning, records.repositories, clock, ids, tasks),
        settings=records.settings,
        dumping=Dumping(kv, records.repositories, records.settings),
        restoring=_restoring(records, committed, blocks),
        collections=records.collections,
        copy_sources=_copy_sources(records, kv, reading, layers, tasks, online),
        online=online,
        admission=_admission(records, kv, iterators, layers, committed, clock, tasks),
        expired=records.expired,
        purges=records.purges,
        expiring=_expiring(records, DropList(kv, keys, clock), clock),
        clock=clock,
    )


@dataclass(frozen=True, slots=True)
class _Records:
    """The parts that read and change the records of repositories, refs and commits."""

    repositories: Repositories
    names: RefNames
    rows: ReflogRows
    reflog: Reflog
    branches: Branches
    tags: Tags
    commits: Commits
    refs: Refs
    expired: ExpiredCommits
    settings: RepositorySettings
    quotas: QuotaRecords
    cleaning: TokenCleanup
    publications: Publications
    collections: Collections
    paths: PathRecords
    daily_uploads: DailyUploads
    age: AddressAge
    purges: Purges


def _records(
    settings: GravelerSettings,
    keys: InstallationKeys,
    kv: Kv,
    blocks: BlockStore,
    clock: Clock,
    ids: IdSource,
    tasks: TaskSet,
    expired: ExpiredCommits | None,
) -> _Records:
    delay, poll = settings.drop_delay_seconds, settings.cleanup_poll_seconds
    repositories = Repositories(kv, keys, clock, ids, settings.namespace_prefix)
    names = RefNames(kv, repositories, clock, ids)
    rows = ReflogRows(kv, keys, clock, settings.reflog_limits)
    reflog = Reflog(kv, repositories, rows, clock, settings.clock_skew_seconds)
    expired = expired or ExpiredCommits(kv, repositories, clock)
    reads, limits = ReadObjects(kv, blocks, clock, keys), settings.collection
    branches = Branches(kv, repositories, clock, ids, tasks, names, rows, expired)
    commits = Commits(kv, blocks, repositories)
    cleaning = TokenCleanup(kv, keys, repositories, clock, delay, poll, rows)
    return _Records(
        repositories=repositories,
        names=names,
        rows=rows,
        reflog=reflog,
        branches=branches,
        tags=Tags(kv, repositories, clock, names, expired),
        expired=expired,
        commits=commits,
        refs=Refs(kv, repositories, branches, commits, reflog),
        settings=RepositorySettings(kv, repositories, clock, ids),
        quotas=QuotaRecords(kv, keys, clock, settings.quotas),
        cleaning=cleaning,
        publications=Publications(branches, commits, blocks, clock),
        collections=Collections(kv, repositories, commits, expired, reads, clock, limits),
        paths=PathRecords(kv, repositories, tasks),
        daily_uploads=DailyUploads(kv, repositories, cleaning, clock, tasks),
        age=AddressAge(clock, settings.collection),
        purges=Purges(kv, keys, clock, settings.collection),
    )


def _reading(
    records: _Records,
    settings: GravelerSettings,
    layers: Layers,
    blocks: BlockStore,
    clock: Clock,
) -> Reading:
    branches, expired = records.branches, records.expired
    kept = KeptObjects(branches, layers, records.settings, blocks, clock)
    longest = settings.read_seconds_max
    return Reading(records.refs, branches, layers, expired, kept, clock, longest)


def _staging(
    kv: Kv,
    branches: Branches,
    layers: Layers,
    tasks: TaskSet,
    age: AddressAge,
    online: OnlineDeletion | None,
) -> Staging:
    return Staging(kv, branches, layers, tasks, age, None if online is None else online.rows)


def _admission(
    records: _Records,
    kv: Kv,
    iterators: Iterators,
    layers: Layers,
    committed: Committed,
    clock: Clock,
    tasks: TaskSet,
) -> Admission:
    usage = UsageCounter(kv, iterators, layers, committed, records.daily_uploads)
    return Admission(records.quotas, usage, clock, tasks)


def _online(
    settings: GravelerSettings,
    kv: Kv,
    branches: Branches,
    layers: Layers,
    collections: Collections,
    blocks: BlockStore,
    clock: Clock,
) -> OnlineDeletion | None:
    if not settings.online.is_enabled:
        return None
    return OnlineDeletion(kv, branches, layers, collections, blocks, clock, settings.online)


def _layers(settings: GravelerSettings, records: _Records, kv: Kv, committed: Committed) -> Layers:
    events, leap_rows_min = records.branches.events, settings.leap_rows_min
    return Layers(kv, records.repositories, records.commits, committed, events, leap_rows_min)


def _copy_sources(
    records: _Records,
    kv: Kv,
    reading: Reading,
    layers: Layers,
    tasks: TaskSet,
    online: OnlineDeletion | None,
) -> CopySources:
    is_noted = online is not None
    return CopySources(kv, records.refs, reading, layers, tasks, is_noted=is_noted)


def _restoring(records: _Records, committed: Committed, blocks: BlockStore) -> Restoring:
    return Restoring(
        records.repositories,
        records.settings,
        records.branches,
        records.tags,
        records.commits,
        records.rows,
        committed,
        blocks,
        records.expired,
    )


def _expiring(records: _Records, drops: DropList, clock: Clock) -> BranchExpiring:
    """Builds what deletes expired branches, and lets the cleaner hand it those that are due."""
    expiring = BranchExpiring(
        records.repositories,
        records.branches,
        records.names,
        records.settings,
        records.cleaning,
        drops,
        clock,
    )
    records.cleaning.look_at_branch = expiring.look
    return expiring


def _uploads(
    settings: GravelerSettings,
    kv: Kv,
    branches: Branches,
    layers: Layers,
    daily_uploads: DailyUploads,
    clock: Clock,
    ids: IdSource,
) -> Uploads:
    completion = Completion(kv, branches, layers, settings.clock_skew_seconds)
    return Uploads(kv, branches, daily_uploads, completion, clock, ids)


def _task_runner(
    kv: Kv,
    keys: InstallationKeys,
    cleaning: TokenCleanup,
    repositories: Repositories,
    clock: Clock,
    ids: IdSource,
    tasks: TaskSet,
) -> TaskRunner:
    """Builds the runner of tasks, and lets the cleaner hand it the tasks that are due."""
    drops = DropList(kv, keys, clock)
    records, quotas = TaskRecords(kv, clock), TaskQuotas(kv, clock)
    runner = TaskRunner(records, quotas, drops, repositories, clock, ids, tasks)
    cleaning.look_at_task = runner.look
    return runner
