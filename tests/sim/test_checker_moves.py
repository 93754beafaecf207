"""Hand-written histories with merges, resets and hard moves: allowed ones, each beside one that breaks a promise."""

import pytest
from tests.sim.test_checker import Story, put_if
from tests.support.check.checker import check
from tests.support.check.history import ABSENT, Commit, Op, OpKind, Outcome

OK, FAIL, INFO = Outcome.OK, Outcome.FAIL, Outcome.INFO


class MoveStory(Story):
    """A branch that begins at commit `c0`, and commits of another branch."""

    def __init__(self, **contents: int) -> None:
        super().__init__()
        self.history.ops[0].commit_id = "c0"
        self.add("c0", **contents)

    def add(self, commit_id: str, *parents: str, **contents: int) -> None:
        """Adds a commit that no operation on the branch made."""
        self._add(commit_id, parents, "", contents)

    def _add(
        self, commit_id: str, parents: tuple[str, ...], message: str, contents: dict[str, int]
    ) -> None:
        named = tuple(each for each in parents if each)
        time = len(self.history.commits)
        self.history.commits[commit_id] = Commit(commit_id, message, named, contents, time)

    def made(self, commit_id: str, parent: str, inv: float, end: float, **contents: int) -> Op:
        """Adds an acknowledged commit of the branch."""
        return self.commit(commit_id, contents, inv, end, parent=parent)

    def merge(
        self,
        commit_id: str,
        parents: tuple[str, str],
        inv: float,
        end: float,
        outcome: Outcome = OK,
        *,
        choice: str = "",
        **contents: int,
    ) -> Op:
        op = self.op(OpKind.MERGE, None, inv, end, outcome)
        op.key, op.source_id, op.choice = None, parents[1], choice
        op.commit_id = commit_id if outcome is OK else ""
        self._add(commit_id, parents, f"#{op.number}", contents)
        return op

    def reset(self, inv: float, end: float, outcome: Outcome = OK) -> Op:
        op = self.op(OpKind.RESET, None, inv, end, outcome)
        op.key = None
        return op

    def move(
        self,
        to: str,
        expected: str,
        inv: float,
        end: float,
        outcome: Outcome = OK,
        *,
        force: bool = False,
    ) -> Op:
        op = self.op(OpKind.MOVE, None, inv, end, outcome)
        op.key, op.commit_id, op.expected_id, op.is_forced = None, to, expected, force
        return op

    def head(self, commit_id: str, inv: float, end: float) -> Op:
        op = self.op(OpKind.HEAD, None, inv, end)
        op.key, op.commit_id = None, commit_id
        return op


@pytest.fixture
def story() -> MoveStory:
    """`side` has a commit on the first one of the branch: k = 5."""
    story = MoveStory()
    story.add("s", "c0", k=5)
    return story


# ---- I8: the content of merges


def test_a_merge_writes_the_keys_that_it_changes(story: MoveStory) -> None:
    story.get(ABSENT, 1, 2)
    story.merge("m", ("c0", "s"), 3, 6, k=5)
    story.get(ABSENT, 4, 4.5)
    story.get(5, 7, 8)
    assert story.broken() == []
    story.get(ABSENT, 9, 10)
    assert story.broken() == ["I1"]


def test_a_key_that_a_merge_does_not_change_is_not_written() -> None:
    story = MoveStory(k=1)
    story.add("s", "c0", k=1, other=7)
    story.merge("m", ("c0", "s"), 3, 9, k=1, other=7)
    story.put(2, 4, 5)
    story.get(2, 10, 11)
    assert story.broken() == []
    story.get(1, 12, 13)
    assert story.broken() == ["I1"]


@pytest.mark.parametrize(
    ("choice", "value", "is_right"),
    [
        ("", 5, False),
        ("source", 5, True),
        ("source", 2, False),
        ("dest", 2, True),
        ("dest", 5, False),
    ],
)
def test_a_merge_holds_the_three_way_result(
    story: MoveStory, choice: str, value: int, *, is_right: bool
) -> None:
    story.put(2, 1, 2)
    story.made("c1", "c0", 3, 4, k=2)
    story.merge("m", ("c1", "s"), 5, 6, choice=choice, k=value)
    assert story.broken() == ([] if is_right else ["I8"])


def test_a_change_of_one_side_only_is_no_conflict(story: MoveStory) -> None:
    story.op(OpKind.PUT, 3, 1, 2, key="other")
    story.made("c1", "c0", 3, 4, other=3)
    story.merge("m", ("c1", "s"), 5, 6, k=5, other=3)
    assert story.broken() == []
    story.history.commits["m"] = Commit(
        "m", story.history.commits["m"].message, ("c1", "s"), {"k": 5}
    )
    assert "I8" in story.broken()


def test_the_merge_base_is_the_newest_common_ancestor(story: MoveStory) -> None:
    """The second merge brings only the changes since the first one."""
    story.merge("m", ("c0", "s"), 1, 2, k=5)
    story.delete(3, 4)
    story.made("c1", "m", 5, 6)
    story.add("s2", "s", k=5, other=1)
    story.merge("m2", ("c1", "s2"), 7, 8, other=1)
    assert story.broken() == []
    story.get(ABSENT, 9, 10)
    assert story.broken() == []
    story.get(5, 11, 12)
    assert story.broken() == ["I1"]


def criss_cross(*, mains: int, sides: int, rungs: int = 1) -> MoveStory:
    story = MoveStory(k=1)
    story.add("a0", "c0", k=2)
    story.add("b0", "c0", k=3)
    for rung in range(rungs):
        last = rung == rungs - 1
        story.add(f"a{rung + 1}", f"a{rung}", f"b{rung}", k=mains if last else 2)
        story.add(f"b{rung + 1}", f"b{rung}", f"a{rung}", k=sides if last else 3)
    story.history.ops[0].commit_id = f"a{rungs}"
    return story


@pytest.mark.parametrize(
    ("mains", "sides", "choice", "value", "is_right"),
    [
        (2, 3, "", 2, False),
        (2, 3, "source", 3, True),
        (4, 4, "", 4, True),
    ],
)
@pytest.mark.parametrize("rungs", [1, 2, 7])
def test_what_merge_bases_disagree_about_is_a_conflict(
    mains: int, sides: int, choice: str, value: int, rungs: int, *, is_right: bool
) -> None:
    """Both branches merged each other's last commit, again and again; each kept its own value of k."""
    story = criss_cross(mains=mains, sides=sides, rungs=rungs)
    story.merge("m", (f"a{rungs}", f"b{rungs}"), 1, 2, choice=choice, k=value)
    assert story.broken() == ([] if is_right else ["I8"])


def test_what_one_merge_base_changed_is_decided() -> None:
    """b0 did not change k, so both bases together have a0's value; only the side changed it later."""
    story = MoveStory(k=1)
    story.add("a0", "c0", k=2)
    story.add("b0", "c0", k=1, other=1)
    story.add("a1", "a0", "b0", k=2, other=1)
    story.add("b1", "b0", "a0", k=5, other=1)
    story.history.ops[0].commit_id = "a1"
    op = story.merge("m", ("a1", "b1"), 1, 2, k=5, other=1)
    assert story.broken() == []
    story.history.commits["m"] = Commit("m", f"#{op.number}", ("a1", "b1"), {"k": 2, "other": 1})
    assert story.broken() == ["I8"]


@pytest.mark.parametrize(("kind", "value"), [(OpKind.REVERT, 1), (OpKind.PICK, 4)])
def test_a_revert_and_a_pick_are_merges_with_a_parent(kind: OpKind, value: int) -> None:
    story = MoveStory(k=1)
    story.add("x", "c0", k=4)
    if kind is OpKind.REVERT:
        story.history.ops[0].commit_id = "x"
    head = story.history.ops[0].commit_id
    op = story.merge("m", (head, ""), 1, 2, k=value)
    op.kind, op.source_id = kind, "x"
    assert story.broken() == []
    story.history.commits["m"] = Commit("m", f"#{op.number}", (head,), {"k": 9})
    assert "I8" in story.broken()


def test_a_merge_does_not_bring_a_key_over_an_older_uncommitted_write(story: MoveStory) -> None:
    """It must have been refused: the branch was dirty when it began."""
    story.merge("m", ("c0", "s"), 3, 6, k=5)
    op = story.put(2, 4, 5)
    read = story.get(2, 7, 8)
    assert story.broken() == [], "a row that came since the merge began lies on top of it"
    op.inv, op.ret, op.end = 1, 2, 2
    story.history.ops.remove(read)
    assert story.broken() == ["I8"]


def test_a_merge_whose_answer_was_lost_may_come_or_not(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 2, INFO, k=5)
    story.get(ABSENT, 3, 4)
    assert story.broken() == []
    story.get(5, 5, 6)
    assert story.broken() == []
    story.get(ABSENT, 7, 8)
    assert story.broken() == ["I1"], "it takes effect once and does not vanish"


def test_of_the_commits_that_a_lost_merge_has_built_one_counts(story: MoveStory) -> None:
    story.add("s2", "s", k=6)
    op = story.merge("m", ("c0", "s2"), 1, 2, INFO, k=6)
    story.history.commits["n"] = Commit("n", f"#{op.number}", ("m2", "s2"), {"k": 6, "other": 1})
    story.add("m2", "c0", other=1)
    story.get(6, 3, 4)
    assert story.broken() == []
    story.put(ABSENT, 5, 6)
    story.get(6, 7, 8)
    assert story.broken() == ["I1"]


def test_a_merge_that_surely_failed_brings_nothing(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 2, FAIL, k=5)
    story.get(5, 3, 4)
    assert story.broken() == ["I2"]


def test_the_first_parent_of_a_merge_is_the_head_before_it(story: MoveStory) -> None:
    story.made("c1", "c0", 1, 2)
    op = story.merge("m", ("c1", "s"), 3, 4, k=5)
    story.history.heads["b"] = "m"
    assert story.broken() == []
    story.history.commits["m"] = Commit("m", f"#{op.number}", ("c0", "s"), {"k": 5})
    assert "I4" in story.broken()


def test_two_merges_do_not_replace_one_head(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 4, k=5)
    story.merge("n", ("m", "s"), 2, 5, k=5)
    assert story.broken() == []
    op = story.history.ops[-1]
    story.history.commits["n"] = Commit("n", f"#{op.number}", ("c0", "s"), {"k": 5})
    assert "I8" in story.broken()


def test_a_merge_by_name_takes_a_head_of_its_source(story: MoveStory) -> None:
    op = story.merge("m", ("c0", "s"), 6, 7, k=5)
    op.source_branch, op.source_id = "side", ""
    made = Op(9, "p", OpKind.CREATE, "side", None, None, 1, 2, 2, OK, "s")
    story.history.ops.append(made)
    assert story.broken() == []
    moved = Op(10, "p", OpKind.MOVE, "side", None, None, 3, 4, 4, OK, "c0")
    moved.expected_id = "s"
    story.history.ops.append(moved)
    assert story.broken() == ["I8"], "the source had moved before the merge began"


# ---- I6 with merges


def test_a_conditional_write_and_a_merge_do_not_both_win_on_one_state(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 4, k=5)
    op = put_if(story, 2, ABSENT, 2, 9)
    story.get(2, 10, 11)
    assert story.broken() == [], "the row was there before the merge was published beneath it"
    story.get(5, 5, 6)
    assert story.broken() != [], "the merge was seen before the row"
    op.outcome, op.ret = INFO, float("inf")
    assert story.broken() == [], "the write was not acknowledged"


def test_a_conditional_write_that_began_after_a_merge_sees_it(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 4, k=5)
    op = put_if(story, 2, 5, 6, 7)
    assert story.broken() == []
    op.expected = ABSENT
    assert story.broken() == ["I6"]
    op.outcome, op.ret = INFO, float("inf")
    story.get(2, 8, 9)
    assert story.broken() == ["I1"], "it must have seen the merge"


def test_a_merge_beneath_a_conditional_write_shows_when_that_vanishes(story: MoveStory) -> None:
    story.merge("m", ("c0", "s"), 1, 6, k=5)
    put_if(story, 2, ABSENT, 2, 4)
    story.get(2, 7, 8)
    story.delete(9, 10)
    story.get(ABSENT, 11, 12)
    assert story.broken() == []
    story.get(5, 13, 14)
    assert story.broken() == ["I1"], "beneath an acknowledged one it never shows"


@pytest.mark.parametrize("brought", [ABSENT, 5])
def test_a_late_row_may_come_after_a_delete_that_wrote_none(brought: int) -> None:
    """The merge had removed the key already; the condition of the row was checked before the merge."""
    story = MoveStory(k=1)
    story.add("s", "c0", k=brought)
    story.merge("m", ("c0", "s"), 1, 4, k=brought)
    put_if(story, 2, 1, 2, 3, INFO)
    story.delete(5, 6)
    story.get(2, 7, 8)
    assert story.broken() == ([] if brought == ABSENT else ["I1"])


@pytest.mark.parametrize("is_acked", [True, False])
def test_a_row_that_is_written_again_may_hide_a_merge(story: MoveStory, *, is_acked: bool) -> None:
    """Its first row was committed; the merge replaces that one, and the second row lies on top."""
    write = put_if(story, 1, ABSENT, 1, 8, OK if is_acked else INFO)
    story.made("c1", "c0", 2, 3, k=1)
    story.history.commits["s"] = Commit("s", "", ("c1",), {"k": 5})
    story.merge("m", ("c1", "s"), 4, 9, k=5)
    story.get(1, 10, 11)
    assert story.broken() == []
    write.inv, write.ret, write.end = 1, 1.5, 1.5
    write.outcome = OK
    assert story.broken() == ["I1"], "it was over before the merge began"


# ---- I5: resets


def test_a_reset_discards_what_was_acknowledged_before_it(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.reset(3, 4)
    story.get(ABSENT, 5, 6)
    assert story.broken() == []
    story.get(1, 7, 8)
    assert story.broken() == ["I1"], "it does not come back"


def test_a_reset_keeps_what_is_written_after_it(story: MoveStory) -> None:
    story.reset(3, 4)
    story.put(1, 5, 6)
    story.get(1, 7, 8)
    assert story.broken() == []
    story.get(ABSENT, 9, 10)
    assert story.broken() == ["I1"]


@pytest.mark.parametrize("value", [ABSENT, 1])
def test_a_reset_discards_a_write_beside_it_or_not(story: MoveStory, value: int) -> None:
    story.put(1, 2, 6)
    story.reset(3, 5)
    story.get(value, 7, 8)
    assert story.broken() == []
    story.get(1 if value == ABSENT else ABSENT, 9, 10)
    assert story.broken() == ["I1"]


def test_a_reset_shows_the_head_and_no_older_commit(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.made("c1", "c0", 3, 4, k=1)
    story.put(2, 5, 6)
    story.reset(7, 8)
    story.get(1, 9, 10)
    assert story.broken() == []
    story.history.ops[-1].value = ABSENT
    assert story.broken() == ["I1"]


def test_a_reset_beside_a_commit_shows_either_head(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.made("c1", "c0", 3, 9, k=1)
    story.reset(4, 8)
    story.get(1, 10, 11)
    assert story.broken() == []
    story.get(ABSENT, 12, 13)
    assert story.broken() == ["I1"]


@pytest.mark.parametrize("value", [2, 9])
def test_a_reset_shows_one_head_only(value: int) -> None:
    """A conditional write of the other head's value does not succeed on top of the one that was seen."""
    story = MoveStory(k=2)
    story.put(1, 1, 2)
    story.made("c1", "c0", 3, 40, k=1)
    story.reset(4, 25)
    put_if(story, 9, 1, 10, 16)
    story.get(2, 5, 20)
    story.get(value, 30, 31)
    assert story.broken() == ([] if value == 2 else ["I1"]), "2 came last, so 9 is gone"


@pytest.mark.parametrize("replaced", [2, 5])
def test_a_merge_of_another_value_does_not_hide_a_reset(replaced: int) -> None:
    """Only a merge that replaces 2 can have brought the 1 that the conditional write expects."""
    story = MoveStory(k=2)
    story.add("x", "c0", k=replaced)
    story.add("s", "x", k=1)
    story.put(1, 1, 2)
    story.reset(4, 25)
    story.merge("m", ("x", "s"), 3, 6, INFO, k=1)
    put_if(story, 9, 1, 10, 16)
    story.get(2, 5, 20)
    story.get(1, 3, 21)
    story.get(9, 30, 31)
    assert story.broken() == ([] if replaced == 2 else ["I1"])


def test_a_reset_whose_answer_was_lost_may_come_or_not(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.reset(3, 4, INFO)
    story.get(1, 5, 6)
    story.get(ABSENT, 7, 8)
    assert story.broken() == []
    story.get(1, 9, 10)
    assert story.broken() == ["I1"]


def test_a_reset_that_surely_failed_discards_nothing(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.reset(3, 4, FAIL)
    story.get(ABSENT, 5, 6)
    assert story.broken() == ["I1"]


# ---- hard moves


def test_a_forced_move_shows_its_target_and_discards(story: MoveStory) -> None:
    story.put(1, 1, 2)
    story.move("s", "c0", 3, 4, force=True)
    story.get(5, 5, 6)
    story.head("s", 7, 8)
    assert story.broken() == []
    story.get(1, 9, 10)
    assert story.broken() == ["I1"]


def test_an_unforced_move_is_refused_by_an_uncommitted_write(story: MoveStory) -> None:
    story.move("s", "c0", 3, 6)
    op = story.put(1, 4, 5)
    read = story.get(1, 7, 8)
    assert story.broken() == [], "a row that came since the move began stays"
    op.inv, op.ret, op.end = 1, 2, 2
    story.history.ops.remove(read)
    assert story.broken() == ["I5"]


def test_a_move_leaves_the_head_that_it_expects(story: MoveStory) -> None:
    story.made("c1", "c0", 1, 2)
    op = story.move("s", "c1", 3, 4, force=True)
    assert story.broken() == []
    op.expected_id = "c0"
    assert story.broken() == ["I5"]


def test_a_commit_that_a_move_took_away_is_not_reported_as_lost(story: MoveStory) -> None:
    story.made("c1", "c0", 1, 2)
    story.move("c0", "c1", 3, 4)
    story.made("c2", "c0", 5, 6)
    story.history.heads["b"] = "c2"
    assert story.broken() == []
    story.history.heads["b"] = "c1"
    assert story.broken() == ["I4"]


def test_the_head_is_read_like_a_key(story: MoveStory) -> None:
    story.made("c1", "c0", 1, 2)
    story.head("c1", 3, 4)
    assert story.broken() == []
    story.history.ops[-1].commit_id = "c0"
    assert story.broken() == ["I4"]


def test_nothing_to_commit_beside_a_merge_names_content_beneath_newer_rows(
    story: MoveStory,
) -> None:
    story.merge("m", ("c0", "s"), 1, 6, k=5)
    put_if(story, 2, ABSENT, 2, 4)
    story.op(OpKind.COMMIT, None, 3, 5, commit_id="m", is_claim=True)
    story.get(2, 7, 8)
    assert story.broken() == []
    claim = story.op(OpKind.COMMIT, None, 9, 10, commit_id="m", is_claim=True)
    assert story.broken() == ["I3"]
    story.history.ops.remove(claim)
    assert check(story.history).violations == []
