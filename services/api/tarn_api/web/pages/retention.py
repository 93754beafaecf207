"""Retention rules: shown, tried, and then saved. Nothing is saved whose effect was not shown before."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from starlette.responses import Response

from tarn.collection.expiry_preview import ExpiryPreview, preview_expiry
from tarn.collection.progress import CollectionProgress
from tarn.core.access.actions import Action, repository_resource
from tarn.core.retention import Retention, parse_retention, retention_to_json
from tarn_api.context import READ_S, Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import RepositoryAt, way_to

__all__ = ["preview", "save", "show"]

_ROWS_MAX: Final = 20_000
"""Most commits, branches and tags of a preview: some 10 MB, and seconds of the processor of this process."""
_TAGS_SHOWN: Final = 100
_ETAG: Final = "the version of the settings"


async def show(context: Context, at: RepositoryAt) -> Page:
    """The rules, and the form that tries others."""
    found = await context.graveler.get_retention(context.read(), at.repository)
    resource = repository_resource(at.repository)
    return render(
        context,
        "retention.html",
        title="Retention",
        crumbs=_way(at.repository),
        repository=at.repository,
        rules=_ascii(found.rules_json),
        etag=found.etag,
        may_change=context.may(Action.MANAGE_COLLECTION, resource),
    )


async def preview(context: Context, at: RepositoryAt, form: Form) -> Page:
    """What would expire now by other rules, and the form that saves them. Changes nothing, so it may be reloaded."""
    context.trace.is_write = False
    etag = form.need("etag", _ETAG)
    rules = parse_retention(form.get("rules", ""))
    found = await _preview(context, at.repository, rules)
    return render(
        context,
        "retention_preview.html",
        title="Preview of retention rules",
        crumbs=[*_way(at.repository), Crumb("Preview")],
        repository=at.repository,
        rules=_ascii(retention_to_json(rules)),
        etag=etag,
        found=found,
        expiring=sorted(found.expiring.items()),
        tags=sorted(found.tags.items())[:_TAGS_SHOWN],
        tag_count=len(found.tags),
    )


async def save(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Replaces the rules; the next mark of a collection applies them."""
    etag = form.need("etag", _ETAG)
    text = retention_to_json(parse_retention(form.get("rules", "")))
    await context.graveler.set_retention(context.change(), at.repository, text, if_match=etag)
    return redirect(links.to_repository(at.repository, "retention"))


async def _preview(context: Context, repository: str, rules: Retention) -> ExpiryPreview:
    """Returns the effect that rules would have now.

    Raises:
        ApiError: 503: another preview runs, or this one takes too long.
        TarnError: as `preview_expiry`.
    """
    backend = context.backend
    if backend.previewing.locked():
        text = "another preview of retention rules runs; try again in a moment"
        raise ApiError(503, text, reason="OVERLOADED")
    call = context.read()
    try:
        async with backend.previewing, asyncio.timeout(READ_S):
            return await preview_expiry(
                backend.rpcs.collections,
                lambda: call,
                repository,
                context.blocks,
                backend.clock.now_us(),
                CollectionProgress(),
                rules,
                rows_max=_ROWS_MAX,
            )
    except TimeoutError:
        text = f"the preview took longer than {READ_S:.0f} s; `tarn retention preview` has no limit"
        raise ApiError(503, text, reason="TOO_SLOW") from None


def _way(repository: str) -> list[Crumb]:
    href = links.to_repository(repository, "retention")
    return [*way_to(repository), Crumb("Retention", href)]


def _ascii(rules_json: str) -> str:
    """Returns rules with each character that is not ASCII as an escape of JSON: a reader sees it, and it can be sent
    back."""
    return json.dumps(json.loads(rules_json), indent=2) if rules_json else ""
