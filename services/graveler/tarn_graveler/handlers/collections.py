"""CollectionService: the runs of garbage collections, and the roots that they may not delete."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields

from tarn.core import collection as core
from tarn.core.collection import Collection, Phase, Totals
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.expiry import EXPIRE_MAX, RULE_CHARS_MAX, Expiry
from tarn.core.ids import MetarangeId, parse_commit_id, parse_tag_id
from tarn.core.retention import retention_to_json
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn_graveler.assembly import Graveler
from tarn_graveler.handlers.requests import paging, timestamp
from tarn_proto.graveler.v1 import collection_service_pb2 as pb

__all__ = ["CollectionHandler"]


_ROWS_DEFAULT = 5_000
_ROWS_MAX = 10_000
_HISTORY_ROWS = 1_000

_PHASES = {
    Phase.IDLE: pb.COLLECTION_PHASE_IDLE,
    Phase.MARK: pb.COLLECTION_PHASE_MARK,
    Phase.SWEEP: pb.COLLECTION_PHASE_SWEEP,
}
_PHASE_OF = {value: phase for phase, value in _PHASES.items()}
_COUNTS = tuple(each.name for each in fields(Totals) if each.name.endswith(("_count", "_bytes")))


class CollectionHandler:
    """Answers `tarn.graveler.v1.CollectionService`."""

    def __init__(self, graveler: Graveler) -> None:
        self._collections = graveler.collections
        self._drain = graveler.drain
        self._roots = graveler.roots
        self._history = graveler.history_pages
        self._listings = graveler.listings_in_use
        self._reads = graveler.reads
        self._limits = graveler.collection_limits
        self._expired = graveler.expired
        self._settings = graveler.settings
        self._tags = graveler.tags
        self._page_keys = graveler.page_keys
        self._clock = graveler.clock

    async def GetCollection(
        self, request: pb.GetCollectionRequest, permit: RepositoryPermit
    ) -> pb.GetCollectionResponse:
        """Returns the collection record."""
        repository = permit.repository
        found = await self._collections.read(repository)
        return pb.GetCollectionResponse(collection=self._message(repository, found))

    async def BeginCollection(
        self, request: pb.BeginCollectionRequest, permit: RepositoryPermit
    ) -> pb.BeginCollectionResponse:
        """Begins, continues or takes over a run."""
        phase = _PHASE_OF.get(request.phase, Phase.IDLE)
        if self._drain is not None and phase is Phase.SWEEP:
            # Its mark is complete, so whatever it found unreferenced had ended before.
            await self._drain.before_deletion(permit.repository, self._clock.monotonic())

        def decide(current: Collection) -> Collection:
            now_us = self._clock.now_us()
            return core.begin(
                current,
                request.run_id,
                phase,
                request.mark_run_id,
                now_us,
                self._limits,
                is_erasure=request.is_erasure,
            )

        changed = await self._change(permit.repository, decide)
        return pb.BeginCollectionResponse(collection=changed)

    async def RenewCollection(
        self, request: pb.RenewCollectionRequest, permit: RepositoryPermit
    ) -> pb.RenewCollectionResponse:
        """Renews the lease of a run."""

        def decide(current: Collection) -> Collection:
            return core.renew(current, request.run_id, self._clock.now_us(), self._limits)

        changed = await self._change(permit.repository, decide)
        return pb.RenewCollectionResponse(collection=changed)

    async def ListRoots(
        self, request: pb.ListRootsRequest, permit: RepositoryPermit
    ) -> pb.ListRootsResponse:
        """Returns a page of roots."""
        repository, grant = permit.repository, permit.grant
        limit = paging(request.page_size, _ROWS_DEFAULT, _ROWS_MAX)
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CollectionService.ListRoots",
            instance=repository.instance_uid,
            run=request.run_id,
        )
        cursor = tokens.decode(request.page_token)
        current = await self._collections.read(repository)
        core.require_run(current, request.run_id, self._clock.now_us())
        page = await self._roots.page(repository, cursor, limit)
        return pb.ListRootsResponse(
            addresses=b"".join(page.addresses),
            metarange_ids=page.metarange_ids,
            next_page_token=tokens.encode(page.cursor) if page.cursor else "",
            stage=page.stage,
            emptied_metarange_ids=page.emptied_ids,
            keeping_metarange_ids=page.keeping_ids,
            keep_written_since_us=page.written_since_us,
            read_addresses=page.reads.addresses,
            keeps_all_objects=page.reads.is_in_doubt,
        )

    async def FindListingsInUse(
        self, request: pb.FindListingsInUseRequest, permit: RepositoryPermit
    ) -> pb.FindListingsInUseResponse:
        """Returns which listings refs lead to."""
        repository = permit.repository
        core.check_listing_ids(request.metarange_ids)
        current = await self._collections.read(repository)
        core.require_run(current, request.run_id, self._clock.now_us())
        wanted = frozenset(map(MetarangeId, request.metarange_ids))
        found = await self._listings.among(repository, wanted)
        return pb.FindListingsInUseResponse(metarange_ids=sorted(found))

    async def ListHistory(
        self, request: pb.ListHistoryRequest, permit: RepositoryPermit
    ) -> pb.ListHistoryResponse:
        """Returns a page of the commits and refs to which retention rules apply."""
        repository, grant = permit.repository, permit.grant
        limit = paging(request.page_size, _HISTORY_ROWS, _HISTORY_ROWS)
        tokens = await self._page_keys.tokens(
            grant.user_id, "CollectionService.ListHistory", instance=repository.instance_uid
        )
        cursor = tokens.decode(request.page_token)
        page, following = await self._history.page(repository, cursor, limit)
        if not cursor:
            settings = await self._settings.read(repository)
            page.retention_json = retention_to_json(settings.retention)
            page.reads_known_since_us = await self._reads.known_since_us(repository)
        page.next_page_token = tokens.encode(following) if following else ""
        return page

    async def ExpireCommits(
        self, request: pb.ExpireCommitsRequest, permit: RepositoryPermit
    ) -> pb.ExpireCommitsResponse:
        """Lets commits expire."""
        repository = permit.repository
        if len(request.commits) > EXPIRE_MAX:
            text = (
                f"{len(request.commits)} commits in one request; at most {EXPIRE_MAX} are allowed"
            )
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="commits")
        now_us = self._clock.now_us()
        expiries = {
            parse_commit_id(each.commit_id): Expiry(each.rule[:RULE_CHARS_MAX], now_us)
            for each in request.commits
        }
        current = await self._collections.read(repository)
        core.require_run(current, request.run_id, now_us)
        count = await self._expired.expire(repository, list(expiries.items()))
        return pb.ExpireCommitsResponse(expired_count=count)

    async def ExpireTags(
        self, request: pb.ExpireTagsRequest, permit: RepositoryPermit
    ) -> pb.ExpireTagsResponse:
        """Deletes tags whose time is over."""
        repository = permit.repository
        if len(request.tags) > EXPIRE_MAX:
            text = f"{len(request.tags)} tags in one request; at most {EXPIRE_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="tags")
        ids = [parse_tag_id(each.tag.tag_id) for each in request.tags]
        current = await self._collections.read(repository)
        core.require_run(current, request.run_id, self._clock.now_us())
        count = 0
        for tag_id, each in zip(ids, request.tags, strict=True):
            rule = each.rule[:RULE_CHARS_MAX]
            count += await self._tags.expire(repository, tag_id, each.tag.nonce, rule)
        return pb.ExpireTagsResponse(expired_count=count)

    async def BeginBatch(
        self, request: pb.BeginBatchRequest, permit: RepositoryPermit
    ) -> pb.BeginBatchResponse:
        """Begins a batch of deletions of ranges and metaranges."""

        def decide(current: Collection) -> Collection:
            now_us = self._clock.now_us()
            return core.begin_batch(
                current, request.run_id, request.block_ids, now_us, self._limits
            )

        changed = await self._change(permit.repository, decide)
        return pb.BeginBatchResponse(collection=changed)

    async def EndBatch(
        self, request: pb.EndBatchRequest, permit: RepositoryPermit
    ) -> pb.EndBatchResponse:
        """Ends the open batch."""

        def decide(current: Collection) -> Collection:
            return core.end_batch(current, request.run_id, self._clock.now_us(), self._limits)

        changed = await self._change(permit.repository, decide)
        return pb.EndBatchResponse(collection=changed)

    async def EndCollection(
        self, request: pb.EndCollectionRequest, permit: RepositoryPermit
    ) -> pb.EndCollectionResponse:
        """Ends a run."""
        counts = {name: getattr(request.totals, name) for name in _COUNTS}
        if min(counts.values()) < 0:
            raise _negative("totals")
        totals = Totals(request.run_id, note=request.totals.note, **counts)

        def decide(current: Collection) -> Collection:
            now_us = self._clock.now_us()
            return core.end(
                current, request.run_id, totals, now_us, is_complete=request.is_complete
            )

        changed = await self._change(permit.repository, decide)
        return pb.EndCollectionResponse(collection=changed)

    async def HoldCollection(
        self, request: pb.HoldCollectionRequest, permit: RepositoryPermit
    ) -> pb.HoldCollectionResponse:
        """Holds all runs for a time, or ends that."""
        now_us = self._clock.now_us()

        def decide(current: Collection) -> Collection:
            return core.hold(current, request.hold.seconds, now_us)

        changed = await self._change(permit.repository, decide)
        return pb.HoldCollectionResponse(collection=changed)

    async def _change(
        self,
        repository: Repository,
        decide: Callable[[Collection], Collection],
    ) -> pb.Collection:
        changed = await self._collections.change(repository, decide)
        return self._message(repository, changed)

    def _message(self, repository: Repository, found: Collection) -> pb.Collection:
        now_us = self._clock.now_us()
        message = pb.Collection(
            repository_id=repository.repository_id,
            phase=_PHASES[found.phase],
            run_id=found.run_id,
            mark_run_id=found.mark_run_id,
            fence_count=found.fence_count,
            is_batch_open=found.is_batch_open(now_us),
            storage_namespace=repository.storage_namespace,
            lease_ms=self._limits.lease_us // 1000,
            is_erasure=found.is_erasure,
        )
        if found.run_id:
            message.lease_end_time.FromMicroseconds(found.lease_until_us)
            message.cutoff_time.FromMicroseconds(found.cutoff_us)
        if found.mark_run_id:
            message.sweep_not_before_time.FromMicroseconds(
                found.mark_end_us + self._limits.grace_us
            )
        if now_us < found.hold_until_us:
            message.hold_end_time.FromMicroseconds(found.hold_until_us)
        if found.last_mark is not None:
            message.last_mark.CopyFrom(_totals_message(found.last_mark))
        if found.last_sweep is not None:
            message.last_sweep.CopyFrom(_totals_message(found.last_sweep))
        return message


def _totals_message(totals: Totals) -> pb.CollectionTotals:
    counts = {name: getattr(totals, name) for name in _COUNTS}
    return pb.CollectionTotals(
        run_id=totals.run_id,
        begin_time=timestamp(totals.begin_us),
        end_time=timestamp(totals.end_us),
        note=totals.note,
        **counts,
    )


def _negative(field: str) -> TarnError:
    text = "counts of a run must not be negative"
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)
