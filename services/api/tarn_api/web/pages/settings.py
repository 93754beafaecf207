"""The settings of a repository: protected and hidden branches, read-only, default branch, metadata, bucket views.

They are one record with one ETag, which each form sends back: a change that another one overtook is refused, and the
page is to be read again. Bucket views have ETags of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Final

from starlette.responses import Response

from tarn.core.access.actions import Action, bucket_resource, repository_resource
from tarn.core.access.policy import Role
from tarn.core.errors import Kind, TarnError
from tarn.core.quota import QuotaKind
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.pages.quotas import quota_of
from tarn_api.web.place import RepositoryAt, way_to
from tarn_proto.graveler.v1 import bucket_service_pb2 as bucket_pb
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

__all__ = [
    "create_view",
    "delete_view",
    "hide",
    "point_view",
    "protect",
    "publish_view",
    "set_default_branch",
    "set_metadata",
    "set_read_only",
    "show",
    "unhide",
    "unprotect",
    "unset_metadata",
]

KINDS: Final = MappingProxyType(
    {
        pb.CHANGE_KIND_WRITE: "write",
        pb.CHANGE_KIND_COMMIT: "commit",
        pb.CHANGE_KIND_MERGE: "merge",
        pb.CHANGE_KIND_DELETE: "delete",
        pb.CHANGE_KIND_FORCE: "force",
    }
)
STALE: Final = MappingProxyType(
    {
        pb.STALE_APPROVALS_IGNORE: "ignore",
        pb.STALE_APPROVALS_KEEP: "keep",
        pb.STALE_APPROVALS_DISMISS: "dismiss",
    }
)
_ETAG: Final = "the version of the settings"
_VIEW: Final = "the name of the bucket view"
_VIEW_ETAG: Final = "the version of the bucket view"
_VIEW_PAGES: Final = 10
_VIEWS_OF_PAGE: Final = 1000

Patterns = Iterable[str]
Decide = Callable[[pb.GetSettingsResponse], tuple[Iterable[pb.Protection], Patterns]]


async def show(context: Context, at: RepositoryAt) -> Page:
    """The settings. Forms are shown to those who may send them."""
    settings = await context.graveler.get_settings(context.read(), at.repository)
    resource = repository_resource(at.repository)
    views, has_more_views = await _views(context, at.repository)
    return render(
        context,
        "settings.html",
        title="Settings",
        crumbs=[*way_to(at.repository), Crumb("Settings")],
        repository=at.repository,
        settings=settings,
        metadata=sorted(settings.metadata.items()),
        kinds=KINDS,
        stale=STALE,
        roles=list(Role),
        views=views,
        has_more_views=has_more_views,
        quota=await quota_of(context, QuotaKind.REPOSITORY, at.repository),
        may_rule=context.may(Action.WRITE_RULES, resource),
        may_write=context.may(Action.WRITE_REPO, resource),
        may_view=context.may(Action.WRITE_BUCKETS, bucket_resource("*")),
    )


async def protect(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Adds a protection. With a review rule, it blocks all changes but pull requests, and the deletion if asked."""
    review = _review(form) if form.get("review") else None
    asked = {number for number, name in KINDS.items() if form.get(f"block-{name}")}
    if review is not None:
        asked |= KINDS.keys() - {pb.CHANGE_KIND_DELETE}
    made = pb.Protection(
        pattern=form.need("pattern", "the pattern"),
        blocked=sorted(asked),
        exempt_user_ids=_names(form.get("users", "")),
        exempt_roles=[each for each in Role if form.get(f"role-{each}")],
        review=review,
    )
    return await _set_rules(
        context, at, form, lambda now: ([*now.protections, made], now.hidden_patterns)
    )


async def unprotect(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Removes the protection of a pattern."""
    pattern = form.get("pattern", "")

    def decide(now: pb.GetSettingsResponse) -> tuple[Iterable[pb.Protection], Patterns]:
        kept = [each for each in now.protections if not _is_sent(each.pattern, pattern)]
        return kept, now.hidden_patterns

    return await _set_rules(context, at, form, decide)


async def hide(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Has listings omit the branches that match a pattern."""
    pattern = form.need("pattern", "the pattern")
    return await _set_rules(
        context, at, form, lambda now: (now.protections, [*now.hidden_patterns, pattern])
    )


async def unhide(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Has listings show the branches that match a pattern again."""
    pattern = form.get("pattern", "")

    def decide(now: pb.GetSettingsResponse) -> tuple[Iterable[pb.Protection], Patterns]:
        kept = [each for each in now.hidden_patterns if not _is_sent(each, pattern)]
        return now.protections, kept

    return await _set_rules(context, at, form, decide)


async def set_read_only(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Makes the repository read-only, or writable again."""
    etag, is_wanted = form.need("etag", _ETAG), bool(form.get("read-only"))
    await context.graveler.set_read_only(context.change(), at.repository, is_wanted, if_match=etag)
    return _back(at)


async def set_default_branch(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Makes another branch the default branch."""
    await context.graveler.set_default_branch(
        context.change(),
        at.repository,
        form.need("branch", "the branch"),
        expected_branch_id=form.need("expected", "the present default branch"),
    )
    return _back(at)


async def set_metadata(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Adds metadata, or replaces the value of a name."""
    name, value = form.need("name", "the name"), form.get("value", "")
    return await _set_metadata(context, at, form, lambda now: {**now, name: value})


async def unset_metadata(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Removes metadata."""
    gone = form.get("name", "")

    def decide(now: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in now.items() if not _is_sent(name, gone)}

    return await _set_metadata(context, at, form, decide)


async def create_view(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Creates a bucket name that shows a ref of the repository."""
    await context.graveler.create_bucket_view(
        context.change(),
        form.need("name", _VIEW),
        at.repository,
        form.get("ref", "").strip(),
        public_read=bool(form.get("public")),
    )
    return _back(at)


async def point_view(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Has a bucket view show another ref of the repository."""
    await context.graveler.point_bucket_view(
        context.change(),
        form.need("name", _VIEW),
        at.repository,
        form.need("ref", "the ref"),
        etag=form.need("etag", _VIEW_ETAG),
    )
    return _back(at)


async def publish_view(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Lets everybody read what a bucket view shows, or ends that."""
    await context.graveler.set_bucket_view_public_read(
        context.change(),
        form.need("name", _VIEW),
        bool(form.get("public")),
        etag=form.need("etag", _VIEW_ETAG),
    )
    return _back(at)


async def delete_view(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Deletes a bucket view; what it shows stays."""
    name, etag = form.need("name", _VIEW), form.need("etag", _VIEW_ETAG)
    await context.graveler.delete_bucket_view(context.change(), name, etag=etag)
    return _back(at)


def _back(at: RepositoryAt) -> Response:
    return redirect(links.to_repository(at.repository, "settings"))


async def _set_rules(context: Context, at: RepositoryAt, form: Form, decide: Decide) -> Response:
    """Replaces the rules. They are read again, and are those of the page if their ETag is."""
    etag, call = form.need("etag", _ETAG), context.change()
    protections, hidden = decide(await context.graveler.get_settings(call, at.repository))
    await context.graveler.set_rules(
        call, at.repository, protections=protections, hidden_patterns=hidden, if_match=etag
    )
    return _back(at)


async def _set_metadata(
    context: Context,
    at: RepositoryAt,
    form: Form,
    decide: Callable[[dict[str, str]], dict[str, str]],
) -> Response:
    etag, call = form.need("etag", _ETAG), context.change()
    settings = await context.graveler.get_settings(call, at.repository)
    wanted = decide(dict(settings.metadata))
    await context.graveler.set_metadata(call, at.repository, wanted, if_match=etag)
    return _back(at)


async def _views(context: Context, repository: str) -> tuple[list[bucket_pb.BucketView], bool]:
    """Returns the bucket views of a repository, and whether there may be more."""
    found: list[bucket_pb.BucketView] = []
    token = ""
    for _ in range(_VIEW_PAGES):
        try:
            page = await context.graveler.list_buckets(
                context.read(), views_only=True, page_size=_VIEWS_OF_PAGE, page_token=token
            )
        except TarnError as error:
            if error.kind is not Kind.DENIED:
                raise
            return found, False
        found += [each.view for each in page.buckets if each.view.repository_id == repository]
        token = page.next_page_token
        if not token:
            return found, False
    return found, True


def _review(form: Form) -> pb.ReviewRule:
    number = form.get("approvals", "").strip()
    if not number.isdecimal() or len(number) > 2:
        text = "the number of approvals is missing, or is no number from 0 to 10"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    wanted = form.get("stale", STALE[pb.STALE_APPROVALS_IGNORE])
    stale = next((number for number, name in STALE.items() if name == wanted), None)
    if stale is None:
        text = f"stale approvals are one of {', '.join(STALE.values())}"
        raise ApiError(400, text, reason="INVALID_ARGUMENT")
    owned: dict[str, list[str]] = {}
    for line in form.get("owners", "").splitlines():
        if line.strip():
            prefix, equals, users = line.rpartition("=")
            if not equals or not _names(users):
                text = f"the line {line[:80]!r} of the owners is not of the form PREFIX=USER, USER"
                raise ApiError(400, text, reason="INVALID_ARGUMENT")
            owned.setdefault(prefix.strip(), []).extend(_names(users))
    return pb.ReviewRule(
        approval_count=int(number),
        author_counts=bool(form.get("author-counts")),
        stale=stale,
        covers_destination=bool(form.get("covers-destination")),
        owners=[pb.OwnerRule(prefix=prefix, user_ids=users) for prefix, users in owned.items()],
    )


def _names(text: str) -> list[str]:
    """Returns names that commas or spaces part."""
    return list(dict.fromkeys(text.replace(",", " ").split()))


def _is_sent(text: str, sent: str) -> bool:
    """Whether a hidden field with a text is sent so: browsers make CR LF of each line break."""
    return sent in (text, re.sub(r"\r\n|\r|\n", "\r\n", text))
