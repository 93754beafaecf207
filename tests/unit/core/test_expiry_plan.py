"""The plan of an expiry, compared with a brute-force oracle over random histories."""

from __future__ import annotations

import random
from dataclasses import replace
from fnmatch import fnmatchcase as fnmatch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarn.core.errors import Kind, TarnError
from tarn.core.expiry_plan import History, HistoryCommit, HistoryTag, plan_expiry, plan_tags
from tarn.core.ids import CommitId
from tarn.core.retention import KEEP_EVERYTHING, BranchRule, Retention, TagRule

DAY_US = 86_400_000_000
NOW_US = 1_000 * DAY_US


def commit_id(number: int) -> CommitId:
    return CommitId(f"{number:064x}")


def line(days: list[float], start: int = 0) -> dict[CommitId, HistoryCommit]:
    """Commits one after the other, made so many days ago."""
    found = {}
    for number, age in enumerate(days):
        parents = (commit_id(start + number - 1),) if number else ()
        made = NOW_US - int(age * DAY_US)
        found[commit_id(start + number)] = HistoryCommit(parents, made, number)
    return found


def expired(history: History, *rules: BranchRule, detached: int | None = None) -> set[int]:
    planned = plan_expiry(history, Retention(rules, detached), NOW_US)
    return {int(each, 16) for each in planned}


def test_a_commit_is_kept_that_was_the_head_in_the_time() -> None:
    """The one of day 20 was the head until day 5, so time travel of seven days needs it."""
    history = History(line([40, 30, 20, 5, 1]), {"main": commit_id(4)})
    assert expired(history, BranchRule("main", keep_days=7)) == {0, 1}
    assert expired(history, BranchRule("main", keep_commits=2)) == {0, 1, 2}
    assert expired(history, BranchRule("main", 7, 4)) == {0}
    assert expired(history, BranchRule("main", 7), BranchRule("*", keep_commits=5)) == set()
    assert expired(history, BranchRule("dev", 7)) == set(), "main has no rule"
    assert plan_expiry(history, KEEP_EVERYTHING, NOW_US) == {}


def test_a_head_is_kept_whatever_the_rule_says() -> None:
    """No rule of a repository can say so: they keep one commit at least."""
    history = History(line([40, 30, 20]), {"main": commit_id(2)})
    assert expired(history, BranchRule("main", keep_commits=0)) == {0, 1}


def test_any_branch_that_keeps_a_commit_keeps_it() -> None:
    commits = line([40, 30, 20])
    history = History(commits, {"main": commit_id(2), "dev": commit_id(0)})
    assert expired(history, BranchRule("main", 7)) == {1}, "the head of dev stays"
    assert expired(history, BranchRule("*", keep_commits=1)) == {1}
    history.protected.add(commit_id(1))
    assert expired(history, BranchRule("*", keep_commits=1)) == set()


def test_an_exception_keeps_for_a_shorter_time_and_never_what_another_branch_keeps() -> None:
    """`tmp` forks from `main` at day 20; what both reach stays for the longer of their times."""
    default = BranchRule("*", 30, exceptions=("tmp",))
    commits = line([60, 50, 35, 20, 1])
    commits |= {
        commit_id(10): HistoryCommit((commit_id(3),), NOW_US - 15 * DAY_US, 4),
        commit_id(11): HistoryCommit((commit_id(10),), NOW_US - 10 * DAY_US, 5),
        commit_id(12): HistoryCommit((commit_id(11),), NOW_US - 9 * DAY_US, 6),
    }
    history = History(commits, {"main": commit_id(4), "tmp": commit_id(12)})
    assert expired(history, BranchRule("*", 30), BranchRule("tmp", 3)) == {0, 1}
    assert expired(history, default, BranchRule("tmp", 3)) == {0, 1, 10, 11}
    assert expired(history, default) == set(), "tmp has no rule, so it keeps its whole history"
    history.heads["late"] = commit_id(11)
    assert expired(history, default, BranchRule("tmp", 3)) == {0, 1}, "late keeps for 30 days"


def test_tags_go_when_their_time_is_over_and_protect_their_commits_in_that_plan() -> None:
    history = History(line([40, 30, 20]), {"main": commit_id(2)})
    old, young = (HistoryTag(commit_id(1), NOW_US - days * DAY_US, b"n") for days in (31, 30))
    history.tags = {"old": old, "young": young, "other": old}
    history.protected.add(commit_id(1))
    retention = Retention((BranchRule("*"),), tags=(TagRule("o*d", 30), TagRule("young", 30)))
    assert plan_tags(history, retention, NOW_US) == {"old": "tags o*d: keep_days 30"}
    assert set(plan_expiry(history, retention, NOW_US)) == {commit_id(0)}
    assert plan_tags(history, KEEP_EVERYTHING, NOW_US) == {}


def test_what_has_expired_is_not_told_again_and_each_rule_is_named() -> None:
    commits = line([40, 30, 1])
    commits[commit_id(0)] = replace(commits[commit_id(0)], is_expired=True)
    history = History(commits, {"main": commit_id(2)})
    planned = plan_expiry(history, Retention((BranchRule("main", keep_commits=1),)), NOW_US)
    assert planned == {commit_id(1): "branches main: keep_commits 1"}


def test_a_commit_of_a_branch_is_let_go_by_the_rule_of_the_branch() -> None:
    """Its reader is told which rule it was."""
    history = History(line([40, 30, 20]), {"main": commit_id(2)})
    retention = Retention((BranchRule("main", keep_commits=1),), 7)
    planned = plan_expiry(history, retention, NOW_US)
    assert {int(each, 16) for each in planned} == {0, 1}
    assert not any(rule.startswith("detached") for rule in planned.values())


def test_detached_commits_expire_only_if_they_were_published() -> None:
    """The others may belong to an operation that moves its branch next year."""
    commits = line([40, 30, 20]) | line([50, 45, 42, 3], start=10)
    history = History(commits, {"main": commit_id(2)})
    assert expired(history, detached=7) == set()
    history.published = {commit_id(11)}
    assert expired(history, detached=7) == {10, 11}
    assert expired(history, detached=47) == {10}
    assert expired(history, BranchRule("*", keep_commits=1)) == {0, 1}


def test_a_clock_that_goes_backward_keeps_more() -> None:
    history = History(line([40, 3, 50, 49]), {"main": commit_id(3)})
    assert expired(history, BranchRule("main", keep_days=7)) == set()


def test_a_hole_in_the_history_of_a_branch_ends_the_plan() -> None:
    commits = line([40, 30, 20])
    del commits[commit_id(1)]
    with pytest.raises(TarnError, match="nothing may expire") as raised:
        expired(History(commits, {"main": commit_id(2)}), BranchRule("dev", 7))
    assert raised.value.kind is Kind.CORRUPT


def test_branches_that_share_their_history_take_no_more_time_each() -> None:
    """A thousand branches at one head: each line is walked once, not a thousand times."""
    count = 20_000
    commits = line([count - number for number in range(count)])
    heads = {f"b{number}": commit_id(count - 1 - number % 7) for number in range(1_000)}
    planned = expired(History(commits, heads), BranchRule("*", keep_days=10))
    assert planned == set(range(count - 11))


@settings(max_examples=150)
@given(st.integers(0, 1 << 32))
def test_the_plan_is_that_of_the_oracle(seed: int) -> None:
    rng = random.Random(seed)
    history = random_history(rng)
    rules = tuple(
        BranchRule(
            rng.choice(["*", "b1", "b2", "b*", "zz"]),
            rng.choice([None, 3, 9]),
            rng.randint(1, 4),
            tuple(rng.sample(["b0", "b1", "b?", "zz"], rng.choice([0, 0, 1, 2]))),
        )
        for _ in range(rng.randint(0, 3))
    )
    retention = Retention(rules, rng.choice([None, 2, 8]))
    planned = plan_expiry(history, retention, NOW_US)
    assert set(planned) == oracle(history, retention)


def random_history(rng: random.Random) -> History:
    history = History()
    for number in range(rng.randint(1, 25)):
        known = list(history.commits)
        parents = tuple(dict.fromkeys(rng.choices(known, k=min(len(known), rng.randint(1, 2)))))
        above = max((history.commits[each].generation for each in parents), default=-1)
        age = rng.choice([0.5, 30 - number, rng.randint(0, 30)])
        history.commits[commit_id(number)] = HistoryCommit(
            parents, NOW_US - int(age * DAY_US), above + 1, is_expired=rng.random() < 0.2
        )
    known = list(history.commits)
    for name in range(rng.randint(0, 4)):
        history.heads[f"b{name}"] = rng.choice(known)
    history.protected = set(rng.choices(known, k=rng.randint(0, 2)))
    history.published = set(rng.choices(known, k=rng.randint(0, 4)))
    return history


def oracle(history: History, retention: Retention) -> set[CommitId]:
    """The same by its definition, commit by commit."""
    commits = history.commits

    def ancestors(start: CommitId) -> set[CommitId]:
        found, left = {start}, [start]
        while left:
            for parent in commits[left.pop()].parents:
                if parent not in found:
                    found.add(parent)
                    left.append(parent)
        return found

    time_of = {
        each: max(commits[one].create_time_us for one in ancestors(each)) for each in commits
    }
    lines = {}
    for name, head in history.heads.items():
        at, found = head, [head]
        while commits[at].parents:
            at = commits[at].parents[0]
            found.append(at)
        lines[name] = found
    kept = set(history.protected)
    ruled: set[CommitId] = set()
    for name, found in lines.items():
        rules = [
            each
            for each in retention.branches
            if fnmatch(name, each.match) and not any(fnmatch(name, one) for one in each.exceptions)
        ]
        ruled |= set(found) if rules else set()
        for number, each in enumerate(found):
            replaced = NOW_US if not number else time_of[found[number - 1]]
            if not rules or not number:
                kept.add(each)
            for rule in rules:
                young = rule.keep_days is not None and replaced >= NOW_US - rule.keep_days * DAY_US
                if young or number < rule.keep_commits:
                    kept.add(each)
    published = set().union(
        *map(ancestors, {*history.published, *history.protected, *history.heads.values()})
    )
    days = retention.detached_days
    old_us = NOW_US - (days or 0) * DAY_US
    return {
        each
        for each, commit in commits.items()
        if not commit.is_expired
        and each not in kept
        and (each in ruled or (days is not None and each in published and time_of[each] < old_us))
    }
