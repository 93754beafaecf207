"""A search of the audit log: of the files on this machine, within the bounds of `tarn.telemetry.audit.searching`.

No rpc tells it. Only this process can read its machine's files, so it decides who may, by the caller's grant.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from msgspec import Struct

from tarn.core.access.actions import AUDIT, Action, repository_resource
from tarn.telemetry.audit.record import Outcome
from tarn.telemetry.audit.searching import AuditPage, AuditQuery, search_audit
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, render
from tarn_api.web.pages.history import time_of
from tarn_api.web.place import PAGE_SIZE

__all__ = ["AuditAt", "search", "searched"]

_BEFORE: Final = re.compile(r"[0-9]{1,18}")


class AuditAt(Struct, kw_only=True):
    """A search.

    Attributes:
        user: who did it.
        operation: begins the operation.
        repository: what it was done to; or
        resource: any resource, or one above it.
        outcome: of `Outcome`.
        since, until: of these days, in UTC: the last one is included.
        before: Unix microseconds, from which the page before was left.
    """

    user: str = ""
    operation: str = ""
    repository: str = ""
    resource: str = ""
    outcome: str = ""
    since: str = ""
    until: str = ""
    before: str = ""

    @property
    def filters(self) -> dict[str, str]:
        """The parameters of the query but for the place in it."""
        names = ("user", "operation", "repository", "resource", "outcome", "since", "until")
        return {name: value for name in names if (value := getattr(self, name))}


async def search(context: Context, at: AuditAt) -> Page:
    """A page of records, the newest one first."""
    context.require(Action.READ_AUDIT, AUDIT)
    query = _query(at)
    found = await searched(context, query)
    return render(
        context,
        "audit.html",
        title="Audit log",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb("Audit log")],
        at=at,
        folder=str(context.backend.audit_folder or ""),
        found=found,
        outcomes=list(Outcome),
        more=_more(at, query, found),
    )


async def searched(context: Context, query: AuditQuery) -> AuditPage | None:
    """Returns a page of records, for whoever may read them; None: this service has no files of the log.

    Raises:
        ApiError: 503: another search runs.
    """
    backend = context.backend
    if backend.audit_folder is None:
        return None
    if backend.searching_audit.locked():
        raise ApiError(503, "another search runs; try again in a moment", reason="OVERLOADED")
    async with backend.searching_audit:
        return await asyncio.to_thread(
            search_audit,
            backend.audit_folder,
            query,
            backend.clock.monotonic,
            records_max=PAGE_SIZE,
        )


def _query(at: AuditAt) -> AuditQuery:
    """Returns what is searched. Raises `ApiError` 400."""
    if at.outcome and at.outcome not in set(Outcome):
        text = f"the outcome is one of {', '.join(Outcome)}"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    if at.before and not _BEFORE.fullmatch(at.before):
        raise ApiError(400, "the place of the page is no time", reason="INVALID_ARGUMENT")
    since, until = time_of(at.since, "Since"), time_of(at.until, "Until", is_end=True)
    ends = [int(at.before)] if at.before else []
    ends += [] if until is None else [until.ToMicroseconds()]
    plain = AuditQuery(
        user=at.user,
        operation=at.operation,
        resource=repository_resource(at.repository) if at.repository else at.resource,
        outcome=at.outcome,
        from_us=0 if since is None else since.ToMicroseconds(),
    )
    return plain if not ends else plain.before(min(ends))


def _more(at: AuditAt, query: AuditQuery, found: AuditPage | None) -> str:
    """Returns the address of the next page; empty if there is none, or if it would be this one again."""
    if found is None or found.before_us in (None, query.before_us):
        return ""
    return links.to("audit", **at.filters, before=str(found.before_us))
