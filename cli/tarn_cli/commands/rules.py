"""The commands of `tarn repo` that show and change the rules, the metadata and the default branch of a repository.

A command that changes a part of the rules reads all of them, changes that part, and sets them with the ETag that it
read. If another change came in between, it reads them again. With `--if-match`, it fails instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id
from tarn.core.review_rule import APPROVALS_MAX, StaleApprovals
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import parse_repository
from tarn_cli.options import not_empty
from tarn_cli.output import Record
from tarn_cli.session import Command, Session, pass_session
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["COMMANDS"]

_TRIES = 8

_NUMBERS = {
    ChangeKind.WRITE: pb.CHANGE_KIND_WRITE,
    ChangeKind.COMMIT: pb.CHANGE_KIND_COMMIT,
    ChangeKind.MERGE: pb.CHANGE_KIND_MERGE,
    ChangeKind.DELETE: pb.CHANGE_KIND_DELETE,
    ChangeKind.FORCE: pb.CHANGE_KIND_FORCE,
}
_STALE_NUMBERS = {
    StaleApprovals.KEEP: pb.STALE_APPROVALS_KEEP,
    StaleApprovals.IGNORE: pb.STALE_APPROVALS_IGNORE,
    StaleApprovals.DISMISS: pb.STALE_APPROVALS_DISMISS,
}
_STALE_NAMES = {number: stale.value for stale, number in _STALE_NUMBERS.items()}
_NAMES = {number: kind.value for kind, number in _NUMBERS.items()}
_DEFAULT_BLOCKED = tuple(kind for kind in PROTECTABLE if kind is not ChangeKind.MERGE)

_if_match = click.option(
    "--if-match",
    default="",
    callback=not_empty,
    metavar="ETAG",
    help="Change only the settings with this ETag (`tarn repo rules`).",
)


def _shown(settings: pb.GetSettingsResponse) -> Record:
    return {
        "default_branch": settings.default_branch_id,
        "read_only": settings.read_only,
        "hidden": list(settings.hidden_patterns),
        "protections": [
            {
                "pattern": each.pattern,
                "blocks": [_NAMES.get(kind, str(kind)) for kind in each.blocked],
                "exempt_users": list(each.exempt_user_ids),
                "exempt_roles": list(each.exempt_roles),
                **({"review": _review_record(each.review)} if each.HasField("review") else {}),
            }
            for each in settings.protections
        ],
        "metadata": dict(settings.metadata),
        "etag": settings.etag,
    }


def _review_record(rule: pb.ReviewRule) -> Record:
    return {
        "approvals": rule.approval_count,
        "author_may_approve": rule.author_counts,
        "stale_approvals": _STALE_NAMES.get(rule.stale, str(rule.stale)),
        "covers_destination": rule.covers_destination,
        "owners": {each.prefix: list(each.user_ids) for each in rule.owners},
    }


def _review_text(rule: pb.ReviewRule) -> str:
    stale = _STALE_NAMES.get(rule.stale, str(rule.stale))
    whose = "anybody" if rule.author_counts else "others than the author"
    until = " when either branch moves" if rule.covers_destination else " when the source moves"
    owners = "".join(
        f"; {each.prefix!r} is owned by {', '.join(each.user_ids)}" for each in rule.owners
    )
    noun = "approval" if rule.approval_count == 1 else "approvals"
    wanted = f"{rule.approval_count} {noun} by {whose}"
    return f"pull requests  {wanted}; {stale} approvals{until}{owners}"


def _text(settings: pb.GetSettingsResponse) -> list[str]:
    lines = [
        f"default branch  {settings.default_branch_id}",
        f"read-only       {'yes' if settings.read_only else 'no'}",
        f"hidden          {', '.join(settings.hidden_patterns) or 'none'}",
    ]
    for each in settings.protections:
        blocks = ", ".join(_NAMES.get(kind, str(kind)) for kind in each.blocked)
        free = [*each.exempt_user_ids, *(f"role {role}" for role in each.exempt_roles)]
        suffix = f", except for {', '.join(free)}" if free else ""
        lines.append(f"protected       {each.pattern}  blocks {blocks}{suffix}")
        if each.HasField("review"):
            lines.append(f"                {_review_text(each.review)}")
    lines += [
        f"metadata        {name}={value}" for name, value in sorted(settings.metadata.items())
    ]
    return [*lines, f"etag            {settings.etag}"]


async def _edit(
    tarn: Connection,
    repository: str,
    if_match: str,
    change: Callable[[pb.GetSettingsResponse], pb.SetRulesRequest],
) -> pb.GetSettingsResponse:
    """Applies a change to the newest rules; returns the settings that it made."""
    for attempt in range(1, _TRIES + 1):
        settings = await tarn.graveler.get_settings(tarn.call(), repository)
        wanted = change(settings)
        try:
            etag = await tarn.graveler.set_rules(
                tarn.call(),
                repository,
                protections=wanted.protections,
                hidden_patterns=wanted.hidden_patterns,
                if_match=if_match or settings.etag,
            )
        except TarnError as error:
            if if_match or error.reason is not Reason.SETTINGS_CHANGED or attempt == _TRIES:
                raise
            continue
        made = pb.GetSettingsResponse(etag=etag, default_branch_id=settings.default_branch_id)
        made.protections.extend(wanted.protections)
        made.hidden_patterns.extend(wanted.hidden_patterns)
        made.read_only = settings.read_only
        made.metadata.update(settings.metadata)
        return made
    raise AssertionError("unreachable")


def _show(session: Session, settings: pb.GetSettingsResponse) -> None:
    session.output.one(_shown(settings), _text(settings))


@click.command(cls=Command)
@click.argument("repository")
@pass_session
def rules(session: Session, repository: str) -> None:
    """Show protections, hidden branches, metadata and the default branch, with their ETag."""
    name = parse_repository(repository)
    _show(session, session.run(lambda tarn: tarn.graveler.get_settings(tarn.call(), name)))


@click.command(cls=Command)
@click.argument("repository")
@click.argument("pattern")
@click.option(
    "--block",
    "blocked",
    multiple=True,
    type=click.Choice([kind.value for kind in PROTECTABLE]),
    help="Kind of change to block; may be repeated.  [default: all but merge]",
)
@click.option(
    "--exempt-user", "users", multiple=True, metavar="USER", help="A user who may; repeatable."
)
@click.option(
    "--exempt-role", "roles", multiple=True, metavar="ROLE", help="A role that may; repeatable."
)
@click.option(
    "--approvals",
    type=click.IntRange(0, APPROVALS_MAX),
    help="Block everything but pull requests with so many approvals.",
)
@click.option(
    "--owner",
    "owners",
    multiple=True,
    metavar="PREFIX=USER",
    help="Changes below PREFIX need the approval of USER, or of another owner of it; repeatable.",
)
@click.option(
    "--author-may-approve", is_flag=True, help="The approval of a request's author counts."
)
@click.option(
    "--stale",
    type=click.Choice([each.value for each in StaleApprovals]),
    default=StaleApprovals.IGNORE.value,
    show_default=True,
    help="What happens to approvals when the source moves on.",
)
@click.option(
    "--stale-destination", is_flag=True, help="The same happens when the destination moves on."
)
@_if_match
@pass_session
def protect(
    session: Session,
    repository: str,
    pattern: str,
    blocked: tuple[str, ...],
    users: tuple[str, ...],
    roles: tuple[str, ...],
    approvals: int | None,
    owners: tuple[str, ...],
    author_may_approve: bool,
    stale: str,
    stale_destination: bool,
    if_match: str,
) -> None:
    """Protect the branches that match PATTERN; replaces an earlier protection of the same pattern.

    \b
    write   uncommitted writes: put, copy, upload, delete
    commit  commits on the branch itself: commit, revert, cherry-pick
    merge   merges into the branch
    delete  deletion of the branch
    force   reset, and moves of its head

    \b
    Examples:
      tarn repo protect lake main                          main takes only merges
      tarn repo protect lake 'release-*' --exempt-user ci  only ci changes releases directly
      tarn repo protect lake main --block write --block force
      tarn repo protect lake main --approvals 2 --owner raw/=ann
    """
    name = parse_repository(repository)
    review = None
    if approvals is not None:
        review = pb.ReviewRule(
            approval_count=approvals,
            author_counts=author_may_approve,
            stale=_STALE_NUMBERS[StaleApprovals(stale)],
            covers_destination=stale_destination,
            owners=_owners(owners),
        )
        if blocked:
            text = "--approvals blocks all kinds of changes, so it excludes --block"
            raise CliError(Exit.USAGE, text)
    elif owners or author_may_approve or stale_destination:
        text = "--owner, --author-may-approve and --stale-destination are about pull requests; add --approvals"
        raise CliError(Exit.USAGE, text)
    kinds = [ChangeKind(each) for each in blocked] or (
        _DEFAULT_BLOCKED if review is None else PROTECTABLE
    )
    new = pb.Protection(
        pattern=pattern,
        blocked=sorted({_NUMBERS[kind] for kind in kinds}),
        exempt_user_ids=list(dict.fromkeys(users)),
        exempt_roles=sorted(set(roles)),
        review=review,
    )

    def change(now: pb.GetSettingsResponse) -> pb.SetRulesRequest:
        others = [each for each in now.protections if each.pattern != pattern]
        place = next(
            (n for n, each in enumerate(now.protections) if each.pattern == pattern), len(others)
        )
        return _wanted([*others[:place], new, *others[place:]], now.hidden_patterns)

    _show(session, session.run(lambda tarn: _edit(tarn, name, if_match, change)))


def _owners(values: tuple[str, ...]) -> list[pb.OwnerRule]:
    owners: dict[str, list[str]] = {}
    for value in values:
        prefix, separator, user = value.rpartition("=")
        if not separator or not user:
            raise CliError(Exit.USAGE, f"--owner {value!r} is not PREFIX=USER")
        owners.setdefault(prefix, []).append(user)
    return [pb.OwnerRule(prefix=prefix, user_ids=users) for prefix, users in owners.items()]


def _wanted(protections: Iterable[pb.Protection], hidden: Iterable[str]) -> pb.SetRulesRequest:
    return pb.SetRulesRequest(protections=protections, hidden_patterns=hidden)


@click.command(cls=Command)
@click.argument("repository")
@click.argument("pattern")
@_if_match
@pass_session
def unprotect(session: Session, repository: str, pattern: str, if_match: str) -> None:
    """Remove the protection of PATTERN."""
    name = parse_repository(repository)

    def change(now: pb.GetSettingsResponse) -> pb.SetRulesRequest:
        left = [each for each in now.protections if each.pattern != pattern]
        if len(left) == len(now.protections):
            raise _no_pattern(name, pattern, "protection")
        return _wanted(left, now.hidden_patterns)

    _show(session, session.run(lambda tarn: _edit(tarn, name, if_match, change)))


def _no_pattern(repository: str, pattern: str, what: str) -> CliError:
    text = f"repository {repository} has no {what} {pattern!r}"
    return CliError(Exit.NOT_FOUND, text, "`tarn repo rules` shows them")


@click.command(cls=Command)
@click.argument("repository")
@click.argument("pattern")
@_if_match
@pass_session
def hide(session: Session, repository: str, pattern: str, if_match: str) -> None:
    """Hide the branches that match PATTERN from listings. They stay readable and writable.

    The default branch is listed all the same. `tarn branch list --hidden` lists hidden branches.

    \b
    Example:
      tarn repo hide lake 'tmp-*'
    """
    name = parse_repository(repository)

    def change(now: pb.GetSettingsResponse) -> pb.SetRulesRequest:
        return _wanted(now.protections, dict.fromkeys([*now.hidden_patterns, pattern]))

    _show(session, session.run(lambda tarn: _edit(tarn, name, if_match, change)))


@click.command(cls=Command)
@click.argument("repository")
@click.argument("pattern")
@_if_match
@pass_session
def unhide(session: Session, repository: str, pattern: str, if_match: str) -> None:
    """Remove the hidden PATTERN."""
    name = parse_repository(repository)

    def change(now: pb.GetSettingsResponse) -> pb.SetRulesRequest:
        if pattern not in now.hidden_patterns:
            raise _no_pattern(name, pattern, "hidden pattern")
        return _wanted(now.protections, [each for each in now.hidden_patterns if each != pattern])

    _show(session, session.run(lambda tarn: _edit(tarn, name, if_match, change)))


@click.command(name="read-only", cls=Command)
@click.argument("repository")
@click.option("--off", is_flag=True, help="Make the repository writable again.")
@_if_match
@pass_session
def read_only(session: Session, repository: str, off: bool, if_match: str) -> None:
    """Make a repository read-only: nothing but its rules can be changed, by any user."""
    name = parse_repository(repository)
    etag = session.run(
        lambda tarn: tarn.graveler.set_read_only(tarn.call(), name, not off, if_match=if_match)
    )
    text = f"{name} is {'writable' if off else 'read-only'}"
    session.output.one({"repository": name, "read_only": not off, "etag": etag}, text)


@click.command(name="set-default", cls=Command)
@click.argument("repository")
@click.argument("branch_id", metavar="BRANCH")
@click.option(
    "--expect",
    default="",
    callback=not_empty,
    metavar="BRANCH",
    help="Fail unless this is the default branch now.",
)
@pass_session
def set_default(session: Session, repository: str, branch_id: str, expect: str) -> None:
    """Make an existing branch the default branch.

    \b
    Example:
      tarn repo set-default lake trunk
    """
    name, new = parse_repository(repository), parse_branch_id(branch_id)
    former = session.run(
        lambda tarn: tarn.graveler.set_default_branch(
            tarn.call(), name, new, expected_branch_id=expect
        )
    )
    record = {"repository": name, "default_branch": new, "former_default_branch": former}
    session.output.one(record)


@click.command(cls=Command)
@click.argument("repository")
@click.option("--set", "pairs", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@click.option("--remove", "removed", multiple=True, metavar="NAME", help="May be repeated.")
@_if_match
@pass_session
def metadata(
    session: Session,
    repository: str,
    pairs: tuple[str, ...],
    removed: tuple[str, ...],
    if_match: str,
) -> None:
    """Show or change the metadata of a repository: names and values of your own.

    \b
    Examples:
      tarn repo metadata lake
      tarn repo metadata lake --set owner=sales --remove reviewer
    """
    name = parse_repository(repository)
    new = _pairs(pairs)

    async def work(tarn: Connection) -> dict[str, str]:
        for attempt in range(1, _TRIES + 1):
            settings = await tarn.graveler.get_settings(tarn.call(), name)
            wanted = {key: value for key, value in settings.metadata.items() if key not in removed}
            wanted.update(new)
            if not new and not removed:
                return wanted
            try:
                await tarn.graveler.set_metadata(
                    tarn.call(), name, wanted, if_match=if_match or settings.etag
                )
            except TarnError as error:
                if if_match or error.kind is not Kind.CONFLICT or attempt == _TRIES:
                    raise
                continue
            return wanted
        raise AssertionError("unreachable")

    found = dict(sorted(session.run(work).items()))
    session.output.one(found, [f"{key}={value}" for key, value in found.items()])


def _pairs(values: Iterable[str]) -> dict[str, str]:
    found = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not name or not separator:
            raise CliError(Exit.USAGE, f"--set {value!r} is not NAME=VALUE")
        found[name] = text
    return found


COMMANDS = (rules, protect, unprotect, hide, unhide, read_only, set_default, metadata)
"""The commands of this module, for the group `tarn repo`."""
