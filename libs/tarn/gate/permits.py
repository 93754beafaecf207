"""What is known about a call before its handler runs: the gate checks the rule of the rpc, the handler gets the result.

So no handler can forget a permission: it is not reached without. `docs/design/rpcs.md` explains the scopes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Protocol, cast

from google.protobuf.message import Message

from tarn.aio.futures import ignore_outcome
from tarn.aio.ttl_cache import TtlCache
from tarn.core.access.actions import Action
from tarn.core.access.anonymous import ANONYMOUS
from tarn.core.access.policy import Grant
from tarn.core.access.service import Service
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.value import hot_value
from tarn.gate.access import Access
from tarn.kv.port import Versioned
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule, Scope
from tarn.rpc.wire.call import Call
from tarn.rpc.wire.methods import Handle
from tarn.telemetry.audit.note import NOTE, note_principal, note_resource

__all__ = ["AccessGate", "Begun", "Caller", "Permit", "RepositoryPermit"]


@hot_value
class Caller:
    """An authenticated caller of an rpc whose handler decides (`decided_by_handler` of its rule).

    Attributes:
        call: the call.
        grant: what the caller may do.
    """

    call: Call
    grant: Grant
    _rule: Rule
    _request: Message

    def resource(self, **found: object) -> str:
        """Returns the resource of the rpc.

        Args:
            found: values of it that the handler found; see `Resource.of_found`.

        Raises:
            TarnError: INVALID for an invalid name in the request.
        """
        return self._rule.resource.of_found(self._request, **found)

    def require(self, resource: str) -> None:
        """Refuses a caller who may not do the action of the rpc on a resource.

        Raises:
            TarnError: DENIED, ACCESS_DENIED.
        """
        self.grant.require(self._rule.require_action(), resource)
        note_resource(resource)

    def require_further(self, name: str, **found: object) -> None:
        """Refuses a caller who lacks a further access of the rule that is checked when the handler asks.

        Raises:
            TarnError: as `resource` and `require`.
        """
        self.grant.require(*self._further(name, found))

    def has_further(self, name: str, **found: object) -> bool:
        """Whether the caller has a further access of the rule.

        Raises:
            TarnError: as `resource`.
        """
        return self.grant.allows(*self._further(name, found))

    def _further(self, name: str, found: Mapping[str, object]) -> tuple[Action, str]:
        further = self._rule.also[name]
        return further.require_action(), further.resource.of_found(self._request, **found)


class Permit(Caller):
    """The caller may do the action of the rpc on its resource."""

    __slots__ = ()


@hot_value
class RepositoryPermit(Permit):
    """Likewise, in a repository that exists, whose rules allow the change."""

    repository: Repository


Begun = asyncio.Future[Versioned | None] | int
"""A fresh read of a row that was requested: its future; or, if the next read of other rows has this one, too, how many
such reads were sent before.
"""


class RepositoryGate(Protocol):
    """What a service knows about repositories."""

    async def enter(self, rule: Rule, request: Message, grant: Grant) -> Repository:
        """Returns the repository of a request.

        Raises:
            TarnError: REPOSITORY_NOT_FOUND; DENIED, BRANCH_PROTECTED or REPOSITORY_READ_ONLY: its rules block the
                change.
        """
        ...

    def entered_until(self, rule: Rule, repository: Repository) -> float:
        """Returns until when `enter` has the same answer for the same rule, caller, repository and branch, unless
        `when_changed` tells before; on the monotonic clock. A time of the past if it may have another one now."""
        ...

    def when_changed(self, tell: Callable[[], None]) -> None:
        """Has `tell` called each time that `enter` may have another answer than before the end of `entered_until`."""
        ...

    def begin_view(self, bucket: str) -> Begun:
        """Requests the row of the bucket view of a call (`Call.bucket`), by a read that is sent after this.

        Raises:
            TarnError: INVALID: it names none.
        """
        ...

    def begin_view_beside(self, bucket: str) -> Begun:
        """As `begin_view`, for a caller who is about to read other rows: all are one read, if the store can do that."""
        ...

    async def public_grant(self, bucket: str, begun: Begun) -> Grant:
        """Returns what anonymous requests may do through the bucket view of a call: read what its row says it shows.

        Raises:
            TarnError: DENIED, ACCESS_DENIED: the row is no public-read view's; INVALID; errors of the store.
        """
        ...

    def is_confirmed(self, bucket: str, repository: Repository, begun: Begun) -> bool:
        """Tells at once that the view of a call is confirmed, if its row was read beside another one since, and the
        same row and repository were confirmed before; otherwise `confirm` decides."""
        ...

    async def confirm(self, bucket: str, repository_id: str, begun: Begun) -> Repository:
        """Returns the repository of a call, if the row of its view is that of the view that the call names.

        Raises:
            TarnError: BUCKET_MOVED, BUCKET_NOT_FOUND: the view shows something else; INVALID; errors of the store.
        """
        ...


@hot_value
class _Entered:
    """What `AccessGate.permit` has found for a caller, a rule, a repository, and a branch or ref, whatever the path."""

    grant: Grant
    repository: Repository


_ENTERED_MAX = 8192
_GATEWAY = Service.GATEWAY.user_id
Handler = Callable[[Message, Any], Awaitable[Message]]
"""Answers a request of a caller with a permit: `async (request, permit) -> response`."""


async def _refuse_view(rule: Rule, _request: Message, _call: Call) -> Message:
    text = f"{rule.name} is not called through a bucket view"
    raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="bucket")


class AccessGate:
    """Checks the rules of rpcs with the grants of auth.

    Args:
        access: knows what callers may do.
        repositories: finds repositories; None for a service without rpcs about one.
        clock: by which `repositories` and `access` tell until when their answers hold.
        services_prove: whether the services of all releases that may run now prove themselves in calls of users.
        note: is told the grant of each call before it is permitted, in the task of its handler.
    """

    def __init__(
        self,
        access: Access,
        repositories: RepositoryGate | None = None,
        clock: Clock | None = None,
        services_prove: Callable[[], bool] = lambda: True,
        note: Callable[[Grant], object] | None = None,
    ) -> None:
        self._access = access
        self._repositories = repositories
        self._changes = 0
        self._entered: TtlCache[tuple[Rule, str, tuple[str, str]], _Entered] | None = None
        if repositories is not None and clock is not None:
            self._entered = TtlCache(clock, _ENTERED_MAX)
            repositories.when_changed(self._forget)
        self._services_prove = services_prove
        self._note = note

    def accepts(self, token: str) -> bool:
        """Tells at once whether the token of a caller was accepted lately."""
        return self._access.accepts(token)

    async def recognize(self, call: Call) -> None:
        """Refuses a caller without a valid token. Raises as `Access.grant`."""
        await self._access.grant(call)

    async def permit(
        self, rule: Rule, request: Message, call: Call, grant: Grant | None = None
    ) -> Caller:
        """Returns what the scope of a rule promises.

        The caller is checked first: one without permission does not learn whether a repository exists.

        Args:
            rule: of the rpc.
            request: its message.
            call: by its caller.
            grant: of the caller, if it is known already.

        Raises:
            TarnError: UNAUTHENTICATED; DENIED, ACCESS_DENIED; DENIED, SERVICE_REQUIRED: a user may not make the call
                alone; INVALID for an invalid name in the request; errors of `RepositoryGate.enter`.
        """
        place: tuple[Rule, str, tuple[str, str]] | None = None
        if grant is None:
            token, entered = call.caller_token, self._entered
            if entered is not None and (place_of := rule.place_of) is not None:
                place = rule, token, place_of(request)
                found = entered.get(place)
                if found is not None and not self._asks_more(rule, request):
                    if self._note is not None:
                        self._note(found.grant)
                    return RepositoryPermit(call, found.grant, rule, request, found.repository)
            grant = self._access.grant_cached(token) or await self._access.grant(call)
        if self._note is not None:
            self._note(grant)
        changes = self._changes
        if rule.through:
            await self._require_service(rule, call)
        if rule.scope is Scope.HANDLER:
            return Caller(call, grant, rule, request)
        for each in rule.before:
            if each.is_wanted(request):
                grant.require(each.require_action(), each.resource.of(request))
        resource = rule.resource.of(request)
        grant.require(rule.action or rule.require_action(), resource)
        note_resource(resource)
        if rule.scope is not Scope.REPOSITORY:
            return Permit(call, grant, rule, request)
        assert self._repositories is not None, "an rpc about a repository is graveler's"
        repository = await self._repositories.enter(rule, request, grant)
        if place is not None and changes == self._changes:
            self._remember(place, grant, repository, resource, request)
        return RepositoryPermit(call, grant, rule, request, repository)

    @staticmethod
    def _asks_more(rule: Rule, request: Message) -> bool:
        """Whether a request needs more than what was found for its place: a further access, or a note of its path."""
        if NOTE.get() is not None:
            return True
        for each in rule.before:  # noqa: SIM110 - each request asks, and a generator costs more
            if each.is_wanted(request):
                return True
        return False

    def _remember(
        self,
        place: tuple[Rule, str, tuple[str, str]],
        grant: Grant,
        repository: Repository,
        resource: str,
        request: Message,
    ) -> None:
        """Keeps what was found for one path, if it holds for all paths of the place, for as long as it does."""
        assert self._repositories is not None, "it has found the repository"
        assert self._entered is not None, "the place is for it"
        rule, token, _ = place
        of_all = resource.removesuffix(rule.path_of(request))
        # By now the caller may have another grant, whose time is not that of this one.
        is_known = self._access.grant_cached(token) is grant
        if is_known and grant.policy.allows_all(rule.require_action(), of_all):
            until = self._repositories.entered_until(rule, repository)
            end = min(until, self._access.grant_end(token))
            self._entered.put(place, _Entered(grant, repository), end)

    def _forget(self) -> None:
        self._changes += 1
        if self._entered:
            self._entered.clear()

    def through_view(self, rule: Rule, handle: Handler) -> Handle:
        """Returns what answers calls of an rpc that are made through a bucket view: all that it does, it does to what
        the view shows at a moment of the call.

        The view is read by a read that is sent when the call has begun: before a change begins, beside the work of a
        read. An answer, or a failure, by another view is dropped.

        What it returns raises:
            TarnError: BUCKET_MOVED, BUCKET_NOT_FOUND; INVALID: the rpc is not called through a view; errors of `permit`
                and of the handler.
        """
        repositories = self._repositories
        if repositories is None or not rule.is_through_views:
            return partial(_refuse_view, rule)
        if rule.read_only and rule.scope is Scope.REPOSITORY:
            return self._read_through_view(repositories, rule, handle)
        assert not rule.public_read, "who is anonymous reads only"
        return partial(self._change_through_view, repositories, rule, handle)

    def _read_through_view(
        self, repositories: RepositoryGate, rule: Rule, handle: Handler
    ) -> Handle:
        is_public, access = rule.public_read, self._access
        begin, is_confirmed = repositories.begin_view_beside, repositories.is_confirmed
        # By the scope of the rule.
        permit_of = cast("Callable[..., Awaitable[RepositoryPermit]]", self.permit)

        async def read(request: Message, call: Call) -> Message:
            grant = access.grant_cached(call.caller_token) or await access.grant(call)
            if is_public and grant.user_id == _GATEWAY:
                return await self._anonymously(repositories, rule, request, call, handle)
            permit = await permit_of(rule, request, call, grant)
            bucket, repository = call.bucket, permit.repository
            begun = begin(bucket)
            answer: Message | TarnError
            try:
                answer = await handle(request, permit)
            except TarnError as error:
                answer = error
            except BaseException:
                if not isinstance(begun, int):
                    ignore_outcome(begun)  # cancelled
                raise
            else:
                if is_confirmed(bucket, repository, begun):
                    return answer
            shown = await repositories.confirm(bucket, rule.repository_of(request), begun)
            if shown.instance_uid != repository.instance_uid:
                # It was an older one of the name; by now that of the view is known.
                return await handle(request, await permit_of(rule, request, call))
            if isinstance(answer, TarnError):
                raise answer
            return answer

        return read

    async def _change_through_view(
        self,
        repositories: RepositoryGate,
        rule: Rule,
        handle: Handler,
        request: Message,
        call: Call,
    ) -> Message:
        permit = await self.permit(rule, request, call)
        begun = repositories.begin_view(call.bucket)
        shown = await repositories.confirm(call.bucket, rule.repository_of(request), begun)
        uid = shown.instance_uid
        if isinstance(permit, RepositoryPermit) and permit.repository.instance_uid != uid:
            # It was an older one of the name; by now that of the view is known.
            permit = await self.permit(rule, request, call)
        return await handle(request, permit)

    async def _anonymously(
        self,
        repositories: RepositoryGate,
        rule: Rule,
        request: Message,
        call: Call,
        handle: Handler,
    ) -> Message:
        """Answers a call of a gateway for an anonymous request, by what the row of the view says now.

        Raises:
            TarnError: as `through_view`; DENIED, ACCESS_DENIED: the view is not public-read, or shows something else.
        """
        note_principal(ANONYMOUS)
        begun = repositories.begin_view(call.bucket)
        shown = await repositories.confirm(call.bucket, rule.repository_of(request), begun)
        grant = await repositories.public_grant(call.bucket, begun)
        resource = rule.resource.of(request)
        grant.require(rule.require_action(), resource)
        note_resource(resource)
        return await handle(request, RepositoryPermit(call, grant, rule, request, shown))

    async def _require_service(self, rule: Rule, call: Call) -> None:
        """Refuses a user's call that no service of the rule has made."""
        if not self._services_prove():
            return
        if await self._access.is_service(call, *rule.through):
            return
        names = " or ".join(sorted(rule.through))
        text = (
            f"{rule.name} is called by services for their users: the call has no proof of a {names}. Write objects by "
            "S3, or link what you have written (GetPhysicalAddress, LinkPhysicalAddress)"
        )
        raise TarnError(Kind.DENIED, Reason.SERVICE_REQUIRED, text, operation=rule.name)
