"""Decides who may call auth, before a handler runs: by the records of auth itself, which `tarn.gate` asks auth for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from tarn.core.access.service import Service
from tarn.kv.record_events import PRINCIPAL, Principal
from tarn.rpc.rules import Rule, Scope
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer, Holder
from tarn_auth.service_callers import Callers

__all__ = ["AuthGate", "ServiceCaller", "UserCaller"]


@dataclass(frozen=True, slots=True)
class ServiceCaller:
    """The services that the caller of an rpc for services has proved to be."""

    services: Collection[Service]


@dataclass(frozen=True, slots=True)
class UserCaller:
    """The user who makes a call, and the key pair of the caller token, as stored now."""

    holder: Holder
    _authorizer: Authorizer
    _rule: Rule
    _request: Message

    def resource(self, **found: object) -> str:
        """Returns the resource of the rpc; see `Resource.of_found`."""
        return self._rule.resource.of_found(self._request, **found)

    def require(self, resource: str) -> None:
        """Refuses a caller who may not do the action of the rpc on a resource.

        Raises:
            TarnError: DENIED, ACCESS_DENIED.
        """
        self._authorizer.require(self.holder, self._rule, resource)


class AuthGate:
    """Checks the rules of auth's rpcs.

    Args:
        authorizer: finds users and their permissions.
        callers: decides which services may ask.
    """

    def __init__(self, authorizer: Authorizer, callers: Callers) -> None:
        self._authorizer = authorizer
        self._callers = callers

    def accepts(self, token: str) -> bool:  # noqa: ARG002 - auth keeps no grants
        """No: each token is verified anew."""
        return False

    async def recognize(self, call: Call) -> None:
        """Refuses a caller without a valid token. Raises as `Authorizer.caller_of`."""
        await self._authorizer.caller_of(call)

    async def permit(self, rule: Rule, request: Message, call: Call) -> ServiceCaller | UserCaller:
        """Returns the caller; one who may do the action of the rpc, unless the handler decides.

        Raises:
            TarnError: SERVICE_REQUIRED; UNAUTHENTICATED; DENIED, ACCESS_DENIED; INVALID for an invalid name.
        """
        if rule.scope is Scope.SERVICES:
            return ServiceCaller(self._callers.require(call, rule))
        holder = await self._authorizer.caller_of(call)
        caller = UserCaller(holder, self._authorizer, rule, request)
        if rule.scope is not Scope.HANDLER:
            caller.require(caller.resource())
        session_key_id = "" if holder.session is None else holder.session.access_key_id
        PRINCIPAL.set(Principal(holder.user.user_uid, session_key_id))
        return caller

    def through_view(
        self, rule: Rule, handle: Callable[[Message, Any], Awaitable[Message]]
    ) -> Callable[[Message, Call], Awaitable[Message]]:
        """Answers as any call: auth knows no buckets, and is asked about the callers of those that do."""

        async def permitted(request: Message, call: Call) -> Message:
            return await handle(request, await self.permit(rule, request, call))

        return permitted
