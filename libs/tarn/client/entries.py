"""Client of graveler's operations on entries: the versions of objects that paths hold on a ref."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tarn.client.rpc_client import RpcClient
from tarn.core.condition import UNCONDITIONAL, WriteCondition
from tarn.core.errors import TarnError
from tarn.core.value import hot_value
from tarn.rpc.client.transport import Transport, garbled
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.errors import error_from_operation
from tarn_proto.graveler.v1.entry_service_pb2 import (
    FindErasedRequest,
    ListEntriesRequest,
    Lookup,
    Stage,
    Unstage,
    UnstageEntriesRequest,
)
from tarn_proto.graveler.v1.entry_service_pb2 import WriteCondition as ConditionMessage
from tarn_proto.graveler.v1.entry_service_rpc import EntryServiceClient

__all__ = ["EntryClient", "ListingPage", "Located", "condition_message"]


@hot_value
class Located:
    """An entry, and the namespace of its block.

    Attributes:
        entry: packed (`tarn.core.entry`).
        storage_namespace: namespace of the repository, such as `local://lake`.
        may_be_shared: whether the entry may be copied by reference; only asked for with `is_copy_source`.
    """

    entry: bytes
    storage_namespace: str
    may_be_shared: bool = False


@dataclass(frozen=True, slots=True)
class ListingPage:
    """A page of a listing. Objects and common prefixes are together in byte order.

    Attributes:
        paths: paths of objects, and common prefixes with their delimiter. At most the page size; a page may
            be shorter, even empty, before the end.
        entries: packed, one for each path; empty for a common prefix.
        next_page_token: empty at the end, and only there.
        storage_namespace: namespace of the repository.
    """

    paths: list[str]
    entries: list[bytes]
    next_page_token: str
    storage_namespace: str


class EntryClient(RpcClient):
    """Reads and writes entries.

    Every method raises the `TarnError` that graveler raised, or the transport's own UNAVAILABLE, DEADLINE,
    UNKNOWN_OUTCOME or EXHAUSTED. After UNKNOWN_OUTCOME the write may or may not have been applied; the
    caller may repeat it with the same bytes, or read the path.
    """

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._entry_service = EntryServiceClient(transport)

    async def lookup(
        self, call: Call, repository_id: str, ref: str, path: str, *, is_copy_source: bool = False
    ) -> Located:
        """Returns the entry of a path on any ref.

        With `is_copy_source`, the caller may stage the address again if the answer says `may_be_shared`.

        Raises:
            TarnError: NOT_FOUND, with ENTRY_NOT_FOUND, REF_NOT_FOUND or REPOSITORY_NOT_FOUND.
        """
        request = Lookup(
            repository_id=repository_id, ref=ref, path=path, is_copy_source=is_copy_source
        )
        found = await self._entry_service.lookup(request, call)
        return Located(found.entry, found.storage_namespace, found.may_be_shared)

    async def stage(
        self,
        call: Call,
        repository_id: str,
        instance_uid: str,
        branch_id: str,
        path: str,
        entry: bytes,
        condition: WriteCondition = UNCONDITIONAL,
        *,
        is_new_address: bool = False,
        parts: bytes = b"",
    ) -> bool:
        """Writes `entry` (packed) to a path of a branch. After it returns, the write is durable and visible.

        Only gateways and REST endpoints stage addresses in the namespace (`Call.service_token`); `is_new_address`: the
        gateway made the address for this call, and stages it nowhere else.

        With a condition, the entry must carry an operation id, the same in all attempts of the client's request. The
        entry of a conditional delete is `tarn.core.entry.tombstone_of` that id.

        `parts`: the list of the object's parts (`tarn.core.part_list`), which the entry keeps if the condition names an
        identity; empty: none.

        Returns:
            True if the path holds the entry of an earlier attempt of the same conditional operation instead;
            then nothing refers to this attempt's block.

        Raises:
            TarnError: the condition does not hold: FAILED_PRECONDITION, or NOT_FOUND with ENTRY_NOT_FOUND.
        """
        request = Stage(
            repository_id=repository_id,
            instance_uid=instance_uid,
            branch_id=branch_id,
            path=path,
            entry=entry,
            condition=condition_message(condition),
            is_new_address=is_new_address,
            parts=parts,
        )
        return (await self._entry_service.stage(request, call)).is_repeat

    async def unstage(self, call: Call, repository_id: str, branch_id: str, path: str) -> None:
        """Deletes a path of a branch. A path that holds nothing is no error."""
        request = Unstage(repository_id=repository_id, branch_id=branch_id, path=path)
        await self._entry_service.unstage(request, call)

    async def unstage_many(
        self, call: Call, repository_id: str, branch_id: str, paths: Sequence[str]
    ) -> list[TarnError | None]:
        """Deletes up to 1,000 paths. Returns for each, in their order, its error or None."""
        request = UnstageEntriesRequest(
            repository_id=repository_id, branch_id=branch_id, paths=paths
        )
        answer = await self._entry_service.UnstageEntries(request, call)
        outcomes = answer.outcomes
        if len(outcomes) != len(paths):
            raise garbled(f"{len(outcomes)} outcomes for {len(paths)} paths")
        return [
            error_from_operation(outcome.error) if outcome.HasField("error") else None
            for outcome in outcomes
        ]

    async def list_entries(
        self,
        call: Call,
        repository_id: str,
        ref: str,
        *,
        prefix: str = "",
        delimiter: str = "",
        after: str = "",
        page_size: int = 1000,
        page_token: str = "",
    ) -> ListingPage:
        """Returns a page of the listing of any ref.

        Args:
            call: the request that this rpc belongs to.
            repository_id: the repository to list.
            ref: a branch, a tag, a commit, or an expression over one of them.
            prefix: list only paths that start with it.
            delimiter: roll up paths that are equal up to and including the first delimiter after the prefix.
            after: list only paths and common prefixes greater than this.
            page_size: 1 to 1,000.
            page_token: of the last page; all other arguments must be unchanged.
        """
        request = ListEntriesRequest(
            repository_id=repository_id,
            ref=ref,
            prefix=prefix,
            delimiter=delimiter,
            after=after,
            page_size=page_size,
            page_token=page_token,
        )
        page = await self._entry_service.ListEntries(request, call)
        paths, entries = list(page.paths), list(page.packed_entries)
        if len(paths) != len(entries):
            raise garbled(f"{len(entries)} entries for {len(paths)} paths")
        return ListingPage(paths, entries, page.next_page_token, page.storage_namespace)

    async def find_erased(
        self, call: Call, repository_id: str, ref: str, path: str, address: bytes
    ) -> str:
        """Returns the plan that erased an object whose block is missing; an empty text if it was not erased.

        Args:
            call: the caller, who may read the object.
            repository_id: the repository.
            ref: of the read.
            path: of the read.
            address: of the block, 16 bytes.

        Raises:
            TarnError: NOT_FOUND: there is no such repository; UNIMPLEMENTED: this replica knows no erasures.
        """
        request = FindErasedRequest(
            repository_id=repository_id, ref=ref, path=path, address=address
        )
        answer = await self._entry_service.FindErased(request, call)
        return answer.plan_id


def condition_message(condition: WriteCondition) -> ConditionMessage | None:
    """The message of a condition. Without a condition None, which leaves the field unset."""
    if condition.if_none_match:
        return ConditionMessage(if_none_match=True)
    if not condition:
        return None
    return ConditionMessage(
        if_match=condition.if_match or None,
        size_bytes=condition.size_bytes,
        mtime_seconds=condition.mtime_s,
    )
