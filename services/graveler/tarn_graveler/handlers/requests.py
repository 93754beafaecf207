"""What every handler needs: who asks, which repository, and pages."""

from __future__ import annotations

from typing import Protocol

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.access import Access
from tarn.core.access.policy import Grant
from tarn.core.condition import WriteCondition
from tarn.core.entry import ENTRY_BYTES_MAX, Entry, unpack
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.pagination import page_size
from tarn_graveler.repository.records import Repositories
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = [
    "AccessGuard",
    "RepositoryRequest",
    "entry_to_store",
    "paging",
    "read_condition",
    "timestamp",
]

PAGE_DEFAULT = 100
PAGE_MAX = 1000
IF_MATCH_BYTES_MAX = 128


def timestamp(time_us: int) -> Timestamp:
    """Microseconds since the epoch as the wire has them."""
    stamp = Timestamp()
    stamp.FromMicroseconds(time_us)
    return stamp


def paging(requested: int, default: int = PAGE_DEFAULT, maximum: int = PAGE_MAX) -> int:
    """How many lines a page has (AIP-158)."""
    return page_size(requested, default, maximum)


def entry_to_store(packed: bytes) -> Entry:
    """The entry that a caller sent, which can be read again and takes its share of a page at most.

    Raises:
        TarnError: METADATA_TOO_LARGE; CORRUPT, as `unpack`.
    """
    if len(packed) > ENTRY_BYTES_MAX:
        text = f"an entry of {len(packed)} bytes is longer than {ENTRY_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return unpack(packed)


class RepositoryRequest(Protocol):
    """A request about one repository."""

    @property
    def repository_id(self) -> str:
        """Which one."""
        ...


class AccessGuard:
    """Lets calls in by the rules of their rpcs (`tarn.rpc.rules`)."""

    def __init__(self, access: Access, repositories: Repositories) -> None:
        self._access = access
        self._repositories = repositories

    async def enter(self, call: Call, rule: Rule, resource: str) -> Grant:
        """The caller's grant, if it allows the action of a rule on a resource.

        Raises:
            TarnError: UNAUTHENTICATED or DENIED.
        """
        action = rule.action or rule.require_action()
        granted = self._access.check_cached(call, action, resource)
        return granted or await self._access.check(call, action, resource)

    async def enter_repository(
        self, call: Call, rule: Rule, request: RepositoryRequest
    ) -> tuple[Repository, Grant]:
        """The repository of a request, if the caller may do what the rule says, to what it says.

        The caller is checked first: who may not see a repository is not told whether it exists.

        Raises:
            TarnError: UNAUTHENTICATED, DENIED, REPOSITORY_NOT_FOUND; INVALID for a name that is none.
        """
        grant = await self.enter(call, rule, rule.resource.of(request))
        return await self._repositories.get(request.repository_id), grant

    async def repository(self, repository_id: str) -> Repository:
        """A repository whose caller is known.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND.
        """
        return await self._repositories.get(repository_id)

    async def known(self, call: Call) -> None:
        """Lets in anybody who is somebody: what may be done is decided once the resource is known.

        Raises:
            TarnError: UNAUTHENTICATED.
        """
        await self._access.grant(call)


async def read_condition(
    guard: AccessGuard,
    call: Call,
    rule: Rule,
    message: pb.WriteCondition,
    resource: str,
) -> WriteCondition:
    """The condition of a write, if its caller may see what it tells.

    Args:
        guard: lets calls in.
        call: whose write.
        rule: of the write.
        message: may ask for nothing.
        resource: the path, to be read.

    Raises:
        TarnError: DENIED for an If-Match of somebody who may not read; INVALID for an ETag that is none.
    """
    if message.WhichOneof("condition") != "if_match":
        return WriteCondition(if_none_match=message.if_none_match)
    etag = message.if_match
    if not 0 < len(etag) <= IF_MATCH_BYTES_MAX:
        text = f"an ETag of {len(etag)} characters is not 1 to {IF_MATCH_BYTES_MAX} long"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    await guard.enter(call, rule.also["if_match"], resource)
    return WriteCondition(if_match=etag)
