"""The log on random histories, against the definition of each option; pages that hold wide frontiers; the service."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from commit_graphs import Graph, Node, graphs
from google.protobuf.timestamp_pb2 import Timestamp
from graveler_service import Service, reason_of
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import CommitId
from tarn.kv.records import Repository
from tarn_graveler.graph.path_changes import PathChanges
from tarn_graveler.graph.walk import Span, Walk
from tarn_graveler.handlers.log import position_of, said_position
from tarn_graveler.records.commits import Commits
from tarn_graveler.views import log as ancestry
from tarn_graveler.views.log import History, LogFilter, Position

REPOSITORY = cast("Repository", SimpleNamespace(instance_uid="uid"))


class GraphCommits:
    """Serves the commits of a graph as `Commits` does."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    async def get_many(self, _repository: Repository, ids: Sequence[CommitId]) -> Any:
        return await self.graph.read(ids)

    async def get(self, _repository: Repository, commit_id: CommitId) -> Any:
        return self.graph.commits[commit_id]


def history_of(graph: Graph) -> History:
    return History(cast("Commits", GraphCommits(graph)), cast("PathChanges", None))


async def listed(
    graph: Graph, span: Span, limit: int, wanted: LogFilter | None = None, *, fresh: bool = False
) -> list[CommitId]:
    """All pages of a log. Each position goes through a page token; with `fresh`, each page meets another replica."""
    history = history_of(graph)
    found: list[CommitId] = []
    after: CommitId | None = None
    while True:
        page = await history.page(REPOSITORY, span, limit, after=after, wanted=wanted)
        assert len(page.commits) <= limit
        found += [commit_id for commit_id, _ in page.commits]
        if page.next is None:
            return found
        position = position_of(said_position(page.next))
        assert position == page.next
        span, after = Span(position.frontier, span.hiding, span.first_parent), position.after
        if fresh:
            history = history_of(graph)


def line(graph: Graph, commit_id: CommitId) -> set[CommitId]:
    """The line of first parents."""
    found = {commit_id}
    while parents := graph.commits[commit_id].parents:
        commit_id = parents[0]
        found.add(commit_id)
    return found


@pytest.mark.parametrize("width", [0, 1, 128])
@given(graphs(), st.data())
async def test_the_log_is_what_its_options_say(
    width: int, graph: Graph, data: st.DataObject
) -> None:
    left, right = (data.draw(st.sampled_from(graph.ids)) for _ in range(2))
    first_parent = data.draw(st.booleans())
    kind = data.draw(st.sampled_from(["all", "between", "either"]))
    wanted = LogFilter(
        since_us=data.draw(st.sampled_from([None, 0, 1, 2])),
        until_us=data.draw(st.sampled_from([None, 1, 2, 3])),
        committer=data.draw(st.sampled_from(["", "user0", "user1"])),
    )
    of = (lambda commit_id: line(graph, commit_id)) if first_parent else graph.ancestors
    span = Span.of(right, first_parent=first_parent)
    expected = of(right)
    if kind == "between":
        span = Span.between(left, right, first_parent=first_parent)
        expected = of(right) - graph.ancestors(left)
    elif kind == "either":
        span = Span.of_either(left, right, first_parent=first_parent)
        expected = (of(left) | of(right)) - (graph.ancestors(left) & graph.ancestors(right))
    kept = []
    for commit_id in sorted(expected, key=graph.rank):
        commit = graph.commits[commit_id]
        late = wanted.since_us is None or commit.create_time_us >= wanted.since_us
        early = wanted.until_us is None or commit.create_time_us < wanted.until_us
        if late and early and wanted.committer in {"", commit.committer}:
            kept.append(commit_id)
    limit, fresh = data.draw(st.integers(1, 5)), data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ancestry, "FRONTIER_MAX", width)
        patched.setattr(ancestry, "_PAGE_STEPS", data.draw(st.sampled_from([1, 3, 100])))
        assert await listed(graph, span, limit, wanted, fresh=fresh) == kept


def fan(count: int) -> Graph:
    """`count` branches of one commit, merged one after the other: they all are open beneath the last merge."""
    nodes: list[Node] = [(0, [], 0), *((n, [0], n) for n in range(1, count + 1))]
    for n in range(1, count + 1):
        nodes.append((count + n, [len(nodes) - 1 if n > 1 else 0, n], n))
    return Graph(nodes)


@pytest.mark.parametrize("fresh", [True, False])
async def test_no_history_is_dropped_however_many_lines_run_side_by_side(fresh: bool) -> None:
    graph = fan(300)
    tip = graph.ids[-1]
    expected = sorted(graph.ancestors(tip), key=graph.rank)
    assert await listed(graph, Span.of(tip), 100, fresh=fresh) == expected


async def test_a_page_of_a_wide_history_continues_where_the_last_one_ended() -> None:
    graph = fan(300)
    history = history_of(graph)
    span = Span.of(graph.ids[-1])
    first = await history.page(REPOSITORY, span, 250)
    assert first.next is not None
    assert first.next.after == first.commits[-1][0]
    graph.reads.clear()
    await history.page(REPOSITORY, span, 1, after=first.next.after)
    assert len(graph.reads) < 300  # the commits of the frontier, not the 250 before it as well
    graph.reads.clear()
    await history_of(graph).page(REPOSITORY, span, 1, after=first.next.after)
    assert len(graph.reads) > 500


async def test_a_history_that_is_too_wide_is_refused_and_not_cut() -> None:
    graph = fan(50)
    walk = Walk(graph.read, Span.of(graph.ids[-1]), width_max=20)
    await walk.add(Span.of(graph.ids[-1]).starts)

    async def walked() -> None:
        while not walk.is_over:
            await walk.step()

    with pytest.raises(TarnError, match="lines of history run side by side") as raised:
        await walked()
    assert raised.value.kind is Kind.EXHAUSTED


async def test_a_range_costs_its_own_commits() -> None:
    graph = Graph([(0, [], 0), *((n, [n - 1], n) for n in range(1, 5_000))])
    span = Span.between(graph.ids[-11], graph.ids[-1])
    assert await listed(graph, span, 100) == graph.ids[:-11:-1]
    assert len(set(graph.reads)) < 15


def test_a_position_is_short_enough_for_a_page_token() -> None:
    ids = [CommitId(f"{number:064x}") for number in range(ancestry.FRONTIER_MAX)]
    said = said_position(Position(tuple((each, 7) for each in ids), ids[0]))
    assert len(said) + 17 <= 8192 * 3 // 4


async def test_the_service_pages_over_a_range_while_its_branch_moves(service: Service) -> None:
    made = []
    for number in range(5):
        await service.put("a", number)
        answer = await service.graveler.create_commit(service.admin, "lake", "main", f"c{number}")
        made.append(answer.commit)
    page = await service.graveler.list_commits(
        service.admin, "lake", "main", page_size=2, exclude_ref=made[0].commit_id
    )
    assert [each.message for each in page.commits] == ["c4", "c3"]
    await service.put("a", 9)
    await service.graveler.create_commit(service.admin, "lake", "main", "later")
    page = await service.graveler.list_commits(
        service.admin,
        "lake",
        "main",
        exclude_ref=made[0].commit_id,
        page_token=page.next_page_token,
    )
    assert [each.message for each in page.commits] == ["c2", "c1"]
    assert not page.next_page_token


@pytest.mark.parametrize(
    "options",
    [
        {"first_parent": True},
        {"exclude_ref": "main~1"},
        {"since": Timestamp(seconds=1)},
        {"until": Timestamp(seconds=1 << 33)},
        {"committer": "root"},
        {"paths": ["a"]},
        {"prefixes": ["a"]},
    ],
)
async def test_a_page_token_is_of_one_log_only(service: Service, options: dict[str, Any]) -> None:
    for number in range(3):
        await service.put("a", number)
        await service.graveler.create_commit(service.admin, "lake", "main", f"c{number}")

    async def page(token: str, **chosen: Any) -> str:
        answer = await service.graveler.list_commits(
            service.admin, "lake", "main", page_size=1, page_token=token, **chosen
        )
        return answer.next_page_token

    plain = await page("")
    assert await page(plain)
    assert await reason_of(page(plain, **options)) is Reason.INVALID_PAGE_TOKEN


async def test_times_are_compared_in_microseconds(service: Service) -> None:
    await service.put("a", 1)
    made = (await service.graveler.create_commit(service.admin, "lake", "main", "one")).commit
    time = made.create_time

    async def messages(**options: Any) -> list[str]:
        page = await service.graveler.list_commits(service.admin, "lake", "main", **options)
        return [each.message for each in page.commits]

    assert "one" in await messages(since=time)
    assert "one" not in await messages(until=time)
    later = type(time)(seconds=time.seconds, nanos=time.nanos + 1000)
    assert "one" not in await messages(since=later)
    assert "one" in await messages(until=later)
    assert await messages(committer="root")
    assert await messages(committer="no-committer") == []


@pytest.mark.parametrize("options", [{"symmetric": True}, {"committer": "a/b"}, {"since": 1 << 62}])
async def test_a_request_that_makes_no_sense_is_refused(
    service: Service, options: dict[str, Any]
) -> None:
    if "since" in options:
        options = {"since": Timestamp(seconds=options["since"])}
    work = service.graveler.list_commits(service.admin, "lake", "main", **options)
    assert await reason_of(work) is Reason.INVALID_ARGUMENT
