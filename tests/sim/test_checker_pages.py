"""Lines that pages and differences leave out, or that stand for others: the checker, and the clients that read them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
from tests.sim.run import run_seed
from tests.sim.test_checker_refusals import MAIN, CleanHistory
from tests.support.check.history import OpKind, Outcome

from tarn.client.entries import ListingPage
from tarn.client.graveler import GravelerClient

_SEED_WITH_DIFFERENCES = 1
_SEED_WITH_PAGES = 111
"""A seed whose clients follow pages, and list with delimiters."""


def test_a_path_that_the_differences_leave_out_has_the_value_of_the_head() -> None:
    lake = CleanHistory()
    lake.did(OpKind.LIST, MAIN, "a", is_unchanged=True)
    lake.did(OpKind.LIST, MAIN, "b", is_unchanged=True)
    assert lake.broken() == []
    lake.did(OpKind.PUT, MAIN, "a", 9)
    assert lake.broken() == []
    lake.did(OpKind.LIST, MAIN, "a", is_unchanged=True)
    assert "I1" in lake.broken()


def test_a_path_may_be_left_out_beside_its_write_and_beside_the_commit_of_the_write() -> None:
    lake = CleanHistory()
    put = lake.begins(OpKind.PUT, MAIN, "b", 9)
    lake.did(OpKind.LIST, MAIN, "b", is_unchanged=True)
    lake.finish(put, Outcome.OK)
    look = lake.begins(OpKind.LIST, MAIN, "b", is_unchanged=True)
    lake.committed(MAIN, "c3", "c1", a=1, b=9)
    lake.finish(look, Outcome.OK)
    assert lake.broken() == []


def test_a_common_prefix_stands_for_a_path_that_is_there() -> None:
    lake = CleanHistory()
    lake.did(OpKind.PUT, MAIN, "d/e", 4)
    lake.did(OpKind.LIST, MAIN, "d/e", outcome=Outcome.INFO, below=("d/e", "d/f"))
    assert lake.broken() == []
    lake.did(OpKind.DELETE, MAIN, "d/e", 0)
    lake.did(OpKind.LIST, MAIN, "d/e", outcome=Outcome.INFO, below=("d/e", "d/f"))
    assert lake.broken() == ["I1"]


_list = GravelerClient.list_entries


async def _without_prefixes(*args: Any, **asked: Any) -> ListingPage:
    page = await _list(*args, **asked)
    kept = [n for n, entry in enumerate(page.entries) if entry]
    paths, entries = [page.paths[n] for n in kept], [page.entries[n] for n in kept]
    return replace(page, paths=paths, entries=entries)


async def _with_a_gap_between_pages(*args: Any, **asked: Any) -> ListingPage:
    page = await _list(*args, **asked)
    if asked.get("page_token"):
        return replace(page, paths=page.paths[1:], entries=page.entries[1:])
    return page


@pytest.mark.parametrize("listed", [_without_prefixes, _with_a_gap_between_pages])
def test_clients_notice_a_page_that_lacks_lines(listed: Any) -> None:
    with mock.patch.object(GravelerClient, "list_entries", listed):
        run = run_seed(_SEED_WITH_PAGES)
    assert {each.invariant for each in run.violations} & {"I1", "I4"}


_diff = GravelerClient.diff_uncommitted


async def _without_the_last_line(*args: Any, **asked: Any) -> Any:
    page = await _diff(*args, **asked)
    for lines in (page.paths, page.left_entries, page.right_entries):
        del lines[-1:]
    return page


def test_clients_notice_differences_that_lack_a_line() -> None:
    with mock.patch.object(GravelerClient, "diff_uncommitted", _without_the_last_line):
        run = run_seed(_SEED_WITH_DIFFERENCES)
    assert "I1" in {each.invariant for each in run.violations}


def test_a_run_with_pages_keeps_the_promises() -> None:
    run = run_seed(_SEED_WITH_PAGES)
    assert run.violations == []
    assert run.report.statistics["pages that follow another one"]
