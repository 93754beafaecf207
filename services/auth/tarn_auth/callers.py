"""Whether the caller of an rpc of auth may do what it asks."""

from __future__ import annotations

from tarn.core.errors import Kind, Reason, TarnError
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn_auth.authorizer import Authorizer, Holder

__all__ = ["Callers"]


class Callers:
    """Default deny: nothing is done that the rule of the rpc does not allow (`tarn.rpc.rules`).

    Users and keys are never administered on what was kept: each decision reads anew, so a deleted
    admin is one no more at once, on every replica.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def identify(self, call: Call) -> Holder:
        """Whose caller token the call carries.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID.
        """
        if not call.caller_token:
            text = "the call carries no caller token"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
        return await self._authorizer.holder(call.caller_token)

    def require(self, caller: Holder, rule: Rule, resource: str) -> None:
        """Raises `TarnError` DENIED, ACCESS_DENIED unless the caller may do what a rule says to a resource."""
        self._authorizer.grant(caller).require(rule.require_action(), resource)
