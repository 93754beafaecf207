"""Lines of a dump: what is written is read back, and nothing else is accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest

from tarn.core.change_kind import ChangeKind
from tarn.core.commit import Commit
from tarn.core.dump import (
    LINE_BYTES_MAX,
    BranchLine,
    Line,
    NoteLine,
    ReflogLine,
    TagLine,
    from_line,
    to_line,
)
from tarn.core.errors import Kind, TarnError
from tarn.core.head_change import HeadChange, HeadOperation
from tarn.core.ids import BranchId, CommitId, MetarangeId, TagId
from tarn.core.rules import ExemptUser, Protection, Rules, Settings

COMMIT = CommitId("ab" * 32)
ODD = 'é\u2028"\\\n\x00😀'

RECORDS: list[Line] = [
    Settings(),
    Settings(
        Rules(
            (
                Protection(
                    "rel*",
                    frozenset({ChangeKind.FORCE, ChangeKind.WRITE}),
                    (ExemptUser("ann", b"\1" * 16),),
                    frozenset({"Developer"}),
                ),
            ),
            ("tmp-*",),
            True,
        ),
        (("a", ODD), ("b", "")),
    ),
    BranchLine(BranchId("main"), COMMIT, 5, 0),
    TagLine(TagId("v1.0"), COMMIT, 5),
    ReflogLine(
        BranchId("main"),
        HeadChange(b"\1" * 16, 1, 7, HeadOperation.CREATE, "ann", b"\2" * 16, None, COMMIT),
    ),
    ReflogLine(
        BranchId("main"),
        HeadChange(b"\1" * 16, 2, 9, HeadOperation.CHERRY_PICK, "", b"\2" * 16, COMMIT, None, 7),
    ),
    Commit((), MetarangeId(COMMIT), "ann", ODD, 1, 0),
    Commit((COMMIT, COMMIT), MetarangeId(COMMIT), ODD, "", 1, 3, (("k", ODD),)),
    NoteLine(BranchId("main"), COMMIT, 5),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda each: type(each).__name__)
def test_a_record_survives_its_line(record: Line) -> None:
    line = to_line(record)
    assert "\n" not in line
    assert from_line(line) == record
    assert from_line(json.dumps({**json.loads(line), "later": 1})) == record, "unknown fields"


def changed(record: Line, **fields: object) -> str:
    return json.dumps({**json.loads(to_line(record)), **fields})


BRANCH, TAG, ENTRY, FIRST = RECORDS[2], RECORDS[3], RECORDS[4], RECORDS[6]
BAD: dict[str, Callable[[], str]] = {
    "no JSON": lambda: "{",
    "no object": lambda: "[]",
    "no kind": lambda: "{}",
    "an unknown kind": lambda: changed(BRANCH, kind="refs"),
    "a kind of another type": lambda: changed(BRANCH, kind=["branch"]),
    "a branch with a slash": lambda: changed(BRANCH, branch_id="../main"),
    "a tag that looks like a commit": lambda: changed(TAG, tag_id=COMMIT),
    "a prefix of a commit": lambda: changed(BRANCH, commit_id="ab"),
    "a negative sequence": lambda: changed(BRANCH, head_sequence=-1),
    "a sequence above any key": lambda: changed(ENTRY, sequence=1 << 63),
    "a truth value as a number": lambda: changed(BRANCH, head_sequence=True),
    "a time after the year 9998": lambda: changed(BRANCH, create_time_us=253_370_764_800_000_001),
    "an entry after the year 9998": lambda: changed(ENTRY, time_us=1 << 61),
    "a commit after the year 9998": lambda: to_line(
        replace(cast("Commit", FIRST), create_time_us=1 << 61)
    ),
    "a commit before 1970": lambda: to_line(replace(cast("Commit", FIRST), create_time_us=-2)),
    "an exempt user with a slash": lambda: to_line(RECORDS[1]).replace(
        '"user_id":"ann"', '"user_id":"a/b"'
    ),
    "an exempt user that is a surrogate": lambda: to_line(RECORDS[1]).replace(
        '"user_id":"ann"', r'"user_id":"\ud800"'
    ),
    "a time as text": lambda: changed(TAG, create_time_us="5"),
    "an empty entry id": lambda: changed(ENTRY, entry_id=""),
    "a long incarnation": lambda: changed(ENTRY, incarnation="00" * 65),
    "a user with a slash": lambda: changed(ENTRY, user_id="a/b"),
    "another message": lambda: changed(FIRST, message="forged"),
    "a lone surrogate": lambda: changed(FIRST, message="\ud800"),
    "a metarange outside": lambda: changed(FIRST, metarange_id="../x"),
    "settings that are not allowed": lambda: changed(RECORDS[1], hidden=["x"] * 101),
    "an unknown kind of change": lambda: to_line(RECORDS[1]).replace('"force"', '"all"'),
    "a long line": lambda: to_line(BRANCH) + " " * LINE_BYTES_MAX,
    "deep nesting": lambda: "[" * 100_000,
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD.keys())
def test_any_other_line_is_refused_and_named(line: Callable[[], str]) -> None:
    with pytest.raises(TarnError) as raised:
        from_line(line())
    assert raised.value.kind is Kind.INVALID
    assert len(raised.value.message) < 1000


def test_an_operation_of_a_newer_version_reads_as_other() -> None:
    record = from_line(changed(ENTRY, operation="rebase"))
    assert isinstance(record, ReflogLine)
    assert record.entry.operation is HeadOperation.OTHER
