"""Retention rules as JSON: what is accepted, what is refused, and that nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.errors import Kind, TarnError
from tarn.core.retention import (
    BRANCH_RULES_MAX,
    DAYS_MAX,
    KEEP_EVERYTHING,
    BranchRule,
    ObjectRules,
    Retention,
    TagRule,
    parse_retention,
    retention_to_json,
)

patterns = st.text("ab*?-é", min_size=1, max_size=5)
rules = st.builds(
    BranchRule,
    patterns,
    st.none() | st.integers(1, DAYS_MAX),
    st.integers(1, 1_000_000),
    st.lists(patterns, max_size=2).map(tuple),
)
retentions = st.builds(
    Retention,
    st.lists(rules, max_size=4).map(tuple),
    st.none() | st.integers(1, DAYS_MAX),
    st.lists(st.builds(TagRule, patterns, st.integers(1, DAYS_MAX)), max_size=3).map(tuple),
    st.builds(
        ObjectRules,
        st.lists(st.sampled_from(["main", "dev", "exp-1"]), max_size=3).map(tuple),
        st.none() | st.integers(1, DAYS_MAX),
    ),
    st.none() | st.integers(1, DAYS_MAX),
)


@given(retentions)
def test_rules_survive_their_json(retention: Retention) -> None:
    assert parse_retention(retention_to_json(retention)) == retention


def test_no_rules_keep_everything() -> None:
    assert parse_retention(" \n") == parse_retention("{}") == KEEP_EVERYTHING
    assert not KEEP_EVERYTHING
    assert retention_to_json(KEEP_EVERYTHING) == ""
    assert Retention(detached_days=1)
    assert Retention(tags=(TagRule("*", 1),))
    assert not Retention(tags=(TagRule("*", 1),)).expires_commits
    assert not Retention(objects=ObjectRules(("main",), 7)), "they let nothing expire by themselves"
    assert not Retention(abort_upload_days=1), "no collection has to look"


def test_what_was_written_since_a_time_is_kept() -> None:
    assert ObjectRules(("main",)).written_since_us(10**16) == 0
    assert ObjectRules((), 1).written_since_us(86_400_000_000 + 5) == 5
    assert ObjectRules((), 1).written_since_us(5) == 1, "0 would stand for no rule"


BRANCH = {"match": "main", "keep_days": 7}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{", "no JSON"),
        ("[" * 20_000, "no JSON"),
        ("[]", "must be an object"),
        ({"brunches": []}, "unknown field 'brunches'"),
        ({"branches": {}}, "must be a list"),
        ({"branches": [BRANCH] * (BRANCH_RULES_MAX + 1)}, "at most 100"),
        ({"branches": [{"match": "main"}]}, "needs keep_days or keep_commits"),
        ({"branches": [{"keep_days": 1}]}, "match must be a pattern"),
        ({"branches": [{"match": "", "keep_days": 1}]}, "1 to"),
        ({"branches": [{"match": "a\\", "keep_days": 1}]}, "backslash"),
        ({"branches": [{"match": "x" * 257, "keep_days": 1}]}, "at most 256 bytes"),
        ({"branches": [BRANCH | {"keep": 1}]}, "unknown field 'keep'"),
        ({"branches": [BRANCH | {"except": "a"}]}, "except must be a list"),
        ({"branches": [BRANCH | {"except": []}]}, "leave it out"),
        ({"branches": [BRANCH | {"except": None}]}, "except must be a list"),
        ({"branches": [BRANCH | {"except": [1]}]}, "branches[0].except must be a pattern"),
        ({"branches": [BRANCH | {"except": [""]}]}, "1 to"),
        ({"branches": [BRANCH | {"except": ["a"] * 51}] * 2}, "more than 100 exceptions"),
        ({"tags": [{"match": "a", "keep_days": 1, "except": ["b"]}]}, "unknown field 'except'"),
        ({"branches": [BRANCH | {"keep_days": 0}]}, "from 1 to"),
        ({"branches": [BRANCH | {"keep_days": True}]}, "whole number"),
        ({"branches": [BRANCH | {"keep_days": 1.5}]}, "whole number"),
        ({"branches": [BRANCH | {"keep_days": None}]}, "whole number"),
        ({"branches": [BRANCH | {"keep_commits": 1_000_001}]}, "from 1 to"),
        ({"tags": [{"match": "a", "keep_commits": 1}]}, "unknown field 'keep_commits'"),
        ({"tags": [{"match": "a"}]}, "tags[0] needs keep_days"),
        ({"uploads": {}}, "uploads.abort_days is missing"),
        ({"uploads": {"abort_days": 0}}, "uploads.abort_days must be a whole number"),
        ({"uploads": {"keep_days": 1}}, "unknown field 'keep_days'"),
        ({"tags": [{"keep_days": 1}]}, "tags[0].match must be a pattern"),
        ({"tags": [{"match": "a", "keep_days": 0}]}, "from 1 to"),
        ({"tags": {}}, "must be a list"),
        ({"objects": {}}, "needs keep_listed_on, keep_written_days or keep_read_days"),
        (
            {"objects": {"keep_listed_on": []}},
            "needs keep_listed_on, keep_written_days or keep_read_days",
        ),
        ({"objects": {"keep_listed_on": "main"}}, "must be a list"),
        ({"objects": {"keep_listed_on": [1]}}, "must be a list"),
        ({"objects": {"keep_listed_on": ["main"] * 11}}, "at most 10"),
        ({"objects": {"keep_listed_on": ["exp-*/x"]}}, "branch"),
        ({"objects": {"keep_written_days": 0}}, "from 1 to"),
        ({"objects": {"keep_read_days": 181}}, "from 1 to 180"),
        ({"objects": {"match": "a"}}, "unknown field 'match'"),
        ({"detached": {}}, "detached.keep_days is missing"),
        ({"detached": {"keep_days": DAYS_MAX + 1}}, "from 1 to"),
        ('{"detached": {"keep_days": 1}, "detached": {"keep_days": 2}}', "twice"),
        ('{"detached": {"keep_days": NaN}}', "no number"),
        (" " * 40_000, "more than"),
    ],
)
def test_wrong_rules_are_refused_with_the_place(wrong: Any, told: str) -> None:
    text = wrong if isinstance(wrong, str) else json.dumps(wrong)
    with pytest.raises(TarnError) as raised:
        parse_retention(text)
    assert raised.value.kind is Kind.INVALID
    assert told in raised.value.message


def test_a_branch_has_all_rules_that_match() -> None:
    retention = parse_retention(
        '{"branches": [{"match": "exp-*", "keep_days": 7}, {"match": "*", "keep_commits": 3}]}'
    )
    assert [str(each) for each in retention.rules_of("exp-1")] == [
        "branches exp-*: keep_days 7",
        "branches *: keep_commits 3",
    ]
    assert len(retention.rules_of("main")) == 1
    assert KEEP_EVERYTHING.rules_of("main") == ()


def test_the_longest_rule_of_a_tag_decides() -> None:
    long, short, other = TagRule("v*", 90), TagRule("*-rc", 7), TagRule("w*", 1)
    for order in ((long, short, other), (short, other, long)):
        found = Retention(tags=order).rules_of_tags(["v1", "v1-rc", "x-rc", "w", "x"])
        assert found == [long, long, short, other, None]
    assert KEEP_EVERYTHING.rules_of_tags([]) == []


def test_a_rule_does_not_hold_for_its_exceptions() -> None:
    """A branch for which no rule holds keeps its whole history, also if it is an exception of the only rule."""
    text = """{"branches": [{"match": "*", "except": ["tmp", "exp-*"], "keep_days": 30},
                            {"match": "tmp", "keep_days": 1}]}"""
    retention = parse_retention(text)
    default, shorter = retention.branches
    assert retention.has_exceptions
    assert retention.rules_of("main") == (default,)
    assert retention.rules_of("tmp") == (shorter,)
    assert retention.rules_of("tmp2") == (default,)
    assert retention.rules_of("exp-1") == ()
    assert not Retention((BranchRule("*", 1),)).has_exceptions
    assert Retention((BranchRule("main", 1), default)).has_exceptions
