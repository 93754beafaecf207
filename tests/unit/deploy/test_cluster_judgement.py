"""What the test on a cluster (`tests/cluster`) accepts of commits while pods are killed, and while none is."""

from __future__ import annotations

import json

import pytest
from cluster import Load


def load(note: str, outcome: str = "info") -> Load:
    return Load([{"kind": "commit", "outcome": outcome, "note": note}])


def failure(reason: str) -> str:
    """Returns what `tarn --json commit` writes to standard error."""
    return json.dumps({"error": reason, "message": "…", "hint": "", "exit_code": 6}) + "\n"


@pytest.mark.parametrize("reason", ["UNAVAILABLE", "OVERLOADED", "NOTHING_TO_COMMIT"])
def test_a_refused_commit_is_expected(reason: str) -> None:
    found = load(failure(reason))
    assert found.unexpected_commits(is_unknown_allowed=False) == []
    assert list(found.commit_failures) == [failure(reason)]
    assert not found.failures, "requests of S3 clients only"


@pytest.mark.parametrize("reason", ["OUTCOME_UNKNOWN", "DEADLINE_EXCEEDED"])
def test_an_unknown_outcome_is_expected_only_if_a_process_was_killed(reason: str) -> None:
    note = failure(reason)
    assert load(note).unexpected_commits(is_unknown_allowed=True) == []
    assert load(note).unexpected_commits(is_unknown_allowed=False) == [note]


@pytest.mark.parametrize(
    "note", [failure("BRANCH_NOT_FOUND"), failure("CORRUPT"), "tarn: unexpected KeyError", ""]
)
def test_any_other_failure_of_a_commit_is_unexpected(note: str) -> None:
    assert load(note).unexpected_commits(is_unknown_allowed=True) == [note]


def test_remarks_before_the_error_are_passed_over() -> None:
    note = "tarn: no answer yet\n" + failure("UNAVAILABLE")
    assert load(note).unexpected_commits(is_unknown_allowed=False) == []


def test_acknowledged_commits_are_no_failures() -> None:
    assert load('{"commit": "c1"}', "ok").unexpected_commits(is_unknown_allowed=False) == []
