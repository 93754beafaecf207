"""`tarn pr`: pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tarn_cli.commands.commit import commit_record, commit_text
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import RefUri, parse_ref, parse_ref_of, parse_repository
from tarn_cli.options import not_empty
from tarn_cli.output import Record, shown_time
from tarn_cli.session import Group, Session, pass_session
from tarn_proto.graveler.v1 import pull_request_service_pb2 as pb

if TYPE_CHECKING:  # `tarn --help` does without
    from tarn_cli.connection import Connection

__all__ = ["pr"]

_STATES = {
    "open": pb.PULL_REQUEST_STATE_OPEN,
    "closed": pb.PULL_REQUEST_STATE_CLOSED,
    "merged": pb.PULL_REQUEST_STATE_MERGED,
}
_STATE_NAMES = {number: name for name, number in _STATES.items()}
_VERDICT_NAMES = {
    pb.REVIEW_VERDICT_APPROVE: "approve",
    pb.REVIEW_VERDICT_REQUEST_CHANGES: "request changes",
}
_EVENT_NAMES = {
    pb.PULL_REQUEST_EVENT_KIND_COMMENT: "comment",
    pb.PULL_REQUEST_EVENT_KIND_APPROVE: "approve",
    pb.PULL_REQUEST_EVENT_KIND_REQUEST_CHANGES: "request changes",
    pb.PULL_REQUEST_EVENT_KIND_DISMISS: "dismiss the review of",
    pb.PULL_REQUEST_EVENT_KIND_UPDATE: "update, before:",
    pb.PULL_REQUEST_EVENT_KIND_CLOSE: "close",
    pb.PULL_REQUEST_EVENT_KIND_REOPEN: "reopen",
    pb.PULL_REQUEST_EVENT_KIND_MERGE: "merge",
}
_SHORT = 12

_uri = click.argument("pull_uri", metavar="REPOSITORY/NUMBER")
_text = click.option("-m", "--message", "body", default="", help="What you have to say.")
_commit = click.option(
    "--commit",
    "commit_id",
    default="",
    callback=not_empty,
    metavar="COMMIT",
    help="The commit that you have reviewed, or the begin of its id; fail if the source has moved on.  [default: its "
    "head]",
)


def _record(found: pb.PullRequest) -> Record:
    record: dict[str, object] = {
        "id": found.pull_request_id,
        "state": _STATE_NAMES.get(found.state, str(found.state)),
        "title": found.title,
        "source": found.source_branch_id,
        "destination": found.destination_branch_id,
        "author": found.author,
        "created": shown_time(found.create_time),
        "updated": shown_time(found.update_time),
        "source_commit": found.source_commit_id,
        "destination_commit": found.destination_commit_id,
        "description": found.description,
        "reviews": [
            {
                "user": each.user_id,
                "verdict": _VERDICT_NAMES.get(each.verdict, str(each.verdict)),
                "source_commit": each.source_commit_id,
                "destination_commit": each.destination_commit_id,
                "time": shown_time(each.time),
                "dismissed_by": each.dismissed_by,
            }
            for each in found.reviews
        ],
    }
    if found.HasField("end_time"):
        record["ended"] = shown_time(found.end_time)
    if found.merge_commit_id:
        record["merge_commit"] = found.merge_commit_id
    return record


def _line(found: pb.PullRequest) -> str:
    state = _STATE_NAMES.get(found.state, str(found.state))
    sides = f"{found.source_branch_id} into {found.destination_branch_id}"
    return f"{found.pull_request_id}  {state}  {sides}  {found.title}"


def _lines(
    found: pb.PullRequest, blockers: list[str], events: list[pb.PullRequestEvent]
) -> list[str]:
    lines = [
        _line(found),
        f"author       {found.author}, {shown_time(found.create_time)}",
        f"source       {found.source_branch_id} at {found.source_commit_id[:_SHORT]}",
        f"destination  {found.destination_branch_id} at {found.destination_commit_id[:_SHORT]}",
    ]
    if found.merge_commit_id:
        lines.append(f"merged       {found.merge_commit_id}")
    lines += [f"             {each}" for each in found.description.splitlines()]
    for review in found.reviews:
        verdict = _VERDICT_NAMES.get(review.verdict, str(review.verdict))
        suffix = f", dismissed by {review.dismissed_by}" if review.dismissed_by else ""
        lines.append(
            f"review       {review.user_id}: {verdict} {review.source_commit_id[:_SHORT]}{suffix}"
        )
    lines += [f"blocked      {each}" for each in blockers]
    for event in events:
        kind = _EVENT_NAMES.get(event.kind, str(event.kind))
        about = f" on {event.path}" if event.path else ""
        lines.append(f"{shown_time(event.time)}  {event.user_id}  {kind}{about}")
        lines += [f"  {each}" for each in event.body.splitlines()]
    return lines


async def _events(tarn: Connection, uri: RefUri) -> list[pb.PullRequestEvent]:
    from tarn_cli.connection import collect

    return await collect(
        lambda size, token: tarn.graveler.list_pull_request_events(
            tarn.call(), uri.repository, uri.ref, page_size=size, page_token=token
        ),
        lambda page: page.events,
    )


@click.group(cls=Group)
def pr() -> None:
    """Pull requests: ask to merge a branch, review the changes, merge what was reviewed."""


@pr.command()
@click.argument("source_uri", metavar="REPOSITORY/SOURCE")
@click.argument("destination", metavar="BRANCH")
@click.option("-t", "--title", required=True, callback=not_empty, help="One line.")
@click.option("-d", "--description", default="", help="Free text.")
@pass_session
def create(
    session: Session, source_uri: str, destination: str, title: str, description: str
) -> None:
    """Ask to merge the branch SOURCE into BRANCH.

    \b
    Example:
      tarn pr create lake/fix main -t "Repair the dates of May"
    """
    source = parse_ref(source_uri)
    branch = parse_ref_of(destination, source.repository)
    made = session.run(
        lambda tarn: tarn.graveler.create_pull_request(
            tarn.call(), source.repository, source.ref, branch, title, description
        )
    )
    session.output.one(_record(made), _line(made))


@pr.command(name="list")
@click.argument("repository")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([*_STATES, "all"]),
    default=("open",),
    show_default=True,
    help="May be repeated.",
)
@click.option("--author", default="", callback=not_empty, help="Only those of this user.")
@click.option("--from", "source", default="", metavar="BRANCH", help="Only those with this source.")
@click.option(
    "--into", "destination", default="", metavar="BRANCH", help="Only those with this destination."
)
@pass_session
def list_(
    session: Session,
    repository: str,
    states: tuple[str, ...],
    author: str,
    source: str,
    destination: str,
) -> None:
    """List pull requests, newest first.

    \b
    Example:
      tarn pr list lake --state all --into main
    """
    from tarn_cli.connection import collect

    name = parse_repository(repository)
    wanted = [] if "all" in states else [_STATES[each] for each in states]
    found = session.run(
        lambda tarn: collect(
            lambda size, token: tarn.graveler.list_pull_requests(
                tarn.call(),
                name,
                states=wanted,
                author=author,
                from_branch=source,
                into_branch=destination,
                page_size=size,
                page_token=token,
            ),
            lambda page: page.pull_requests,
        )
    )
    columns = ("id", "state", "source", "destination", "author", "title")
    session.output.many(map(_record, found), columns, empty="no pull requests")


@pr.command()
@_uri
@pass_session
def show(session: Session, pull_uri: str) -> None:
    """Show a pull request: its reviews, what its merge still needs, and what happened to it.

    `tarn diff` and `tarn merge --preview` show its changes and conflicts.
    """
    uri = parse_ref(pull_uri)

    async def work(
        tarn: Connection,
    ) -> tuple[pb.GetPullRequestResponse, list[pb.PullRequestEvent]]:
        found = await tarn.graveler.get_pull_request(tarn.call(), uri.repository, uri.ref)
        return found, await _events(tarn, uri)

    found, events = session.run(work)
    blockers = list(found.blockers)
    record = {
        **_record(found.pull_request),
        "blockers": blockers,
        "events": [
            {
                "sequence": each.sequence,
                "kind": _EVENT_NAMES.get(each.kind, str(each.kind)),
                "user": each.user_id,
                "time": shown_time(each.time),
                "body": each.body,
                "path": each.path,
            }
            for each in events
        ],
    }
    session.output.one(record, _lines(found.pull_request, blockers, events))


@pr.command()
@_uri
@click.option("-m", "--message", "body", required=True, callback=not_empty, help="The comment.")
@click.option("--path", default="", help="The object it is about, or a folder: `raw/`.")
@pass_session
def comment(session: Session, pull_uri: str, body: str, path: str) -> None:
    """Comment on a pull request, or on a path of it."""
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.comment_pull_request(
            tarn.call(), uri.repository, uri.ref, body, path=path
        )
    )
    session.output.one({"sequence": made.sequence}, f"comment {made.sequence} of {uri}")


def _review(
    session: Session, pull_uri: str, verdict: pb.ReviewVerdict, commit_id: str, body: str
) -> None:
    uri = parse_ref(pull_uri)

    async def work(tarn: Connection) -> pb.PullRequest:
        found = await tarn.graveler.get_pull_request(tarn.call(), uri.repository, uri.ref)
        now = found.pull_request
        if not now.source_commit_id.startswith(commit_id.lower()):
            text = f"branch {now.source_branch_id} is at {now.source_commit_id}, not at {commit_id}"
            raise CliError(Exit.CONFLICT, text, "review the new commit", reason="REF_MOVED")
        return await tarn.graveler.review_pull_request(
            tarn.call(),
            uri.repository,
            uri.ref,
            verdict,
            now.source_commit_id,
            destination_commit_id=now.destination_commit_id,
            body=body,
        )

    made = session.run(work)
    text = f"{_VERDICT_NAMES[verdict]} {made.source_commit_id[:_SHORT]} of {made.source_branch_id}"
    session.output.one(_record(made), text)


@pr.command()
@_uri
@_commit
@_text
@pass_session
def approve(session: Session, pull_uri: str, commit_id: str, body: str) -> None:
    """Approve a pull request: the present head of its source.

    \b
    Example:
      tarn pr approve lake/3 --commit 1f2e3d4c5b6a
    """
    _review(session, pull_uri, pb.REVIEW_VERDICT_APPROVE, commit_id, body)


@pr.command(name="request-changes")
@_uri
@_commit
@_text
@pass_session
def request_changes(session: Session, pull_uri: str, commit_id: str, body: str) -> None:
    """Ask for changes. A rule for pull requests then refuses the merge until you approve, or are dismissed."""
    _review(session, pull_uri, pb.REVIEW_VERDICT_REQUEST_CHANGES, commit_id, body)


@pr.command()
@_uri
@click.argument("reviewer", metavar="USER")
@pass_session
def dismiss(session: Session, pull_uri: str, reviewer: str) -> None:
    """Dismiss the review of a user: it counts no more."""
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.dismiss_pull_request_review(
            tarn.call(), uri.repository, uri.ref, reviewer
        )
    )
    session.output.one(_record(made), f"dismissed the review of {reviewer}")


@pr.command()
@_uri
@click.option("-t", "--title", default=None, help="One line.")
@click.option("-d", "--description", default=None, help="Free text.")
@pass_session
def edit(session: Session, pull_uri: str, title: str | None, description: str | None) -> None:
    """Change title or description."""
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.update_pull_request(
            tarn.call(), uri.repository, uri.ref, title=title, description=description
        )
    )
    session.output.one(_record(made), _line(made))


@pr.command()
@_uri
@_text
@click.option("--squash", is_flag=True, help="Make a commit with one parent.")
@click.option(
    "--commit",
    "commit_id",
    default="",
    callback=not_empty,
    metavar="COMMIT",
    help="Merge this commit (full id); fail if the source has moved on.  [default: its head]",
)
@pass_session
def merge(session: Session, pull_uri: str, body: str, squash: bool, commit_id: str) -> None:
    """Merge a pull request. One that is merged already stays as it is.

    \b
    Example:
      tarn pr merge lake/3
    """
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.merge_pull_request(
            tarn.call(),
            uri.repository,
            uri.ref,
            message=body,
            squash=squash,
            source_commit_id=commit_id,
        )
    )
    session.output.one(commit_record(made.commit), commit_text(made.commit))


@pr.command()
@_uri
@pass_session
def close(session: Session, pull_uri: str) -> None:
    """Close a pull request without merging it."""
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.close_pull_request(tarn.call(), uri.repository, uri.ref)
    )
    session.output.one(_record(made), _line(made))


@pr.command()
@_uri
@pass_session
def reopen(session: Session, pull_uri: str) -> None:
    """Open a closed pull request again."""
    uri = parse_ref(pull_uri)
    made = session.run(
        lambda tarn: tarn.graveler.reopen_pull_request(tarn.call(), uri.repository, uri.ref)
    )
    session.output.one(_record(made), _line(made))
