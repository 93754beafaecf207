"""Builds every part of graveler once, floor by floor: each part needs only those above it in `assemble`.

The application serves these parts; tests and the simulator use the same objects over other ports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    """Builds one replica over its ports; owns none. `builder` builds listings; `fences` and `expired` are for tests.

    One long function: it lists all parts in the order of the floors, and each gets only parts above it in the list.
    """
    # The drain's own writes are no changes of records.
    keys, limits, store, pressure = (
        InstallationKeys(settings.installation_id),
        settings.collection,
        kv,
        Pressure(clock, settings.journal_undrained_max),
    )
    if settings.keeps_events:
        kv = JournaledKv(kv, settings.installation_id, clock, ids, features, pressure.add)
    builder, operations = builder or InlineBuilder(kv, committed), operations or Operations(clock)
    # --- records
    repositories = Repositories(kv, keys, clock, ids, settings.namespace_prefix)
    repository_settings = RepositorySettings(kv, repositories, clock, ids)
    names = RefNames(kv, repositories, clock, ids)
    drop_list = DropList(kv, keys, clock)
    reflog_rows = ReflogRows(kv, drop_list, clock, settings.reflog_limits)
    expired = expired or ExpiredCommits(kv, repositories, clock)
    fresh = FreshReads(kv, tasks)
    branches = Branches(kv, repositories, clock, ids, fresh, names, reflog_rows, expired)
    commits = Commits(kv, blocks, repositories)
    tags = Tags(kv, repositories, clock, names, expired)
    collections = CollectionRecords(kv, repositories)
    paths, pulls, reads = (
        PathRecords(kv, repositories, tasks),
        PullRequests(kv, repositories, clock, ids),
        ReadObjects(kv, blocks, clock, keys),
    )
    # --- journal and graph
    drain = (
        Drain(store, keys, blocks, clock, ids, features, settings.drain, pressure)
        if settings.keeps_events
        else None
    )
    bases, path_changes = MergeBases(commits), PathChanges(paths, commits, committed)
    # --- refs
    reflog = Reflog(kv, repositories, reflog_rows, clock, settings.clock_skew_seconds)
    refs = Refs(kv, repositories, branches, commits, reflog)
    # --- guards
    fences = fences or Fences(collections, expired, blocks, clock)
    delay, age = DropDelay(settings.drop_delay_seconds), AddressAge(clock, limits)
    drops = Drops(drop_list, repositories, clock, delay, has_journal=settings.keeps_events)
    events = ObjectEvents(clock, ids, features, is_on=settings.keeps_events)
    # --- branch
    layers = Layers(kv, repositories, commits, committed, branches.events, settings.leap_rows_min)
    replaced = ReplacedRows(clock, settings.online.delay_seconds)
    private_rows = PrivateRows(replaced.offer) if settings.online.is_enabled else None
    publications = Publications(branches, commits, blocks, clock)
    changes = UncommittedChanges(layers, committed)
    kept = KeptObjects(branches, layers, repository_settings, blocks, clock)
    reading = Reading(refs, branches, layers, expired, kept, clock, settings.read_seconds_max)
    staging = Staging(kv, branches, layers, tasks, age, private_rows, events=events)
    copy_sources = CopySources(kv, refs, reading, layers, tasks, is_noted=private_rows is not None)
    committing = Committing(
        branches,
        commits,
        paths,
        layers,
        builder,
        fences,
        publications,
        drops,
        clock,
        operations,
    )
    moves = HeadMoves(branches, layers, changes, publications, drops, clock, operations, expired)
    # --- compaction
    listings = CompactedListings(branches, layers, builder, fences)
    # --- iterators
    iterators = Iterators(kv, keys, repositories, commits, layers, reading)
    # --- views, uploads, usage
    daily = DailyUploads(kv, repositories, drops, clock, tasks)
    completion = Completion(kv, branches, layers, settings.clock_skew_seconds, events)
    uploads = Uploads(kv, branches, daily, completion, clock, ids)
    quotas = QuotaRecords(kv, keys, clock, settings.quotas)
    usage = UsageCounter(kv, iterators, layers, committed, daily, has_journal=settings.keeps_events)
    # --- versioning
    merges = Merges(commits, committed, moves, clock, paths, bases, fences)
    diffing = Diffing(bases, layers, reading, committed, changes, clock)
    # --- the life of repositories and branches, and collection
    expiring = BranchExpiring(
        repositories, branches, names, repository_settings, drops, drop_list, clock
    )
    online = None
    if private_rows is not None:
        online = OnlineDeletion(
            kv,
            branches,
            layers,
            collections,
            replaced,
            blocks,
            clock,
            settings.online,
            drain,
        )
    # --- tasks
    task_runner = TaskRunner(
        TaskRecords(kv, clock), TaskQuotas(kv, clock), drop_list, repositories, clock, ids, tasks
    )
    return Graveler(
        features=features,
        clock=clock,
        committed=committed,
        collection_limits=limits,
        repositories=repositories,
        bucket_views=BucketViews(kv, keys, repositories, clock, ids, fresh),
        settings=repository_settings,
        names=names,
        branches=branches,
        commits=commits,
        tags=tags,
        expired=expired,
        erased=ErasedAddresses(kv, repositories, clock, limits),
        collections=collections,
        purges=Purges(kv, keys, clock, limits),
        page_keys=PageKeys(kv, keys, ids),
        pulls=pulls,
        reads=reads,
        history=History(commits, path_changes),
        reflog=reflog,
        refs=refs,
        drops=drops,
        layers=layers,
        reading=reading,
        copy_sources=copy_sources,
        staging=staging,
        conditional=ConditionalStaging(kv, branches, layers, age, events),
        publications=publications,
        committing=committing,
        moves=moves,
        compacting=Compacting(branches, layers, listings, drops, clock, tasks, operations),
        part_resets=PartResets(branches, layers, committed, builder, listings, drops, clock),
        staging_statistics=StagingStatistics(kv, branches, layers, committed),
        iterators=iterators,
        staged_branches=StagedBranches(iterators, layers),
        diffing=diffing,
        annotating=Annotating(commits, committed, path_changes),
        daily_uploads=daily,
        uploads=uploads,
        links=Links(uploads, blocks, clock),
        abandoned_uploads=AbandonedUploads(
            iterators, repository_settings, daily, uploads, blocks, clock
        ),
        admission=Admission(quotas, usage, clock, tasks, drain),
        merges=merges,
        merge_branches=MergeBranches(merges, branches, publications),
        range_reverts=RangeReverts(commits, merges, moves),
        pull_merges=PullMerges(
            pulls, repository_settings, branches, commits, merges, moves, diffing, clock, ids
        ),
        dumping=Dumping(kv, repositories, repository_settings),
        restoring=Restoring(
            repositories,
            repository_settings,
            branches,
            tags,
            commits,
            reflog_rows,
            committed,
            blocks,
            expired,
        ),
        recovering=Recovering(blocks),
        expiring=expiring,
        roots=Roots(kv, repositories, expired, reads, clock),
        history_pages=HistoryPages(kv, repositories, expired),
        listings_in_use=ListingsInUse(kv, repositories, commits),
        staged_rows=StagedRows(kv, repositories),
        online=online,
        task_runner=task_runner,
        cleaner=Cleaner(
            kv,
            keys,
            drop_list,
            reflog_rows,
            clock,
            delay,
            settings.cleanup_poll_seconds,
            expiring.look,
            task_runner.look,
            drain,
        ),
        drain=drain,
    )
