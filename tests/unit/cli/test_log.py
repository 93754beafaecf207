"""The arguments of `tarn log`, and its drawing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from commit_graphs import Graph, graphs
from hypothesis import given

from tarn_cli.commands.log import Refs, parse_refs
from tarn_cli.exits import CliError
from tarn_cli.graph import Node, drawn
from tarn_cli.objects.times import parse_time


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lake/main", Refs("lake", "main")),
        ("lake/v1.2..main~3", Refs("lake", "main~3", "v1.2")),
        ("tarn://lake/a...b", Refs("lake", "b", "a", symmetric=True)),
        ("lake/main@{a..b}", Refs("lake", "main@{a..b}")),
        ("lake/main@{2 days ago}..main", Refs("lake", "main", "main@{2 days ago}")),
        ("lake/main..lake/fix", Refs("lake", "fix", "main")),
        ("lake/a...tarn://lake/b", Refs("lake", "b", "a", symmetric=True)),
    ],
)
def test_a_range_is_two_refs(text: str, expected: Refs) -> None:
    assert parse_refs(text) == expected


@pytest.mark.parametrize(
    "text", ["lake/..b", "lake/a..", "lake/a....b", "lake/a..b..c", "lake/a..other/b"]
)
def test_a_range_without_two_refs_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_refs(text)


NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T08:30:00+02:00", datetime(2026, 5, 1, 6, 30, tzinfo=UTC)),
        ("2026-05-01T08:30:00Z", datetime(2026, 5, 1, 8, 30, tzinfo=UTC)),
        ("1 day ago", datetime(2026, 11, 21, 12, tzinfo=UTC)),
        ("90 minutes ago", datetime(2026, 11, 22, 10, 30, tzinfo=UTC)),
    ],
)
def test_a_time_is_a_date_or_an_age(text: str, expected: datetime) -> None:
    assert parse_time(text, NOW).ToDatetime(UTC) == expected


@pytest.mark.parametrize(
    "text",
    ["yesterday", "3 years ago", "2026-13-01", "999999 weeks ago", "0001-01-01T00:00+14:00"],
)
def test_another_time_is_refused(text: str) -> None:
    with pytest.raises(CliError):
        parse_time(text, NOW)


def drawing(*nodes: tuple[str, str]) -> str:
    return "\n".join(drawn(Node(name, list(parents), [name]) for name, parents in nodes))


def test_lines_part_at_a_merge_and_join_at_the_common_parent() -> None:
    assert drawing(("n", "mb"), ("m", "ra"), ("b", "r"), ("a", "r"), ("r", "")) == (
        "* n\n|\\\n* | m\n|\\ \\\n| | * b\n| * | a\n|_|/\n|/\n* r"
    )


def test_a_line_that_ends_makes_room_for_those_beside_it() -> None:
    assert drawing(("a", "b"), ("c", "d"), ("b", ""), ("d", "")) == "* a\n| * c\n* | b\n /\n* d"


def test_further_lines_of_text_keep_the_lines_of_history() -> None:
    nodes = [Node("a", ["b"], ["a", "text"]), Node("c", ["b"], ["c"]), Node("b", [], ["b", "text"])]
    assert "\n".join(drawn(nodes)) == "* a\n| text\n| * c\n|/\n* b\n  text"


@given(graphs())
def test_every_commit_has_one_star_in_the_order_of_the_log(graph: Graph) -> None:
    ids = sorted(graph.ids, key=graph.rank)
    nodes = [Node(each, graph.commits[each].parents, [f"#{ids.index(each)}"]) for each in ids]
    lines = list(drawn(nodes))
    starred = [line for line in lines if "*" in line]
    assert [line.partition("#")[2] for line in starred] == [str(at) for at in range(len(ids))]
    assert all(line.count("*") == 1 for line in starred)
