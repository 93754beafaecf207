"""The graveler application: its endpoints, and the cleaner that runs beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Self

from tarn.aio.task_set import TaskSet
from tarn.block.committed import Committed
from tarn.block.port import BlockStore
from tarn.core.clock import Clock, IdSource
from tarn.core.levels import ALL_FEATURES, FeatureGate
from tarn.gate.access import Access
from tarn.gate.permits import AccessGate
from tarn.kv.agreement import agree
from tarn.kv.keys import InstallationKeys
from tarn.kv.port import Kv
from tarn.kv.record_events import PRINCIPAL
from tarn.rpc.wire.methods import Endpoint
from tarn.telemetry.meters import Meters
from tarn.telemetry.operations import Operations
from tarn_graveler.assembly import Graveler, GravelerSettings, assemble
from tarn_graveler.branch.building import Builder
from tarn_graveler.collection.backlog import CollectionBacklog
from tarn_graveler.handlers.branches import BranchHandler
from tarn_graveler.handlers.buckets import BucketHandler
from tarn_graveler.handlers.collections import CollectionHandler
from tarn_graveler.handlers.commits import CommitHandler
from tarn_graveler.handlers.compactions import CompactionHandler
from tarn_graveler.handlers.compactors import WatchingCompactors
from tarn_graveler.handlers.diffs import DiffHandler
from tarn_graveler.handlers.dumps import DumpHandler
from tarn_graveler.handlers.entries import EntryHandler
from tarn_graveler.handlers.erasures import ErasureHandler
from tarn_graveler.handlers.links import LinkHandler
from tarn_graveler.handlers.merges import MergeHandler
from tarn_graveler.handlers.pull_requests import PullRequestHandler
from tarn_graveler.handlers.quotas import QuotaHandler
from tarn_graveler.handlers.reflogs import ReflogHandler
from tarn_graveler.handlers.repositories import RepositoryHandler
from tarn_graveler.handlers.requests import RepositoryRules
from tarn_graveler.handlers.settings import SettingsHandler
from tarn_graveler.handlers.staging_events import StagingEventHandler
from tarn_graveler.handlers.tags import TagHandler
from tarn_graveler.handlers.tasks import TaskHandler
from tarn_graveler.handlers.uploads import UploadHandler
from tarn_graveler.journal.epochs import end_epochs
from tarn_graveler.metrics import register_replica
from tarn_graveler.reads.journal import ReadJournal, end_journal
from tarn_proto.graveler.v1.branch_service_rpc import branch_service
from tarn_proto.graveler.v1.bucket_service_rpc import bucket_service
from tarn_proto.graveler.v1.collection_service_rpc import collection_service
from tarn_proto.graveler.v1.commit_service_rpc import commit_service
from tarn_proto.graveler.v1.compaction_service_rpc import compaction_service
from tarn_proto.graveler.v1.diff_service_rpc import diff_service
from tarn_proto.graveler.v1.dump_service_rpc import dump_service
from tarn_proto.graveler.v1.entry_service_rpc import entry_service
from tarn_proto.graveler.v1.erasure_service_rpc import erasure_service
from tarn_proto.graveler.v1.link_service_rpc import link_service
from tarn_proto.graveler.v1.merge_service_rpc import merge_service
from tarn_proto.graveler.v1.pull_request_service_rpc import pull_request_service
from tarn_proto.graveler.v1.quota_service_rpc import quota_service
from tarn_proto.graveler.v1.reflog_service_rpc import reflog_service
from tarn_proto.graveler.v1.repository_service_rpc import repository_service
from tarn_proto.graveler.v1.settings_service_rpc import settings_service
from tarn_proto.graveler.v1.staging_event_service_rpc import staging_event_service
from tarn_proto.graveler.v1.tag_service_rpc import tag_service
from tarn_proto.graveler.v1.task_service_rpc import task_service
from tarn_proto.graveler.v1.upload_service_rpc import upload_service

__all__ = ["GravelerApplication", "endpoints_of"]


def endpoints_of(graveler: Graveler, access: Access) -> list[Endpoint]:
    """Returns the services of a replica; `access` knows what their callers may do."""
    rules = RepositoryRules(graveler.repositories, graveler.settings, graveler.bucket_views)
    # Events of records say for whom a call changes them.
    note = None if graveler.drain is None else PRINCIPAL.set
    gate = AccessGate(access, rules, graveler.clock, graveler.gateways_prove, note)
    compactors = WatchingCompactors(graveler.clock)
    return [
        repository_service(RepositoryHandler(graveler), gate),
        bucket_service(BucketHandler(graveler, access), gate),
        settings_service(SettingsHandler(graveler, access), gate),
        quota_service(QuotaHandler(graveler), gate),
        branch_service(BranchHandler(graveler), gate),
        tag_service(TagHandler(graveler), gate),
        commit_service(CommitHandler(graveler), gate),
        diff_service(DiffHandler(graveler), gate),
        merge_service(MergeHandler(graveler), gate),
        pull_request_service(PullRequestHandler(graveler), gate),
        reflog_service(ReflogHandler(graveler), gate),
        task_service(TaskHandler(graveler), gate),
        compaction_service(CompactionHandler(graveler, compactors), gate),
        collection_service(CollectionHandler(graveler), gate),
        erasure_service(ErasureHandler(graveler), gate),
        entry_service(EntryHandler(graveler, access), gate),
        upload_service(UploadHandler(graveler), gate),
        link_service(LinkHandler(graveler), gate),
        dump_service(DumpHandler(graveler), gate),
        staging_event_service(StagingEventHandler(graveler, compactors), gate),
    ]


class GravelerApplication:
    """Serves refs, commits and staged entries over one KV and one block store; owns neither of them.

    `meters` gets its metrics; None: only for tests.
    `features` refuses what the store's feature level does not allow.
    `stopped` returns when the process is asked to stop; calls that only wait are then answered at once.
    """

    name = "graveler"

    def __init__(
        self,
        *,
        settings: GravelerSettings,
        kv: Kv,
        blocks: BlockStore,
        committed: Committed,
        access: Access,
        clock: Clock,
        ids: IdSource,
        builder: Builder | None = None,
        stopped: Callable[[], Awaitable[None]] | None = None,
        meters: Meters | None = None,
        features: FeatureGate = ALL_FEATURES,
    ) -> None:
        self._stopped = stopped
        self._tasks = TaskSet()
        self._agree = partial(agree, kv, settings.installation_id, settings.shared)
        keys = InstallationKeys(settings.installation_id)
        self._end_journal = partial(end_journal, kv, keys)
        self._end_epochs = partial(end_epochs, kv, keys)
        journal = None
        if settings.keeps_reads:
            journal = ReadJournal(kv, blocks, clock, ids, keys, features)
        graveler = assemble(
            settings=settings,
            kv=kv,
            blocks=blocks,
            committed=committed,
            clock=clock,
            ids=ids,
            tasks=self._tasks,
            builder=builder,
            operations=Operations(clock, meters, settings.slow_operation_seconds),
            features=features,
        )
        self._graveler = replace(graveler, journal=journal)
        self._backlog = CollectionBacklog(
            graveler.iterators, graveler.collections, graveler.purges, clock
        )
        if meters is not None:
            register_replica(meters, clock, self._graveler, committed, builder)
            access.register(meters)
            self._backlog.register(meters)
        self._endpoints = endpoints_of(self._graveler, access)

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The services that this application serves."""
        return self._endpoints

    async def __aenter__(self) -> Self:
        """Checks that its settings equal those of the other replicas, reads the quotas, and starts what runs beside.

        The journal of reads begins, or is known to have ended, before anything is answered.

        Raises:
            TarnError: FAILED_PRECONDITION if a setting differs (`tarn.kv.agreement`); errors of the
                store.
        """
        await self._agree()
        await self._graveler.admission.records.load()
        if (journal := self._graveler.journal) is None:
            await self._end_journal()
        else:
            await journal.begin()
            self._tasks.spawn(journal.run())
        if self._graveler.drain is None:
            await self._end_epochs()
        else:
            self._tasks.spawn(self._graveler.drain.run())
        self._tasks.spawn(self._graveler.admission.records.run())
        self._tasks.spawn(self._graveler.cleaner.run())
        self._tasks.spawn(self._graveler.abandoned_uploads.run())
        self._tasks.spawn(self._backlog.run())
        if self._graveler.online is not None:
            self._tasks.spawn(self._graveler.online.run())
        if self._stopped is not None:
            self._tasks.spawn(self._answer_watchers(self._stopped))
        return self

    async def _answer_watchers(self, stopped: Callable[[], Awaitable[None]]) -> None:
        await stopped()
        self._graveler.branches.events.close()

    async def __aexit__(self, *exc: object) -> None:
        await self._tasks.close()
        if self._graveler.journal is not None:
            await self._graveler.journal.end()

    async def drain(self, timeout_s: float) -> None:
        """Does nothing: no caller waits in the application; the server drains running calls."""
