"""The log: pages of history with filters. A page token holds the commits to continue with, so it pins its start."""

from __future__ import annotations

import base64
import json

from tarn.core.commit import AUTHOR_TIME, Commit, author_time_us
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId, parse_path, parse_user_id
from tarn.core.listing.changed_paths import PathQuery
from tarn.gate.permits import RepositoryPermit
from tarn.kv.records import Repository
from tarn.rpc.wire.pagination import Argument
from tarn_graveler.assembly import Graveler
from tarn_graveler.graph.walk import LEFT, RIGHT, Span
from tarn_graveler.handlers.requests import microseconds, paging, timestamp
from tarn_graveler.views.log import LogFilter, Position
from tarn_proto.graveler.v1 import commit_service_pb2 as pb

__all__ = ["LogHandler", "commit_message", "position_of", "said_position"]


_MARKED_CHARS = 41
"""Characters of a commit in a position: its marks, one digit, then its id in base 85."""

_PATHS_MAX = 100
_SUBJECT_CHARS_MAX = 200
_ID_CHARS = 64


def commit_message(commit_id: CommitId, commit: Commit) -> pb.Commit:
    """Returns a commit as a message."""
    metadata = dict(commit.metadata)
    authored_us = author_time_us(commit)
    if authored_us is not None:
        del metadata[AUTHOR_TIME]  # the field tells it
    return pb.Commit(
        commit_id=commit_id,
        parent_ids=commit.parents,
        metarange_id=commit.metarange_id,
        committer=commit.committer,
        message=commit.message,
        create_time=timestamp(commit.create_time_us),
        generation=commit.generation,
        metadata=metadata,
        author_time=None if authored_us is None else timestamp(authored_us),
    )


def said_position(position: Position) -> str:
    """Encodes a position: the id of the commit to skip to, if any, a slash, then the commits of the frontier."""
    marked = [
        f"{marks}{base64.b85encode(bytes.fromhex(commit_id)).decode()}"
        for commit_id, marks in position.frontier
    ]
    return f"{position.after or ''}/{''.join(marked)}"


def position_of(said: str) -> Position:
    """Decodes a position from a page token, whose signature was checked."""
    after, _, rest = said.partition("/")
    fields = [rest[at : at + _MARKED_CHARS] for at in range(0, len(rest), _MARKED_CHARS)]
    frontier = tuple(
        (CommitId(base64.b85decode(field[1:]).hex()), int(field[0])) for field in fields
    )
    return Position(frontier, CommitId(after) if after else None)


class LogHandler:
    """Answers the rpcs of `tarn.graveler.v1.CommitService` that follow history."""

    def __init__(self, graveler: Graveler) -> None:
        self._refs = graveler.refs
        self._history = graveler.history
        self._annotating = graveler.annotating
        self._page_keys = graveler.page_keys
        self._expired = graveler.expired

    async def page(
        self, request: pb.ListCommitsRequest, permit: RepositoryPermit
    ) -> pb.ListCommitsResponse:
        """Returns one page of history."""
        repository, grant = permit.repository, permit.grant
        wanted = _filter(request)
        tokens = await self._page_keys.tokens(
            grant.user_id, "CommitService.ListCommits", **_arguments(request)
        )
        said = tokens.decode(request.page_token)
        # The token is signed, so an earlier page of this listing led to these commits.
        start = position_of(said) if said else None
        span = await self._span(repository, request, start)
        page = await self._history.page(
            repository,
            span,
            paging(request.page_size),
            after=None if start is None else start.after,
            wanted=wanted,
        )
        next_token = "" if page.next is None else tokens.encode(said_position(page.next))
        expired = await self._expired.find(repository, [each for each, _ in page.commits])
        lines = [commit_message(commit_id, commit) for commit_id, commit in page.commits]
        for line in lines:
            if (expiry := expired.get(CommitId(line.commit_id))) is not None:
                line.expired_by = expiry.rule
        return pb.ListCommitsResponse(commits=lines, next_page_token=next_token)

    async def annotate(
        self, request: pb.AnnotatePathsRequest, permit: RepositoryPermit
    ) -> pb.AnnotatePathsResponse:
        """Returns one page of annotations. The page token holds the commit, so a moving branch changes nothing."""
        repository, grant = permit.repository, permit.grant
        tokens = await self._page_keys.tokens(
            grant.user_id,
            "CommitService.AnnotatePaths",
            repository=request.repository_id,
            ref=request.ref,
            prefix=request.prefix,
        )
        said = tokens.decode(request.page_token)
        if said:
            start, after = CommitId(said[:_ID_CHARS]), said[_ID_CHARS:]
        else:
            start = await self._refs.commit_of(repository, request.ref)
            after = request.after
        page = await self._annotating.page(
            repository,
            start,
            prefix=request.prefix,
            after=after,
            limit=paging(request.page_size),
        )
        places = {commit_id: place for place, commit_id in enumerate(page.commits)}
        return pb.AnnotatePathsResponse(
            paths=[line.path for line in page.lines],
            commit_indexes=[places[line.commit_id] for line in page.lines],
            is_final=[line.is_final for line in page.lines],
            commits=[_summary(*found) for found in page.commits.items()],
            next_page_token=""
            if page.next_after is None
            else tokens.encode(start + page.next_after),
        )

    async def _span(
        self, repository: Repository, request: pb.ListCommitsRequest, start: Position | None
    ) -> Span:
        """The part of history that is left to list. Only the first page resolves refs."""
        first_parent = request.first_parent
        if start is not None:
            hiding = 0
            if request.exclude_ref:
                hiding = LEFT | RIGHT if request.symmetric else LEFT
            return Span(start.frontier, hiding, first_parent)
        right = await self._refs.commit_of(repository, request.ref)
        if not request.exclude_ref:
            return Span.of(right, first_parent=first_parent)
        left = await self._refs.commit_of(repository, request.exclude_ref)
        between = Span.of_either if request.symmetric else Span.between
        return between(left, right, first_parent=first_parent)


def _summary(commit_id: CommitId, commit: Commit) -> pb.CommitSummary:
    return pb.CommitSummary(
        commit_id=commit_id,
        committer=commit.committer,
        create_time=timestamp(commit.create_time_us),
        subject=commit.message.partition("\n")[0][:_SUBJECT_CHARS_MAX],
    )


def _arguments(request: pb.ListCommitsRequest) -> dict[str, Argument]:
    """Every argument of a listing. It is signed with the page token."""
    return {
        "repository": request.repository_id,
        "ref": request.ref,
        "first_parent": request.first_parent,
        "exclude_ref": request.exclude_ref,
        "symmetric": request.symmetric,
        "since": request.since.SerializeToString() if request.HasField("since") else b"-",
        "until": request.until.SerializeToString() if request.HasField("until") else b"-",
        "committer": request.committer,
        "paths": json.dumps([list(request.paths), list(request.prefixes)]),
    }


def _filter(request: pb.ListCommitsRequest) -> LogFilter:
    """The filter that a request asks for.

    Raises:
        TarnError: INVALID_ARGUMENT.
    """
    if request.symmetric and not request.exclude_ref:
        raise _invalid("symmetric", "needs exclude_ref, the other side of the comparison")
    if request.committer:
        parse_user_id(request.committer)
    since = microseconds("since", request.since) if request.HasField("since") else None
    until = microseconds("until", request.until) if request.HasField("until") else None
    return LogFilter(since, until, request.committer, _paths(request))


def _paths(request: pb.ListCommitsRequest) -> PathQuery | None:
    """The paths that a request asks for; None if it asks for none."""
    count = len(request.paths) + len(request.prefixes)
    if not count:
        return None
    if count > _PATHS_MAX:
        raise _invalid("paths", f"and prefixes are at most {_PATHS_MAX}, not {count}")
    for path in request.paths:
        parse_path(path)
    for prefix in request.prefixes:
        if prefix:
            parse_path(prefix)
    return PathQuery(tuple(request.paths), tuple(request.prefixes))


def _invalid(field: str, rule: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, f"{field} {rule}", field=field)
