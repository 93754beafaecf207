"""Refusals: each right one, beside a wrong one of the same reason that the checker must report (I11)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.check.checker import check
from tests.support.check.history import ABSENT, GONE, Commit, History, Op, OpKind, Outcome
from tests.support.check.refusals import CONDITIONS

from tarn.core.errors import Reason

MAIN, DEV = "lake/main", "lake/dev"


class CleanHistory(History):
    """A history of one client without faults.

    `main` has committed a = 1 as `c1`; `dev` was made there, and has committed b = 2 as `c2`. Both are clean.
    """

    def __init__(self) -> None:
        super().__init__()
        self.did(OpKind.CREATE, MAIN, commit_id="c0")
        self.did(OpKind.PUT, MAIN, "a", 1)
        first = self.did(OpKind.COMMIT, MAIN, commit_id="c1")
        self.did(OpKind.CREATE, DEV, commit_id="c1")
        self.did(OpKind.PUT, DEV, "b", 2)
        second = self.did(OpKind.COMMIT, DEV, commit_id="c2")
        self.commits = {
            "c0": Commit("c0", "root", (), {}),
            "c1": Commit("c1", f"#{first.number}", ("c0",), {"a": 1}),
            "c2": Commit("c2", f"#{second.number}", ("c1",), {"a": 1, "b": 2}),
        }
        self.heads = {MAIN: "c1", DEV: "c2"}

    def did(
        self,
        kind: OpKind,
        branch: str,
        key: str | None = None,
        value: int | None = None,
        outcome: Outcome = Outcome.OK,
        **more: Any,
    ) -> Op:
        """Adds an operation that ends before the next one begins."""
        op = self.begins(kind, branch, key, value, **more)
        self.finish(op, outcome)
        return op

    def begins(
        self,
        kind: OpKind,
        branch: str,
        key: str | None = None,
        value: int | None = None,
        **more: Any,
    ) -> Op:
        """Adds an operation without an answer as yet."""
        op = self.begin("ann", kind, branch, key, value)
        for name, each in more.items():
            setattr(op, name, each)
        return op

    def refused(
        self,
        reason: str,
        kind: OpKind,
        branch: str,
        key: str | None = None,
        value: int | None = None,
        **more: Any,
    ) -> Op:
        """Adds an operation that was refused."""
        return self.did(kind, branch, key, value, Outcome.FAIL, **more, reason=reason)

    def committed(self, branch: str, commit_id: str, parent: str, **contents: int) -> Op:
        """Adds a commit."""
        op = self.did(OpKind.COMMIT, branch, commit_id=commit_id)
        self.commits[commit_id] = Commit(commit_id, f"#{op.number}", (parent,), contents)
        self.heads[branch] = commit_id
        return op

    def broken(self) -> list[str]:
        """Returns the violated invariants."""
        return [each.invariant for each in check(self).violations]


Act = Callable[[CleanHistory], object]


def merge(reason: str, **more: Any) -> Act:
    return lambda lake: lake.refused(reason, OpKind.MERGE, MAIN, **({"source_id": "c2"} | more))


def both(*acts: Act) -> Act:
    """Returns what performs one act after the other."""
    return lambda lake: [act(lake) for act in acts]


def main_changes_b(lake: CleanHistory) -> None:
    lake.did(OpKind.PUT, MAIN, "b", 3)
    lake.committed(MAIN, "c3", "c1", a=1, b=3)


def main_has_staged(lake: CleanHistory) -> None:
    lake.did(OpKind.PUT, MAIN, "b", 3)


def dev_is_removed(lake: CleanHistory) -> None:
    lake.did(OpKind.REMOVE, DEV)
    del lake.heads[DEV]


def main_was_moved(lake: CleanHistory) -> None:
    lake.did(OpKind.MOVE, MAIN, commit_id="c0", expected_id="c1", is_forced=True)
    lake.heads[MAIN] = "c0"


def beside_a_reset(lake: CleanHistory) -> None:
    reset = lake.begins(OpKind.RESET, MAIN)
    lake.refused("BRANCH_RESET", OpKind.COMMIT, MAIN)
    lake.finish(reset, Outcome.OK)


def after_a_reset(lake: CleanHistory) -> None:
    lake.did(OpKind.RESET, MAIN)
    lake.refused("BRANCH_RESET", OpKind.COMMIT, MAIN)


def beside_a_creation(lake: CleanHistory) -> None:
    creation = lake.begins(OpKind.CREATE, "lake/new", commit_id="c1")
    lake.refused("BRANCH_NOT_FOUND", OpKind.PUT, "lake/new", "b", 9)
    lake.finish(creation, Outcome.OK)


def beside_other_writes(lake: CleanHistory) -> None:
    put = lake.begins(OpKind.PUT, MAIN, "b", 9)
    lake.refused("TOO_MANY_RETRIES", OpKind.COMMIT, MAIN)
    lake.finish(put, Outcome.OK)


def dev_merged(lake: CleanHistory) -> None:
    op = lake.did(OpKind.MERGE, MAIN, source_id="c2", commit_id="m")
    lake.commits["m"] = Commit("m", f"#{op.number}", ("c1", "c2"), {"a": 1, "b": 2})
    lake.heads[MAIN] = "m"


def main_is_removed(lake: CleanHistory) -> None:
    lake.did(OpKind.REMOVE, MAIN)
    del lake.heads[MAIN]


def merged_into_each_other(lake: CleanHistory) -> None:
    main_changes_b(lake)
    lake.ops[-2].key = "c"
    lake.commits["c3"] = Commit("c3", lake.commits["c3"].message, ("c1",), {"a": 1, "c": 3})
    contents = {"a": 1, "b": 2, "c": 3}
    for commit_id, branch, own, other in (("m1", MAIN, "c3", "c2"), ("m2", DEV, "c2", "c3")):
        op = lake.did(OpKind.MERGE, branch, source_id=other, commit_id=commit_id)
        lake.commits[commit_id] = Commit(commit_id, f"#{op.number}", (own, other), contents)
        lake.heads[branch] = commit_id


def expires(lake: CleanHistory) -> None:
    lake.expired["c2"] = lake.clock


def put(reason: str, key: str = "b", **more: Any) -> Act:
    return lambda lake: lake.refused(reason, OpKind.PUT, MAIN, key, 9, **more)


def pick(reason: str, kind: OpKind = OpKind.REVERT, branch: str = DEV, **more: Any) -> Act:
    return lambda lake: lake.refused(reason, kind, branch, **({"source_id": "c2"} | more))


def move(reason: str, branch: str = DEV, **more: Any) -> Act:
    wish = {"commit_id": "c1", "expected_id": "c2"} | more
    return lambda lake: lake.refused(reason, OpKind.MOVE, branch, **wish)


WRONG: dict[str, Act] = {
    "a merge without a conflict": merge("MERGE_CONFLICT", source_id="", source_branch=DEV),
    "a conflict that one side wins": both(main_changes_b, merge("MERGE_CONFLICT", choice="dest")),
    "a revert without a conflict": pick("MERGE_CONFLICT"),
    "a merge that brings b": merge("NOTHING_TO_MERGE"),
    "a squash that brings b": merge("NOTHING_TO_MERGE", is_squash=True),
    "an empty merge that was asked for": both(
        dev_merged, merge("NOTHING_TO_MERGE", allows_empty=True)
    ),
    "a clean branch": merge("BRANCH_DIRTY"),
    "a move of a clean branch": move("BRANCH_DIRTY"),
    "a forced move": both(main_has_staged, move("BRANCH_DIRTY", MAIN, is_forced=True)),
    "a branch whose change is committed": both(main_changes_b, merge("BRANCH_DIRTY")),
    "a branch whose change was reset": both(
        main_has_staged, lambda lake: lake.did(OpKind.RESET, MAIN), merge("BRANCH_DIRTY")
    ),
    "a revert of the head's change": pick("NOTHING_TO_COMMIT"),
    "a cherry-pick of a new change": pick("NOTHING_TO_COMMIT", OpKind.PICK, MAIN),
    "a move from the present head": move("REF_MOVED"),
    "a move from the head that the refusal names": move("REF_MOVED", told_id="c2"),
    "a commit, and nothing was ever reset": lambda lake: lake.refused(
        "BRANCH_RESET", OpKind.COMMIT, MAIN
    ),
    "a commit after a reset": after_a_reset,
    "a valid creation": put("INVALID_ARGUMENT", expected=ABSENT),
    "a plain put": put("INVALID_ARGUMENT"),
    "a revert of a commit with one parent": pick("INVALID_ARGUMENT"),
    "a put on a living branch": put("BRANCH_NOT_FOUND"),
    "a commit of a living branch": lambda lake: lake.refused(
        "BRANCH_NOT_FOUND", OpKind.COMMIT, MAIN
    ),
    "a merge of a living branch": merge("REF_NOT_FOUND", source_id="", source_branch=DEV),
    "a removal of a living branch": lambda lake: lake.refused(
        "BRANCH_NOT_FOUND", OpKind.REMOVE, DEV
    ),
    "a creation of a removed branch": both(
        dev_is_removed,
        lambda lake: lake.refused("BRANCH_EXISTS", OpKind.CREATE, DEV, commit_id="c1"),
    ),
    "a creation of a removed repository": both(
        main_is_removed,
        lambda lake: lake.refused("REPOSITORY_EXISTS", OpKind.CREATE, MAIN),
    ),
    "a put into a living repository": put("REPOSITORY_NOT_FOUND"),
    "a merge with one merge base": merge("TOO_MANY_MERGE_BASES"),
    "an address of today": put("ADDRESS_IN_FUTURE"),
    "a put without a condition": put("PRECONDITION_FAILED"),
    "a condition that holds": put("PRECONDITION_FAILED", expected=ABSENT),
    "a condition that holds by what the refusal names": put(
        "PRECONDITION_FAILED", "a", expected=1, observed=1
    ),
    "an object that is there": put("ENTRY_NOT_FOUND", "a", expected=1),
    "a commit that has not expired": merge("EXPIRED_COMMIT"),
    "a young address": put("ADDRESS_TOO_OLD"),
    "an upload that is open": put("UPLOAD_NOT_FOUND", is_upload=True),
    "a view that was not changed": put("BUCKET_MOVED"),
    "a view that was not deleted": put("BUCKET_NOT_FOUND"),
    "a caller who has the right": put("ACCESS_DENIED"),
    "a session key that lives": put("CALLER_TOKEN_INVALID"),
    "parts that were acknowledged": put("InvalidPart", is_upload=True),
    "retries without another operation": lambda lake: lake.refused(
        "TOO_MANY_RETRIES", OpKind.COMMIT, MAIN
    ),
    "a fault after the last fault": both(lambda lake: lake.begin_quiet_end(), put("UNAVAILABLE")),
    "a reason of another operation": put("NOTHING_TO_MERGE"),
    "a reason that no operation has": put("DATA_CORRUPT"),
    "no reason": put(""),
    "a read of a valid key": lambda lake: lake.refused("INVALID_ARGUMENT", OpKind.GET, MAIN, "a"),
    "an empty commit that was asked for": lambda lake: lake.did(
        OpKind.COMMIT, MAIN, commit_id="c1", is_claim=True, allows_empty=True
    ),
}

RIGHT: dict[str, Act] = {
    "a merge with a conflict": both(
        main_changes_b, merge("MERGE_CONFLICT", source_id="", source_branch=DEV)
    ),
    "a revert with a conflict": both(main_changes_b, pick("MERGE_CONFLICT", branch=MAIN)),
    "a merge of what was merged": both(dev_merged, merge("NOTHING_TO_MERGE")),
    "a merge of an ancestor": merge("NOTHING_TO_MERGE", source_id="c0"),
    "a squash that brings nothing": both(dev_merged, merge("NOTHING_TO_MERGE", is_squash=True)),
    "a merge into a changed branch": both(main_has_staged, merge("BRANCH_DIRTY")),
    "a move of a changed branch": both(
        main_has_staged, move("BRANCH_DIRTY", MAIN, expected_id="c1")
    ),
    "a revert of what is not there": pick("NOTHING_TO_COMMIT", branch=MAIN),
    "a cherry-pick of what is there": pick("NOTHING_TO_COMMIT", OpKind.PICK),
    "a move from an older head": move("REF_MOVED", expected_id="c1", commit_id="c0"),
    "a move from an older head, which is named": move(
        "REF_MOVED", expected_id="c1", commit_id="c0", told_id="c2"
    ),
    "a commit beside a reset": beside_a_reset,
    "a revert of a merge without a parent": both(
        dev_merged, pick("INVALID_ARGUMENT", source_id="m")
    ),
    "a put on a removed branch": both(
        dev_is_removed, lambda lake: lake.refused("BRANCH_NOT_FOUND", OpKind.PUT, DEV, "b", 9)
    ),
    "a put beside the creation of its branch": beside_a_creation,
    "a merge of a removed branch": both(
        dev_is_removed, merge("REF_NOT_FOUND", source_id="", source_branch=DEV)
    ),
    "a creation of a living branch": lambda lake: lake.refused(
        "BRANCH_EXISTS", OpKind.CREATE, DEV, commit_id="c1"
    ),
    "a condition that does not hold": put("PRECONDITION_FAILED", "a", expected=ABSENT),
    "a condition on another value": put("PRECONDITION_FAILED", "a", expected=7, observed=1),
    "an object that is missing": put("ENTRY_NOT_FOUND", "b", expected=7),
    "a commit that has expired": both(expires, merge("EXPIRED_COMMIT")),
    "an old address": put("ADDRESS_TOO_OLD", grounds=frozenset({"ADDRESS_TOO_OLD"})),
    "an upload that was aborted": put(
        "UPLOAD_NOT_FOUND", is_upload=True, grounds=frozenset({"UPLOAD_NOT_FOUND"})
    ),
    "a view that was changed": put("BUCKET_MOVED", grounds=frozenset({"BUCKET_MOVED"})),
    "a view that was deleted": put("BUCKET_NOT_FOUND", grounds=frozenset({"BUCKET_NOT_FOUND"})),
    "a caller who lost the right": put("ACCESS_DENIED", grounds=frozenset({"ACCESS_DENIED"})),
    "a session key that has ended": put(
        "CALLER_TOKEN_INVALID", grounds=frozenset({"CALLER_TOKEN_INVALID"})
    ),
    "retries beside another operation": beside_other_writes,
    "a fault": put("UNAVAILABLE"),
    "a read that was too slow each time": lambda lake: lake.refused(
        "TOO_MANY_RETRIES", OpKind.GET, MAIN, "a"
    ),
    "a creation of a living repository": lambda lake: lake.refused(
        "REPOSITORY_EXISTS", OpKind.CREATE, MAIN
    ),
    "a put into a removed repository": both(main_is_removed, put("REPOSITORY_NOT_FOUND")),
    "an address that is far ahead": put(
        "ADDRESS_IN_FUTURE", grounds=frozenset({"ADDRESS_IN_FUTURE"})
    ),
    "a part that may have been replaced": put(
        "InvalidPart", is_upload=True, grounds=frozenset({"InvalidPart"})
    ),
    "a merge of two that were merged into each other": both(
        merged_into_each_other, merge("TOO_MANY_MERGE_BASES", source_id="m2")
    ),
}


@pytest.mark.parametrize("act", WRONG.values(), ids=WRONG)
def test_a_wrong_refusal_is_reported(act: Act) -> None:
    lake = CleanHistory()
    assert lake.broken() == []
    act(lake)
    assert lake.broken() == ["I11"]


@pytest.mark.parametrize("act", RIGHT.values(), ids=RIGHT)
def test_a_right_refusal_is_accepted(act: Act) -> None:
    lake = CleanHistory()
    act(lake)
    assert lake.broken() == []


def test_a_head_that_a_refusal_names_is_a_read_of_the_head() -> None:
    lake = CleanHistory()
    main_changes_b(lake)
    move("REF_MOVED", MAIN, expected_id="c0", told_id="c1")(lake)
    assert lake.broken() == ["I5"], "c3 was the head when the move began"


def test_an_unsettled_write_may_be_the_change_of_a_dirty_branch() -> None:
    lake = CleanHistory()
    lake.did(OpKind.PUT, MAIN, "b", 3, outcome=Outcome.INFO)
    merge("BRANCH_DIRTY")(lake)
    assert lake.broken() == []


def test_an_unsettled_move_may_be_why_a_head_is_another_one() -> None:
    lake = CleanHistory()
    lake.did(OpKind.MOVE, DEV, commit_id="c1", expected_id="c2", outcome=Outcome.INFO)
    move("REF_MOVED")(lake)
    assert lake.broken() == []


def test_a_branch_that_was_removed_and_made_again_is_not_missing() -> None:
    lake = CleanHistory()
    lake.did(OpKind.REMOVE, DEV)
    lake.did(OpKind.CREATE, DEV, commit_id="c2")
    lake.refused("BRANCH_NOT_FOUND", OpKind.PUT, DEV, "b", 9)
    assert lake.broken() == ["I11"]
    lake.ops[-3].outcome, lake.ops[-3].ret = Outcome.INFO, float("inf")
    assert lake.broken() == [], "the removal may have come after the creation"


def test_a_read_of_a_missing_branch_is_judged_as_a_read() -> None:
    lake = CleanHistory()
    lake.did(OpKind.GET, DEV, "b", GONE)
    assert lake.broken() == ["I1"] or lake.broken() == ["I2"]


_ROOT = Path(__file__).parents[2]
_GRAVELER = _ROOT / "services/graveler/tarn_graveler"
_HANDLERS = (
    "branches",
    "commits",
    "compactions",
    "entries",
    "links",
    "merges",
    "reflogs",
    "requests",
    "uploads",
)
_CORE = ("address_age", "branch", "condition", "expiry", "ids", "quota", "rules")

NEVER_RIGHT = {
    "ADDRESS_NOT_ISSUED": "clients stage what gateways issue",
    "BLOCK_NOT_FOUND": "clients write an object before they link it",
    "BRANCH_PROTECTED": "no repository has rules for branches",
    "BUCKET_EXISTS": "creations of views are not in histories",
    "COLLECTION_TOO_EARLY": "operations on collections are not in histories",
    "COMMIT_NOT_FOUND": "clients name commits that were acknowledged",
    "DATA_CORRUPT": "the stores keep what they acknowledge",
    "INTERNAL": "a defect",
    "INVALID_PAGE_TOKEN": "clients send tokens that they got",
    "KEY_TOO_LONG": "keys are short",
    "LINK_EXPIRED": "runs take less than an hour",
    "LINK_MISMATCH": "clients state what they wrote",
    "LINK_USED": "clients repeat links of the same object",
    "METADATA_TOO_LARGE": "entries have no metadata",
    "NAMESPACE_NOT_DOOMED": "purges are not simulated",
    "NOT_FAST_FORWARD": "fast-forwards are not simulated",
    "NOT_IMPLEMENTED": "clients are of this release",
    "PULL_REQUEST_BLOCKED": "pull requests are not simulated",
    "PULL_REQUEST_EXISTS": "pull requests are not simulated",
    "QUOTA_EXCEEDED": "no repository has quotas",
    "REF_AMBIGUOUS": "clients name whole commits",
    "REF_NOT_WRITABLE": "clients write to branches",
    "REPOSITORY_READ_ONLY": "no repository is read-only",
    "ROLE_NOT_FOUND": "no repository has rules for roles",
    "SETTINGS_CHANGED": "settings of repositories are not simulated",
    "TAG_EXISTS": "branches of a history have names that no tag has",
    "TAG_NOT_FOUND": "operations on tags are not in histories",
    "TASK_NOT_FOUND": "tasks are not simulated",
    "UPLOAD_BUSY": "it says that the client may try again, so it is no refusal",
}
"""Why the operations of a history are never refused with these reasons, which their code can raise."""


_FLOORS = (
    *("records", "graph", "refs", "guards", "branch", "iterators"),
    *("compaction", "uploads", "views", "versioning"),
)


def _raised() -> set[str]:
    """Returns the reasons that the code of the simulated operations names."""
    files = [path for folder in _FLOORS for path in (_GRAVELER / folder).glob("*.py")]
    files += [_GRAVELER / "handlers" / f"{name}.py" for name in _HANDLERS]
    files += [_ROOT / "libs/tarn/core" / f"{name}.py" for name in _CORE]
    files += [*(_ROOT / "libs/tarn/rpc").rglob("*.py"), _ROOT / "libs/tarn/kv/port.py"]
    nodes = (node for path in files for node in ast.walk(ast.parse(path.read_text())))
    return {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Reason"
    }


def test_each_reason_of_the_simulated_operations_has_a_condition_or_is_never_right() -> None:
    assert _raised() <= {*CONDITIONS, *NEVER_RIGHT}
    assert not {*CONDITIONS} & {*NEVER_RIGHT}
    assert {*NEVER_RIGHT} <= _raised(), "a reason that is gone"
    assert {*CONDITIONS} - {"InvalidPart"} <= {*Reason}


@pytest.mark.parametrize("reason", [*CONDITIONS])
def test_each_condition_is_tested_with_a_right_and_a_wrong_refusal(reason: str) -> None:
    untold = {"OVERLOADED", "DEADLINE_EXCEEDED", "OUTCOME_UNKNOWN"}  # as UNAVAILABLE
    assert reason in untold or _reasons_of(WRONG) >= {reason}, reason
    assert reason in untold or _reasons_of(RIGHT) >= {reason}, reason


def _reasons_of(cases: dict[str, Act]) -> set[str]:
    found = set[str]()
    for act in cases.values():
        lake = CleanHistory()
        act(lake)
        found |= {op.reason for op in lake.ops}
    return found
