"""The services that call other services, and what each of them may do without a user.

Auth gives such a service a caller token by its name (`AuthorizeService`), once it has proved to be that service
(`tarn_auth.service_callers`). The token carries a name that no user can have, and the permissions are fixed here. They
let a service do its work and read no object. What gateways read for anonymous requests, they read by the grant of those
(`tarn.core.access.anonymous`).
"""

from __future__ import annotations

import enum

from tarn.core.access.actions import QUOTAS, REPOSITORIES, Action
from tarn.core.access.policy import Statement
from tarn.core.ids import UserId

__all__ = ["Service", "service_of"]

_PREFIX = "service:"
"""Names of users contain no colon (`tarn.core.ids.parse_user_id`)."""

_STATEMENTS = {
    "compactor": Statement(True, (Action.MANAGE_COMPACTION, Action.COMPACT_REPO), (REPOSITORIES,)),
    "gateway": Statement(True, (Action.READ_QUOTAS, Action.REPORT_REQUESTS), (QUOTAS,)),
    "api": Statement(True, (Action.READ_QUOTAS, Action.REPORT_REQUESTS), (QUOTAS,)),
}
"""Graveler acts only for its callers."""


class Service(enum.StrEnum):
    """A service.

    The gateway acts for users. Its own token allows it to read quotas and to report how many requests it answered, and
    proves that a gateway made the addresses that it stages. The REST endpoint acts for users, too; its own token allows
    and proves the same.

    Attributes:
        user_id: its name in tokens, logs and commits.
    """

    API = "api"
    COMPACTOR = "compactor"
    GATEWAY = "gateway"
    GRAVELER = "graveler"

    def __init__(self, name: str) -> None:
        self.user_id = UserId(_PREFIX + name)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The permissions of the service."""
        statement = _STATEMENTS.get(self.value)
        return () if statement is None else (statement,)


def service_of(user_id: str) -> Service | None:
    """Returns the service that a token names; None for a user, and for a service that this version does not know."""
    name = user_id.removeprefix(_PREFIX)
    if name == user_id or name not in set(Service):
        return None
    return Service(name)
