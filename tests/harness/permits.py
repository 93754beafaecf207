"""What handlers get when a test calls them without a gate: a caller who may do everything."""

from __future__ import annotations

from typing import Final

from google.protobuf.message import Message

from tarn.core.access.policy import Grant, Statement, compile_policy
from tarn.core.ids import UserId
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.rules import Rule, rules_of
from tarn.rpc.wire.call import Call

__all__ = ["CALL", "GRANT", "permit_for"]

CALL: Final = Call("test", "", 1e9)
GRANT: Final = Grant(UserId("ann"), compile_policy((Statement(True, ("*",), ("*",)),)), "", 1000)


def permit_for(request: Message, repository: Repository) -> RepositoryPermit:
    """Returns the permit with which the handler of an rpc that takes this request may be called."""
    return RepositoryPermit(CALL, GRANT, _rule_of(request), request, repository)


def _rule_of(request: Message) -> Rule:
    services = request.DESCRIPTOR.file.services_by_name.values()
    (rule,) = [
        rules_of(service)[method.name]
        for service in services
        for method in service.methods
        if method.input_type == request.DESCRIPTOR
    ]
    return rule
