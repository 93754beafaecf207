"""Shared by all handlers: access checks, limits, pages and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.client.access import Access
from tarn.core.access.policy import Grant
from tarn.core.access.service import Service
from tarn.core.change_kind import ChangeKind
from tarn.core.condition import WriteCondition
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.pagination import PageTokens, page_size
from tarn_graveler.cursors.cursor import Cursor
from tarn_graveler.records.repositories import Repositories
from tarn_graveler.records.settings import RepositorySettings
from tarn_proto.graveler.v1 import entry_service_pb2 as pb

__all__ = [
    "AccessGuard",
    "CommitText",
    "RepositoryRequest",
    "checked_metadata",
    "page_of",
    "paging",
    "read_condition",
    "timestamp",
]

PAGE_DEFAULT = 100
PAGE_MAX = 1000
IF_MATCH_BYTES_MAX = 128
_MESSAGE_BYTES_MAX = 64 * 1024
_METADATA_BYTES_MAX = 64 * 1024


def timestamp(time_us: int) -> Timestamp:
    """Converts microseconds since the epoch to a protobuf timestamp."""
    stamp = Timestamp()
    stamp.FromMicroseconds(time_us)
    return stamp


def paging(requested: int, default: int = PAGE_DEFAULT, maximum: int = PAGE_MAX) -> int:
    """Returns the number of items of a page (AIP-158)."""
    return page_size(requested, default, maximum)


KeyT = TypeVar("KeyT", bound=str)
ValueT = TypeVar("ValueT")


class ListRequest(Protocol):
    """A request for a page of a listing."""

    @property
    def page_size(self) -> int:
        """Most items; 0 for the default."""
        ...

    @property
    def page_token(self) -> str:
        """Token of the page; empty for the first one."""
        ...


async def page_of(
    cursor: Cursor[KeyT, ValueT], request: ListRequest, tokens: PageTokens
) -> tuple[list[tuple[KeyT, ValueT]], str]:
    """Returns the page of a listing that a request asks for, and the token of the next page (empty: none).

    Raises:
        TarnError: INVALID for the page size or token; as the cursor.
    """
    count = paging(request.page_size)
    cursor.seek_behind(tokens.decode(request.page_token))
    page = await cursor.page(count)
    return page.items, "" if page.next_after is None else tokens.encode(page.next_after)


class CommitText(Protocol):
    """A request with the message and the metadata of a new commit."""

    @property
    def message(self) -> str:
        """Free text."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """Names and values."""
        ...


def checked_metadata(request: CommitText) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a new commit, sorted by name, after checking the size of message and metadata.

    Raises:
        TarnError: INVALID_ARGUMENT, METADATA_TOO_LARGE.
    """
    if len(request.message.encode()) > _MESSAGE_BYTES_MAX:
        text = f"a commit message has at most {_MESSAGE_BYTES_MAX} bytes"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    metadata = tuple(sorted(request.metadata.items()))
    size = sum(len(key.encode()) + len(value.encode()) for key, value in metadata)
    if size > _METADATA_BYTES_MAX:
        text = f"commit metadata has at most {_METADATA_BYTES_MAX} bytes, not {size}"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return metadata


class RepositoryRequest(Protocol):
    """A request about one repository."""

    @property
    def repository_id(self) -> str:
        """Name of the repository."""
        ...


class AccessGuard:
    """Checks the permissions of calls by the rules of their rpcs (`tarn.rpc.rules`)."""

    def __init__(
        self, access: Access, repositories: Repositories, settings: RepositorySettings
    ) -> None:
        self._access = access
        self._repositories = repositories
        self._settings = settings

    async def enter(self, call: Call, rule: Rule, resource: str) -> Grant:
        """Returns the caller's grant if it allows the action of a rule on a resource.

        Raises:
            TarnError: UNAUTHENTICATED or DENIED.
        """
        action = rule.action or rule.require_action()
        granted = self._access.check_cached(call, action, resource)
        return granted or await self._access.check(call, action, resource)

    async def enter_repository(
        self, call: Call, rule: Rule, request: RepositoryRequest, *, also: str = ""
    ) -> tuple[Repository, Grant]:
        """Returns the repository of a request, if the caller may do the rule's action on the request's
        resource.

        `also` names a further permission of the rule, such as that for the source of a merge; it is checked
        first.

        The caller is checked first: a caller without permission does not learn whether the repository
        exists.

        Raises:
            TarnError: UNAUTHENTICATED, DENIED, REPOSITORY_NOT_FOUND; INVALID for an invalid name; as `allow`.
        """
        if also:
            further = rule.also[also]
            await self.enter(call, further, further.resource.of(request))
        grant = await self.enter(call, rule, rule.resource.of(request))
        repository = await self._repositories.get(request.repository_id)
        if not rule.read_only:
            await self.allow(rule, repository, getattr(request, "branch_id", ""), grant)
        return repository, grant

    async def allow(self, rule: Rule, repository: Repository, branch_id: str, grant: Grant) -> None:
        """Refuses a change that the rules of the repository block (docs/user/rules.md).

        `enter_repository` calls this for the branch of its request.

        Raises:
            TarnError: DENIED, BRANCH_PROTECTED or REPOSITORY_READ_ONLY.
        """
        # An rpc that changes something and states no kind of change: a read-only repository blocks it.
        kind = rule.change or ChangeKind.OTHER
        await self._settings.require(repository, branch_id, kind, grant)

    async def user_uid(self, call: Call, user_id: str) -> bytes:
        """Returns the uid of a user, which auth tells only to callers who may read that user.

        Raises:
            TarnError: USER_NOT_FOUND, DENIED.
        """
        return await self._access.user_uid(call, user_id)

    async def is_gateway(self, call: Call, token: str) -> bool:
        """Whether a token is that of a gateway as a service."""
        return await self._access.is_service(call, token, Service.GATEWAY)

    async def repository(self, repository_id: str) -> Repository:
        """Returns a repository, for a caller that was already checked.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND.
        """
        return await self._repositories.get(repository_id)

    async def known(self, call: Call) -> Grant:
        """Checks only that the caller is authenticated; permissions are checked once the resource is known.

        Returns the caller's grant.

        Raises:
            TarnError: UNAUTHENTICATED.
        """
        return await self._access.grant(call)


async def read_condition(
    guard: AccessGuard,
    call: Call,
    rule: Rule,
    message: pb.WriteCondition,
    resource: str,
) -> WriteCondition:
    """Returns the condition of a write. An If-Match needs the read permission, because its outcome reveals the ETag.

    Args:
        guard: checks permissions.
        call: the call that writes.
        rule: rule of the writing rpc.
        message: the requested condition; may be empty.
        resource: the path, as a resource of the read permission.

    Raises:
        TarnError: DENIED for an If-Match by a caller without read permission; INVALID for an invalid
            ETag.
    """
    if message.WhichOneof("condition") != "if_match":
        return WriteCondition(if_none_match=message.if_none_match)
    etag = message.if_match
    if not 0 < len(etag) <= IF_MATCH_BYTES_MAX:
        text = f"the ETag has {len(etag)} characters, not 1 to {IF_MATCH_BYTES_MAX}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    await guard.enter(call, rule.also["if_match"], resource)
    return WriteCondition(if_match=etag)
