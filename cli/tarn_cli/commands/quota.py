"""`tarn quota`: limits of repositories and users."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING

import click

from tarn.core.quota import Limits, QuotaKind
from tarn_cli.output import Record
from tarn_cli.session import Group, Session, pass_session

if TYPE_CHECKING:
    from tarn_cli.connection import Connection
    from tarn_proto.graveler.v1 import quota_service_pb2 as pb

__all__ = ["quota"]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_PAGE = 1000


class _Amount(click.ParamType[int]):
    """A number, or bytes such as 10GiB."""

    name = "number"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().removesuffix("iB").removesuffix("B")
        unit = text[-1:].upper() if text[-1:].isalpha() else ""
        digits = text[: len(text) - len(unit)]
        if not digits.isdecimal() or unit not in _UNITS:
            self.fail(f"{value!r} is not a number such as 5000 or 10GiB", param, ctx)
        return int(digits) * _UNITS[unit]


@click.group(cls=Group)
def quota() -> None:
    """Limits of repositories and users (docs/design/quotas.md). For administrators.

    \b
    Examples:
      tarn quota set lake --staged-objects 1000000 --branches 200
      tarn quota set --user ann --requests-per-second 100
      tarn quota show lake
      tarn quota list
      tarn quota clear lake
    """


def _subject(repository: str, user: str) -> tuple[QuotaKind, str]:
    if bool(repository) == bool(user):
        text = "name either a repository or, by --user, a user"
        raise click.UsageError(text)
    return (QuotaKind.USER, user) if user else (QuotaKind.REPOSITORY, repository)


_repository = click.argument("repository", default="")
_user = click.option("--user", default="", help="A user instead of a repository.")


@quota.command("set")
@_repository
@_user
@click.option("--staged-objects", type=_Amount(), help="Most uncommitted objects.")
@click.option("--staged-bytes", type=_Amount(), help="Most bytes of uncommitted objects.")
@click.option("--branches", type=_Amount(), help="Most branches.")
@click.option("--uploads", type=_Amount(), help="Most open multipart uploads.")
@click.option("--requests-per-second", type=_Amount(), help="Most S3 requests per second.")
@click.option("--bytes-per-second", type=_Amount(), help="Most bytes of S3 bodies per second.")
@pass_session
def set_quota(session: Session, /, repository: str, user: str, **changes: int | None) -> None:
    """Change limits; 0 removes one. Limits that are not named stay.

    The first change of a repository or user starts from the limits of the configuration.
    """
    kind, name = _subject(repository, user)
    wanted = {limit: value for limit, value in changes.items() if value is not None}
    if not wanted:
        text = "name a limit to change, such as --branches 100"
        raise click.UsageError(text)

    async def work(tarn: Connection) -> Limits:
        from tarn.client.quotas import limits_of

        present = limits_of((await tarn.graveler.get_quota(tarn.call(), kind, name)).limits)
        limits = Limits(**{**asdict(present), **wanted})
        await tarn.graveler.set_quota(tarn.call(), kind, name, limits)
        return limits

    limits = session.run(work)
    record = _record(kind, name, limits)
    if not session.as_json:
        record = {key: value or "no limit" for key, value in record.items()}
    session.output.one(record)


@quota.command()
@_repository
@_user
@pass_session
def show(session: Session, repository: str, user: str) -> None:
    """Show limits, and the present usage of a repository."""
    kind, name = _subject(repository, user)

    async def work(tarn: Connection) -> pb.GetQuotaResponse:
        return await tarn.graveler.get_quota(tarn.call(), kind, name)

    found = session.run(work)
    record: dict[str, object] = {kind.value: name, "set": found.is_set}
    for field in fields(Limits):
        limit = getattr(found.limits, field.name)
        record[field.name] = limit or "no limit"
        if found.HasField("used") and not field.name.endswith("_per_second"):
            record[f"{field.name}_used"] = getattr(found.used, field.name)
    session.output.one(record)


@quota.command("list")
@pass_session
def list_quotas(session: Session) -> None:
    """List the repositories and users with limits of their own."""

    async def work(tarn: Connection) -> list[pb.Quota]:
        found: list[pb.Quota] = []
        token = ""
        while True:
            page = await tarn.graveler.list_quotas(tarn.call(), page_size=_PAGE, page_token=token)
            found += page.quotas
            token = page.next_page_token
            if not token:
                return found

    session.output.many(
        (
            {
                "kind": each.kind,
                "name": each.name,
                **{field.name: getattr(each.limits, field.name) for field in fields(Limits)},
            }
            for each in session.run(work)
        ),
        ["kind", "name", *(field.name for field in fields(Limits))],
    )


@quota.command()
@_repository
@_user
@pass_session
def clear(session: Session, repository: str, user: str) -> None:
    """Remove the limits of a repository or user; those of the configuration are in force again."""
    kind, name = _subject(repository, user)

    async def work(tarn: Connection) -> None:
        await tarn.graveler.set_quota(tarn.call(), kind, name, Limits())

    session.run(work)
    session.output.remark(f"{kind} {name} has no limits of its own any more")


def _record(kind: QuotaKind, name: str, limits: Limits) -> Record:
    return {kind.value: name, **asdict(limits)}
