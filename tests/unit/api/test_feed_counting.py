"""Differences between two passes over the counts of a branch."""

from __future__ import annotations

import pytest

from tarn_api.feed import counting
from tarn_api.feed.counting import StagedCounts
from tarn_api.feed.events import Position
from tarn_proto.graveler.v1 import diff_service_pb2 as pb
from tarn_proto.graveler.v1 import merge_service_pb2 as merge_pb


def page(more: str = "", **folders: tuple[int, ...]) -> pb.SummarizeUncommittedResponse:
    """Returns a page: added, changed, removed objects and added bytes by folder."""
    lines = []
    for path, counts in folders.items():
        added, changed, removed, size = (*counts, 0, 0, 0, 0)[:4]
        made = merge_pb.MergeCounts(
            added_count=added, changed_count=changed, removed_count=removed, added_bytes=size
        )
        lines.append(pb.FolderCounts(path=path, is_prefix=True, counts=made))
    return pb.SummarizeUncommittedResponse(folders=lines, next_page_token=more)


def told(counts: StagedCounts, *pages: pb.SummarizeUncommittedResponse) -> list[tuple[object, ...]]:
    found = [each for one in pages for each in counts.add(one)]
    return [(each.path, each.writes, each.deletes, each.undone) for each in found]


def test_the_first_pass_is_what_later_ones_are_compared_with() -> None:
    counts = StagedCounts()
    assert told(counts, page(a=(5,))) == []
    assert told(counts, page(a=(7, 1, 2), b=(1,))) == [("a", 3, 2, 0), ("b", 1, 0, 0)]
    assert told(counts, page(a=(7, 1, 2), b=(1,))) == []


def test_what_is_gone_is_undone_and_a_change_of_kind_is_not() -> None:
    counts = StagedCounts()
    told(counts, page(a=(3, 2), b=(1,)))
    assert told(counts, page(a=(3, 1, 1))) == [("a", 0, 1, 0), ("b", 0, 0, 1)]


def test_an_object_that_is_written_again_is_seen_by_its_bytes() -> None:
    counts = StagedCounts()
    told(counts, page(a=(1, 0, 0, 10)))
    assert told(counts, page(a=(1, 0, 0, 11))) == [("a", 1, 0, 0)]


def test_a_pass_of_several_pages_is_one_and_adds_a_folder_up() -> None:
    counts = StagedCounts()
    told(counts, page("t", a=(1,), b=(2,)), page(b=(3,), c=(4,)))
    assert told(counts, page("t", a=(1,), b=(2,))) == [], "it has not ended"
    assert counts.token == "t"
    assert told(counts, page(b=(5,), c=(4,))) == [("b", 2, 0, 0)]
    assert counts.token == ""


def test_after_a_commit_all_is_new_and_after_a_move_nothing_is() -> None:
    counts = StagedCounts()
    told(counts, page(a=(5,)))
    counts.begin(is_empty=True)
    assert told(counts, page(a=(2,))) == [("a", 2, 0, 0)]
    counts.begin(is_empty=False)
    assert told(counts, page(b=(9,))) == []


def test_a_pass_ends_after_some_folders_and_is_compared_as_far_as_both_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counting, "FOLDERS_MAX", 3)
    counts = StagedCounts()
    told(counts, page("t", b=(1,), c=(1,), d=(1,)))
    assert counts.token == "", "the next pass begins anew"
    assert told(counts, page("t", a=(1,), b=(2,), c=(1,))) == [("a", 1, 0, 0), ("b", 1, 0, 0)]
    assert told(counts, page(a=(1,), b=(2,), c=(9,), d=(9,))) == [], "c was not compared whole"
    assert told(counts, page(a=(1,), b=(2,), c=(9,), d=(10,))) == [("d", 1, 0, 0)]


@pytest.mark.parametrize("text", ["5", "5-00ff00ff-7"])
def test_an_id_is_read_as_it_was_written(text: str) -> None:
    position = Position.parse(text)
    assert str(position) == text


@pytest.mark.parametrize("text", ["", "x", "5-", "-5", "5-00ff00ff", "5-00FF00FF-7", "٣", "1" * 20])
def test_other_texts_are_no_ids(text: str) -> None:
    assert Position.parse(text) is None
