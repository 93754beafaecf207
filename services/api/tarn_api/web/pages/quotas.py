"""Quotas: the limits of repositories and users. A quota belongs to a name, and the last change stays."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from tarn.client.quotas import limits_of
from tarn.core.access.actions import Action
from tarn.core.quota import RATES, Limits, QuotaKind, parse_kind
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE

__all__ = ["QuotasAt", "ShownQuota", "quota_of", "quotas", "set_quota"]

_DIGITS_MAX: Final = 19


class QuotasAt(Struct, kw_only=True):
    """A page of quotas."""

    token: str = ""


@dataclass(frozen=True, slots=True)
class ShownLimit:
    """A limit.

    Attributes:
        name: of the limit.
        value: 0: there is none.
        used: now; None: it is not known.
    """

    name: str
    value: int
    used: int | None = None

    @property
    def words(self) -> str:
        """Its name for people."""
        return self.name.replace("_", " ").capitalize()

    @property
    def is_bytes(self) -> bool:
        """Whether it counts bytes."""
        return "bytes" in self.name


@dataclass(frozen=True, slots=True)
class ShownQuota:
    """The quota of a repository or user.

    Attributes:
        is_set: whether it was set for this name; otherwise the limits are those of the configuration.
        may_change: whether the caller may change it.
    """

    kind: QuotaKind
    name: str
    limits: tuple[ShownLimit, ...]
    is_set: bool
    may_change: bool


async def quota_of(context: Context, kind: QuotaKind, name: str) -> ShownQuota | None:
    """Returns the quota of a repository or user that exists; None: the caller may not see it."""
    resource = f"quota/{kind}/{name}"
    if not context.may(Action.READ_QUOTAS, resource):
        return None
    found = await context.graveler.get_quota(context.read(), kind, name)
    limits, used = limits_of(found.limits), limits_of(found.used)
    shown = tuple(
        ShownLimit(
            each.name,
            getattr(limits, each.name),
            getattr(used, each.name) if found.HasField("used") and each.name not in RATES else None,
        )
        for each in fields(Limits)
        if kind is QuotaKind.REPOSITORY or each.name in RATES
    )
    return ShownQuota(kind, name, shown, found.is_set, context.may(Action.WRITE_QUOTAS, resource))


async def quotas(context: Context, at: QuotasAt) -> Page:
    """The quotas that are set, and the limits of all others."""
    page = await context.graveler.list_quotas(
        context.read(), page_size=PAGE_SIZE, page_token=at.token
    )
    names = [each.name for each in fields(Limits)]
    return render(
        context,
        "quotas.html",
        title="Quotas",
        crumbs=[Crumb("Administration", links.to("administration")), Crumb("Quotas")],
        quotas=page.quotas,
        defaults=[
            ("each other repository", page.repository_default),
            ("each other user", page.user_default),
        ],
        limits=[ShownLimit(name, 0) for name in names],
        more=page.next_page_token,
    )


async def set_quota(context: Context, at: Struct, form: Form) -> Response:
    """Replaces all limits of a repository or user; without any, those of the configuration hold again."""
    del at
    kind = parse_kind(form.get("kind", ""))
    name = form.need("name", "the name of the repository or user")
    is_user = kind is QuotaKind.USER
    context.trace.values = {"userId" if is_user else "repository": name}
    limits = Limits(
        **{
            each.name: _number(form, each.name)
            for each in fields(Limits)
            if not is_user or each.name in RATES
        }
    )
    await context.graveler.set_quota(context.change(), kind, name, limits)
    return redirect(links.to("user", id=name) if is_user else links.to_repository(name, "settings"))


def _number(form: Form, name: str) -> int:
    text = form.get(name, "").strip() or "0"
    if not (text.isascii() and text.isdecimal()) or len(text) > _DIGITS_MAX:
        said = f"{name.replace('_', ' ')} is no whole number; leave it empty for no limit"
        raise ApiError(400, said, reason="INVALID_ARGUMENT")
    return int(text)
