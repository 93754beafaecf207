"""Checks whether the caller of one of auth's rpcs is allowed to make it."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer, Holder

__all__ = ["Callers"]


class Callers:
    """Default deny: a call is refused unless the rule of its rpc allows it (`tarn.rpc.rules`).

    Decisions about users and keys never use the cache: each one reads the store, so a deleted admin loses
    all permissions immediately, on every replica.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def identify(self, call: Call) -> Holder:
        """Returns the user and key pair of the call's caller token.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID if the token is absent or invalid.
        """
        if not call.caller_token:
            text = "the call carries no caller token"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
        return await self._authorizer.holder(call.caller_token)

    def require(self, caller: Holder, rule: Rule, resource: str) -> None:
        """Raises `TarnError` DENIED, ACCESS_DENIED unless the rule lets the caller access the resource."""
        self._authorizer.grant(caller).require(rule.require_action(), resource)
