"""Client of graveler's garbage collections (docs/design/collection.md), for collectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.duration_pb2 import Duration

from tarn.core.ids import CommitId
from tarn.rpc.client.transport import Transport
from tarn.rpc.wire.call import Call
from tarn_proto.graveler.v1 import collection_service_pb2 as pb
from tarn_proto.graveler.v1.collection_service_rpc import CollectionServiceClient

__all__ = ["CollectionClient"]


class CollectionClient:
    """Runs collections. Methods raise the `TarnError` that graveler raised; all may be repeated.

    COLLECTION_LOST and COLLECTION_HELD mean: stop at once, and delete nothing more.
    """

    def __init__(self, transport: Transport) -> None:
        self._collection_service = CollectionServiceClient(transport)

    async def get(self, call: Call, repository_id: str) -> pb.Collection:
        """Returns the collection record of a repository."""
        request = pb.GetCollectionRequest(repository_id=repository_id)
        answer = await self._collection_service.GetCollection(request, call)
        return answer.collection

    async def begin(
        self,
        call: Call,
        repository_id: str,
        run_id: str,
        phase: pb.CollectionPhase,
        mark_run_id: str = "",
        *,
        is_erasure: bool = False,
    ) -> pb.Collection:
        """Begins a run, continues it after a crash, or takes over from one whose lease has ended.

        Args:
            call: the caller.
            repository_id: the repository.
            run_id: 32 lower-case hex digits, chosen by the caller.
            phase: MARK or SWEEP.
            mark_run_id: for a sweep: the last complete mark.
            is_erasure: whether the mark is an erasure, which never completes.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_RUNNING, COLLECTION_HELD, COLLECTION_NO_MARK,
                COLLECTION_TOO_EARLY.
        """
        request = pb.BeginCollectionRequest(
            repository_id=repository_id,
            run_id=run_id,
            phase=phase,
            mark_run_id=mark_run_id,
            is_erasure=is_erasure,
        )
        answer = await self._collection_service.BeginCollection(request, call)
        return answer.collection

    async def renew(self, call: Call, repository_id: str, run_id: str) -> pb.Collection:
        """Renews the lease of a run.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD.
        """
        request = pb.RenewCollectionRequest(repository_id=repository_id, run_id=run_id)
        answer = await self._collection_service.RenewCollection(request, call)
        return answer.collection

    async def list_roots(
        self,
        call: Call,
        repository_id: str,
        run_id: str,
        *,
        page_size: int = 0,
        page_token: str = "",
    ) -> pb.ListRootsResponse:
        """Returns a page of roots. Pages must be read one after the other, all of them.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD; CORRUPT: a record is damaged, or a ref
                names a commit without a row.
        """
        request = pb.ListRootsRequest(
            repository_id=repository_id, run_id=run_id, page_size=page_size, page_token=page_token
        )
        return await self._collection_service.ListRoots(request, call)

    async def listings_in_use(
        self, call: Call, repository_id: str, run_id: str, metarange_ids: Sequence[str]
    ) -> set[str]:
        """Returns which of up to 1,000 listings a ref or a reflog leads to, or a branch builds on.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD; CORRUPT; INVALID.
        """
        request = pb.FindListingsInUseRequest(
            repository_id=repository_id, run_id=run_id, metarange_ids=metarange_ids
        )
        answer = await self._collection_service.FindListingsInUse(request, call)
        return set(answer.metarange_ids)

    async def list_history(
        self, call: Call, repository_id: str, *, page_token: str = ""
    ) -> pb.ListHistoryResponse:
        """Returns a page of the history to which retention rules apply. Pages must be read one after the other, all of
        them.

        Raises:
            TarnError: CORRUPT: a record is damaged.
        """
        request = pb.ListHistoryRequest(repository_id=repository_id, page_token=page_token)
        return await self._collection_service.ListHistory(request, call)

    async def expire_commits(
        self, call: Call, repository_id: str, run_id: str, commits: Mapping[CommitId, str]
    ) -> int:
        """Lets up to 500 commits expire, each by the rule that is named; returns how many had not before.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD.
        """
        expiring = [pb.ExpiringCommit(commit_id=each, rule=rule) for each, rule in commits.items()]
        request = pb.ExpireCommitsRequest(
            repository_id=repository_id, run_id=run_id, commits=expiring
        )
        answer = await self._collection_service.ExpireCommits(request, call)
        return answer.expired_count

    async def expire_tags(
        self, call: Call, repository_id: str, run_id: str, tags: Sequence[pb.ExpiringTag]
    ) -> int:
        """Deletes up to 500 tags whose time is over; returns how many this call deleted.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD.
        """
        request = pb.ExpireTagsRequest(repository_id=repository_id, run_id=run_id, tags=tags)
        answer = await self._collection_service.ExpireTags(request, call)
        return answer.expired_count

    async def begin_batch(
        self, call: Call, repository_id: str, run_id: str, block_ids: Sequence[str]
    ) -> pb.Collection:
        """Begins a batch of deletions of up to 500 ranges and metaranges, named by their ids.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST, COLLECTION_HELD; COLLECTION_RUNNING while another batch
                is open.
        """
        request = pb.BeginBatchRequest(
            repository_id=repository_id, run_id=run_id, block_ids=block_ids
        )
        answer = await self._collection_service.BeginBatch(request, call)
        return answer.collection

    async def end_batch(self, call: Call, repository_id: str, run_id: str) -> pb.Collection:
        """Ends the open batch; no deletion of it may be under way.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST.
        """
        request = pb.EndBatchRequest(repository_id=repository_id, run_id=run_id)
        answer = await self._collection_service.EndBatch(request, call)
        return answer.collection

    async def end(
        self,
        call: Call,
        repository_id: str,
        run_id: str,
        totals: pb.CollectionTotals,
        *,
        is_complete: bool,
    ) -> pb.Collection:
        """Ends a run; only the counts and the note of `totals` are used, and only if the run is complete.

        Raises:
            TarnError: FAILED_PRECONDITION: COLLECTION_LOST.
        """
        request = pb.EndCollectionRequest(
            repository_id=repository_id, run_id=run_id, totals=totals, is_complete=is_complete
        )
        answer = await self._collection_service.EndCollection(request, call)
        return answer.collection

    async def hold(self, call: Call, repository_id: str, seconds: int) -> pb.Collection:
        """Lets no run begin or go on for a time of up to 7 days; 0 ends that."""
        request = pb.HoldCollectionRequest(
            repository_id=repository_id, hold=Duration(seconds=seconds)
        )
        answer = await self._collection_service.HoldCollection(request, call)
        return answer.collection
