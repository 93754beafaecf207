"""History: the form of a commit, and the log of a ref with its lines and filters."""

from __future__ import annotations

from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from msgspec import Struct
from starlette.responses import Response

from tarn.client.commits import ChangesPage
from tarn.core.moments import At, parse_moment
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_api.forms import Form
from tarn_api.web import links
from tarn_api.web.changes import changes_of
from tarn_api.web.choices import refs_offered
from tarn_api.web.drawings import HEIGHT, Drawing, drawings_of
from tarn_api.web.page import Crumb, Page, redirect, render
from tarn_api.web.place import PAGE_SIZE, RepositoryAt, way_to
from tarn_api.web.starting import ended_or_started
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["LogAt", "UncommittedAt", "commit", "log", "time_of", "uncommitted"]

_CALLS_MAX: Final = 10
_DAY_US: Final = 86_400 * 1_000_000


class UncommittedAt(Struct, kw_only=True):
    """A page of the uncommitted changes of a branch."""

    repository: str
    branch: str
    after: str = ""


class LogAt(Struct, kw_only=True):
    """A page of a history.

    Attributes:
        repository: the repository.
        ref: where it begins.
        path: only commits that change this path.
        prefix: only commits that change a path that begins with it.
        author: only commits of this user.
        since, until: only commits of these days, in UTC: the last one is included.
        text: only commits whose message has it, whatever the case.
        merges: `hide` leaves out merges.
        token: of the page.
    """

    repository: str
    ref: str
    path: str = ""
    prefix: str = ""
    author: str = ""
    since: str = ""
    until: str = ""
    text: str = ""
    merges: str = ""
    token: str = ""

    def filters(self) -> dict[str, str]:
        """Returns the filters by name. Empty ones filter nothing."""
        names = ("path", "prefix", "author", "since", "until", "text", "merges")
        return {name: getattr(self, name) for name in names}

    def shows(self, found: pb.Commit) -> bool:
        """Whether the page shows a commit that graveler found: graveler has no filter of these."""
        if self.merges == "hide" and len(found.parent_ids) > 1:
            return False
        return self.text.casefold() in found.message.casefold()


async def uncommitted(context: Context, at: UncommittedAt) -> Page:
    """The uncommitted changes of a branch, and the form that commits them."""
    call = context.read()

    async def fetch(size: int, token: str) -> ChangesPage:
        return await context.graveler.diff_uncommitted(
            call, at.repository, at.branch, after=at.after, page_size=size, page_token=token
        )

    found, more = await changes_of(fetch, at.after)
    return render(
        context,
        "uncommitted.html",
        title="Commit",
        crumbs=[*way_to(at.repository, at.branch), Crumb("Commit")],
        at=at,
        changes=found,
        more=more,
    )


async def commit(context: Context, at: RepositoryAt, form: Form) -> Response:
    """Commits the changes of a branch, and goes to the commit; or to the task, if that takes long."""
    branch = form.need("branch", "the branch")
    message = form.need("message", "the message").replace("\r\n", "\n")
    context.trace.values = {"repository": at.repository, "branch": branch}
    wanted = pb.CreateCommitRequest(repository_id=at.repository, branch_id=branch, message=message)
    task = await ended_or_started(context, context.graveler.start_commit, wanted)
    if not (made := task.commit.commit_id):
        return redirect(links.to_repository(at.repository, "task", task=task.task_id))
    return redirect(links.to_repository(at.repository, "commits", made, branch=branch))


async def log(context: Context, at: LogAt) -> Page:
    """The commits of a ref, newest first. Without filters they are connected, so that their lines are drawn."""
    commits, more = await _commits(context, at)
    drawings: list[Drawing] = []
    if not any(at.filters().values()):
        drawings = drawings_of(
            [(each.commit_id, tuple(dict.fromkeys(each.parent_ids))) for each in commits]
        )
    return render(
        context,
        "log.html",
        title=f"History of {at.path or at.ref}",
        crumbs=[*way_to(at.repository, at.ref), Crumb("History")],
        at=at,
        commits=commits,
        drawings=drawings,
        height=HEIGHT,
        more=more,
        names=await refs_offered(context, at.repository),
    )


async def _commits(context: Context, at: LogAt) -> tuple[list[pb.Commit], str]:
    """Returns a page of commits and the token of the next page. Few commits may pass the filters, so it ends after
    some calls, perhaps without any."""
    call, token = context.read(), at.token
    since, until = time_of(at.since, "Since"), time_of(at.until, "Until", is_end=True)
    found: list[pb.Commit] = []
    for _ in range(_CALLS_MAX):
        page = await context.graveler.list_commits(
            call,
            at.repository,
            at.ref,
            page_size=PAGE_SIZE,
            page_token=token,
            since=since,
            until=until,
            committer=at.author,
            paths=[at.path] if at.path else (),
            prefixes=[at.prefix] if at.prefix else (),
        )
        found += [each for each in page.commits if at.shows(each)]
        token = page.next_page_token
        if not token or len(found) >= PAGE_SIZE // 2:
            break
    return found, token


def time_of(text: str, name: str, *, is_end: bool = False) -> Timestamp | None:
    """Returns the time that a filter names: a day, or a day and a time; None for an empty text.

    Args:
        text: of the filter.
        name: of its field, for people.
        is_end: whether a day stands for its end.

    Raises:
        ApiError: 400.
    """
    if not text:
        return None
    moment = parse_moment(text)
    if not isinstance(moment, At):
        wanted = "a day such as 2026-05-01, or a day and a time such as 2026-05-01T08:30Z"
        raise ApiError(400, f"“{name}” must be {wanted}", reason="INVALID_ARGUMENT")
    time_us = moment.time_us + (_DAY_US if is_end and len(text) == len("2026-05-01") else 0)
    stamp = Timestamp()
    try:
        stamp.FromMicroseconds(time_us)
    except ValueError as error:
        raise ApiError(400, f"“{name}” is no year from 1 to 9999", reason="INVALID") from error
    return stamp
