"""Builds every part of graveler once, floor by floor: each part needs only those of earlier steps of `assemble`.

The application serves these parts; tests and the simulator use the same objects over other ports.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path

from tarn.aio.task_set import TaskSet
from tarn.block.committed import Committed
from tarn.block.local.reserve import DiskReserve
from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.collection import LIMITS, CollectionLimits
from tarn.core.levels import ALL_FEATURES, Feature, FeatureGate
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.kv.record_events import JournaledKv
from tarn.telemetry.operations import Operations
from tarn_graveler.branch.building import Builder, InlineBuilder
from tarn_graveler.branch.committing import Committing
from tarn_graveler.branch.conditional import ConditionalStaging
from tarn_graveler.branch.copy_sources import CopySources
from tarn_graveler.branch.head_moves import HeadMoves
from tarn_graveler.branch.kept_objects import KeptObjects
from tarn_graveler.branch.layers import Layers
from tarn_graveler.branch.leaps import LEAP_ROWS_MIN
from tarn_graveler.branch.object_events import ObjectEvents
from tarn_graveler.branch.private_rows import PrivateRows, ReplacedRows
from tarn_graveler.branch.publications import Publications
from tarn_graveler.branch.reading import Reading
from tarn_graveler.branch.staging import Staging
from tarn_graveler.branch.uncommitted import UncommittedChanges
from tarn_graveler.collection.cleaner import Cleaner
from tarn_graveler.collection.history_pages import HistoryPages
from tarn_graveler.collection.listings_in_use import ListingsInUse
from tarn_graveler.collection.online_deletion import OFFLINE, OnlineDeletion, OnlineSettings
from tarn_graveler.collection.roots import Roots
from tarn_graveler.collection.staged_rows import StagedRows
from tarn_graveler.compaction.compacted_listings import CompactedListings
from tarn_graveler.compaction.compacting import Compacting
from tarn_graveler.compaction.part_resets import PartResets
from tarn_graveler.compaction.staged_branches import StagedBranches
from tarn_graveler.compaction.staging_statistics import StagingStatistics
from tarn_graveler.graph.path_changes import PathChanges
from tarn_graveler.graph.virtual_bases import MergeBases
from tarn_graveler.guards.address_age import AddressAge
from tarn_graveler.guards.drops import DropDelay, Drops
from tarn_graveler.guards.fences import Fences
from tarn_graveler.iterators.opening import Iterators
from tarn_graveler.journal.draining import Drain, DrainSettings
from tarn_graveler.journal.pressure import Pressure
from tarn_graveler.reads.coverage import ReadObjects
from tarn_graveler.reads.journal import ReadJournal
from tarn_graveler.records.branches import Branches
from tarn_graveler.records.bucket_views import BucketViews
from tarn_graveler.records.collections import CollectionRecords
from tarn_graveler.records.commits import Commits
from tarn_graveler.records.drop_list import DropList
from tarn_graveler.records.erased import ErasedAddresses
from tarn_graveler.records.expired import ExpiredCommits
from tarn_graveler.records.fresh_reads import FreshReads
from tarn_graveler.records.page_keys import PageKeys
from tarn_graveler.records.path_records import PathRecords
from tarn_graveler.records.pull_requests import PullRequests
from tarn_graveler.records.purges import Purges
from tarn_graveler.records.quotas import QuotaDefaults, QuotaRecords
from tarn_graveler.records.ref_names import RefNames
from tarn_graveler.records.reflog_rows import ReflogLimits, ReflogRows
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.request_counts import RequestCountRecords
from tarn_graveler.records.settings import RepositorySettings
from tarn_graveler.records.tags import Tags
from tarn_graveler.records.tasks import TaskRecords
from tarn_graveler.refs.reflog import Reflog
from tarn_graveler.refs.resolving import Refs
from tarn_graveler.repository.dumping import Dumping
from tarn_graveler.repository.expiring_branches import BranchExpiring
from tarn_graveler.repository.recovering import Recovering
from tarn_graveler.repository.restoring import Restoring
from tarn_graveler.tasks.quotas import TaskQuotas
from tarn_graveler.tasks.runner import TaskRunner
from tarn_graveler.uploads.abandoned import AbandonedUploads
from tarn_graveler.uploads.completion import Completion
from tarn_graveler.uploads.daily_partitions import DailyUploads
from tarn_graveler.uploads.links import Links
from tarn_graveler.uploads.state import Uploads
from tarn_graveler.usage.admission import Admission
from tarn_graveler.usage.usage import UsageCounter
from tarn_graveler.versioning.merge_branches import MergeBranches
from tarn_graveler.versioning.merges import Merges
from tarn_graveler.versioning.pull_merges import PullMerges
from tarn_graveler.versioning.range_reverts import RangeReverts
from tarn_graveler.views.annotating import Annotating
from tarn_graveler.views.diffing import Diffing
from tarn_graveler.views.log import History

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
        keeps_events: whether mutations leave events, which are drained to the bucket; must be equal in all replicas.
        drain_poll_seconds: pause between two rounds of the drain.
        journal_namespace: where the journal of what belongs to no repository is; empty: a place of its own below
            `namespace_prefix`.
        journal_lag_seconds_max: from which lag of its journal on a repository takes no writes.
        journal_undrained_max: bytes of undrained events from which on repositories that are behind take no writes.
        store_folder: of the embedded store; None: it is another one, whose disk is not looked at.
        journal_reserve_bytes: what writes leave free on the disk of `store_folder`.
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
    keeps_events: bool = False
    drain_poll_seconds: float = 10.0
    journal_namespace: str = ""
    journal_lag_seconds_max: float = 3_600.0
    journal_undrained_max: int = 4 << 30
    store_folder: Path | None = None
    journal_reserve_bytes: int = 0

    @property
    def drain(self) -> DrainSettings:
        """Those of the drain of the journal."""
        own = f"{self.namespace_prefix}tarn-journal-{self.installation_id}"
        namespace = self.journal_namespace or own
        reserve = None
        if self.store_folder is not None:
            setting = "journal.reserve"
            reserve = DiskReserve.of_folder(self.store_folder, self.journal_reserve_bytes, setting)
        return DrainSettings(
            namespace,
            self.drain_poll_seconds,
            self.journal_lag_seconds_max,
            self.journal_undrained_max,
            reserve,
        )

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
            "journal.enabled": str(self.keeps_events).lower(),
        }


@dataclass(frozen=True, slots=True)
class Graveler:
    """The parts of one replica, floor by floor.

    Attributes:
        drain: of the journal of mutations; None: it is off.
        journal: notes what is looked up; None: nothing does. The application adds it.
        features: refuses what the store's feature level does not allow (`Replica.features`).
    """

    clock: Clock
    committed: Committed
    collection_limits: CollectionLimits
    # --- records
    repositories: Repositories
    bucket_views: BucketViews
    settings: RepositorySettings
    names: RefNames
    branches: Branches
    commits: Commits
    tags: Tags
    expired: ExpiredCommits
    erased: ErasedAddresses
    collections: CollectionRecords
    purges: Purges
    page_keys: PageKeys
    pulls: PullRequests
    reads: ReadObjects
    # --- graph and refs
    history: History
    reflog: Reflog
    refs: Refs
    # --- guards and branches
    drops: Drops
    layers: Layers
    reading: Reading
    copy_sources: CopySources
    staging: Staging
    conditional: ConditionalStaging
    publications: Publications
    committing: Committing
    moves: HeadMoves
    # --- compaction
    compacting: Compacting
    part_resets: PartResets
    staging_statistics: StagingStatistics
    # --- iterators, views, uploads, usage, versioning
    iterators: Iterators
    staged_branches: StagedBranches
    diffing: Diffing
    annotating: Annotating
    daily_uploads: DailyUploads
    uploads: Uploads
    links: Links
    abandoned_uploads: AbandonedUploads
    request_counts: RequestCountRecords
    admission: Admission
    merges: Merges
    merge_branches: MergeBranches
    range_reverts: RangeReverts
    pull_merges: PullMerges
    # --- the life of repositories and branches, and collection
    dumping: Dumping
    restoring: Restoring
    recovering: Recovering
    expiring: BranchExpiring
    roots: Roots
    history_pages: HistoryPages
    listings_in_use: ListingsInUse
    staged_rows: StagedRows
    online: OnlineDeletion | None
    # --- tasks
    task_runner: TaskRunner
    cleaner: Cleaner
    drain: Drain | None = None
    journal: ReadJournal | None = None
    features: FeatureGate = ALL_FEATURES

    def gateways_prove(self) -> bool:
        """Whether all gateways that may run prove who they are; those of release 0.9.0 do not."""
        return self.online is not None or self.features.allows(Feature.ISSUED_ADDRESSES)


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
    features: FeatureGate = ALL_FEATURES,
) -> Graveler:
    """Builds one replica over its ports; owns none. `builder` builds listings; `fences` and `expired` are for tests."""
    parts = _Parts(settings, kv, blocks, committed, clock, ids, tasks, features)
    parts.add_records(expired)
    parts.add_journal_and_graph()
    parts.add_refs_and_guards(fences)
    parts.add_branches(builder, operations or Operations(clock))
    parts.add_views_and_uploads()
    parts.add_versioning()
    parts.add_life_of_repositories()
    parts.add_tasks()
    made = {
        each.name: getattr(parts, each.name) for each in fields(Graveler) if each.name != "journal"
    }
    return Graveler(**made)


class _Parts:
    """The parts of one replica while they are built, a step for each floor; a step needs those before it.

    The attributes with the name of a field of `Graveler` become that field; the others serve only other parts.
    """

    def __init__(
        self,
        settings: GravelerSettings,
        kv: Kv,
        blocks: BlockStore,
        committed: Committed,
        clock: Clock,
        ids: IdSource,
        tasks: TaskSet,
        features: FeatureGate,
    ) -> None:
        self.config = settings
        self.keys = InstallationKeys(settings.installation_id)
        self.pressure = Pressure(clock, settings.journal_undrained_max)
        # The drain's own writes are no changes of records.
        self.store = self.kv = kv
        if settings.keeps_events:
            self.kv = JournaledKv(
                kv, settings.installation_id, clock, ids, features, self.pressure.add
            )
        self.blocks = blocks
        self.committed = committed
        self.clock = clock
        self.ids = ids
        self.background = tasks
        self.features = features
        self.collection_limits = settings.collection

    def add_records(self, expired: ExpiredCommits | None) -> None:
        kv, keys, clock, ids = self.kv, self.keys, self.clock, self.ids
        repositories = Repositories(kv, keys, clock, ids, self.config.namespace_prefix)
        self.repositories = repositories
        self.settings = RepositorySettings(kv, repositories, clock, ids)
        self.names = RefNames(kv, repositories, clock, ids)
        self.drop_list = DropList(kv, keys, clock)
        self.reflog_rows = ReflogRows(kv, self.drop_list, clock, self.config.reflog_limits)
        self.expired = expired or ExpiredCommits(kv, repositories, clock)
        fresh = FreshReads(kv, self.background)
        self.bucket_views = BucketViews(kv, keys, repositories, clock, ids, fresh)
        self.branches = Branches(
            kv, repositories, clock, ids, fresh, self.names, self.reflog_rows, self.expired
        )
        self.commits = Commits(kv, self.blocks, repositories)
        self.tags = Tags(kv, repositories, clock, self.names, self.expired)
        self.collections = CollectionRecords(kv, repositories)
        self.erased = ErasedAddresses(kv, repositories, clock, self.collection_limits)
        self.purges = Purges(kv, keys, clock, self.collection_limits)
        self.page_keys = PageKeys(kv, keys, ids)
        self.paths = PathRecords(kv, repositories, self.background)
        self.pulls = PullRequests(kv, repositories, clock, ids)
        self.reads = ReadObjects(kv, self.blocks, clock, keys)

    def add_journal_and_graph(self) -> None:
        config, store = self.config, self.store
        self.drain = (
            Drain(
                store,
                self.keys,
                self.blocks,
                self.clock,
                self.ids,
                self.features,
                config.drain,
                self.pressure,
            )
            if config.keeps_events
            else None
        )
        self.bases = MergeBases(self.commits)
        self.path_changes = PathChanges(self.paths, self.commits, self.committed)
        self.history = History(self.commits, self.path_changes)

    def add_refs_and_guards(self, fences: Fences | None) -> None:
        clock, config = self.clock, self.config
        self.reflog = Reflog(
            self.kv, self.repositories, self.reflog_rows, clock, config.clock_skew_seconds
        )
        self.refs = Refs(self.kv, self.repositories, self.branches, self.commits, self.reflog)
        self.fences = fences or Fences(self.collections, self.expired, self.blocks, clock)
        self.delay = DropDelay(config.drop_delay_seconds)
        self.age = AddressAge(clock, self.collection_limits)
        self.drops = Drops(
            self.drop_list, self.repositories, clock, self.delay, has_journal=config.keeps_events
        )
        self.object_events = ObjectEvents(clock, self.ids, self.features, is_on=config.keeps_events)

    def add_branches(self, builder: Builder | None, operations: Operations) -> None:
        kv, clock, config, tasks = self.kv, self.clock, self.config, self.background
        branches, committed = self.branches, self.committed
        builder = builder or InlineBuilder(kv, committed)
        layers = self.layers = Layers(
            kv, self.repositories, self.commits, committed, branches.events, config.leap_rows_min
        )
        self.replaced = ReplacedRows(clock, config.online.delay_seconds)
        private = self.private = (
            PrivateRows(self.replaced.offer) if config.online.is_enabled else None
        )
        self.publications = Publications(branches, self.commits, self.blocks, clock)
        self.changes = UncommittedChanges(layers, committed)
        kept = KeptObjects(branches, layers, self.settings, self.blocks, clock)
        self.reading = Reading(
            self.refs, branches, layers, self.expired, kept, clock, config.read_seconds_max
        )
        self.staging = Staging(
            kv, branches, layers, tasks, self.age, private, events=self.object_events
        )
        self.conditional = ConditionalStaging(kv, branches, layers, self.age, self.object_events)
        self.copy_sources = CopySources(
            kv, self.refs, self.reading, layers, tasks, is_noted=private is not None
        )
        self.committing = Committing(
            branches,
            self.commits,
            self.paths,
            layers,
            builder,
            self.fences,
            self.publications,
            self.drops,
            clock,
            operations,
        )
        self.moves = HeadMoves(
            branches,
            layers,
            self.changes,
            self.publications,
            self.drops,
            clock,
            operations,
            self.expired,
        )
        listings = CompactedListings(branches, layers, builder, self.fences)
        self.compacting = Compacting(
            branches, layers, listings, self.drops, clock, tasks, operations
        )
        self.part_resets = PartResets(
            branches, layers, committed, builder, listings, self.drops, clock
        )
        self.staging_statistics = StagingStatistics(kv, branches, layers, committed)

    def add_views_and_uploads(self) -> None:
        kv, keys, clock, config = self.kv, self.keys, self.clock, self.config
        branches, layers, events = self.branches, self.layers, self.object_events
        self.iterators = Iterators(kv, keys, self.repositories, self.commits, layers, self.reading)
        self.staged_branches = StagedBranches(self.iterators, layers)
        self.annotating = Annotating(self.commits, self.committed, self.path_changes)
        daily = DailyUploads(kv, self.repositories, self.drops, clock, self.background)
        self.daily_uploads = daily
        completion = Completion(kv, branches, layers, config.clock_skew_seconds, events)
        self.uploads = Uploads(kv, branches, daily, completion, clock, self.ids)
        self.links = Links(self.uploads, self.blocks, clock)
        self.abandoned_uploads = AbandonedUploads(
            self.iterators, self.settings, daily, self.uploads, self.blocks, clock
        )
        usage = UsageCounter(
            kv, self.iterators, layers, self.committed, daily, has_journal=config.keeps_events
        )
        self.request_counts = RequestCountRecords(kv, keys, clock, self.features)
        quotas = QuotaRecords(kv, keys, clock, config.quotas)
        self.admission = Admission(quotas, usage, clock, self.background, self.drain)

    def add_versioning(self) -> None:
        clock, commits, moves = self.clock, self.commits, self.moves
        merges = self.merges = Merges(
            commits, self.committed, moves, clock, self.paths, self.bases, self.fences
        )
        self.diffing = Diffing(
            self.bases, self.layers, self.reading, self.committed, self.changes, clock
        )
        self.merge_branches = MergeBranches(merges, self.branches, self.publications)
        self.range_reverts = RangeReverts(commits, merges, moves)
        self.pull_merges = PullMerges(
            self.pulls,
            self.settings,
            self.branches,
            commits,
            merges,
            moves,
            self.diffing,
            clock,
            self.ids,
        )

    def add_life_of_repositories(self) -> None:
        kv, repositories, clock = self.kv, self.repositories, self.clock
        self.dumping = Dumping(kv, repositories, self.settings)
        self.restoring = Restoring(
            repositories,
            self.settings,
            self.branches,
            self.tags,
            self.commits,
            self.reflog_rows,
            self.committed,
            self.blocks,
            self.expired,
            self.drain,
        )
        self.recovering = Recovering(self.blocks)
        self.expiring = BranchExpiring(
            repositories,
            self.branches,
            self.names,
            self.settings,
            self.drops,
            self.drop_list,
            clock,
        )
        self.roots = Roots(kv, repositories, self.expired, self.reads, clock)
        self.history_pages = HistoryPages(kv, repositories, self.expired)
        self.listings_in_use = ListingsInUse(kv, repositories, self.commits)
        self.staged_rows = StagedRows(kv, repositories)
        self.online = None
        if self.private is not None:
            self.online = OnlineDeletion(
                kv,
                self.branches,
                self.layers,
                self.collections,
                self.replaced,
                self.blocks,
                clock,
                self.config.online,
                self.drain,
            )

    def add_tasks(self) -> None:
        kv, clock = self.kv, self.clock
        self.task_runner = TaskRunner(
            TaskRecords(kv, clock),
            TaskQuotas(kv, clock),
            self.drop_list,
            self.repositories,
            clock,
            self.ids,
            self.background,
        )
        self.cleaner = Cleaner(
            kv,
            self.keys,
            self.drop_list,
            self.reflog_rows,
            clock,
            self.delay,
            self.config.cleanup_poll_seconds,
            self.expiring.look,
            self.task_runner.look,
            self.drain,
        )
