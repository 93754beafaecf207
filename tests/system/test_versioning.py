"""Merge, revert, cherry-pick, reset and move from the command line: results, refusals and permissions.

Each test runs against separate services, so every refusal crosses gRPC.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from running_tarn import BIN, RunningTarn, clean_environment
from versioned_repository import VersionedRepository

pytestmark = pytest.mark.in_form("separate")


@pytest.fixture
def lake(tarn: RunningTarn, s3: Any, repository: str) -> VersionedRepository:
    return VersionedRepository(tarn, s3, repository)


def forked(lake: VersionedRepository) -> tuple[str, str]:
    """Commits on `main` and `dev` that conflict at `both` and `gone`; returns the heads."""
    lake.commit("main", "base", both="base", gone="base", here="base", there="base")
    lake.branch("dev")
    dev = lake.commit("dev", "dev", both="dev-1", gone="dev-2", there="dev-3", new="dev-4")
    lake.s3.delete_object(Bucket=lake.name, Key="main/gone")
    main = lake.commit("main", "main", both="main-1", here="main")
    return main, dev


def test_a_merge_from_its_preview_to_its_commit(lake: VersionedRepository) -> None:
    main, dev = forked(lake)
    sides = ("merge", lake.ref("dev"), lake.ref("main"))
    preview = lake.json(*sides, "--preview")
    assert (preview["source_commit"], preview["destination_commit"]) == (dev, main)
    assert (preview["added"], preview["changed"], preview["removed"]) == (1, 1, 0)
    assert (preview["added_bytes"], preview["removed_bytes"]) == (10, 4)
    assert [each["prefix"] for each in preview["prefixes"]] == [""]
    assert preview["conflict_count"] == 2
    both, gone = preview["conflicts"]
    assert (both["path"], both["base"]["size_bytes"], both["source"]["size_bytes"]) == (
        "both",
        4,
        5,
    )
    assert both["destination"]["size_bytes"] == 6
    assert (gone["path"], gone["destination"]) == ("gone", None)

    failure = lake.refused(*sides)
    assert failure["error"] == "MERGE_CONFLICT"
    assert "2 paths changed differently on both sides: both, gone." in failure["message"]
    assert "--take" in failure["hint"]
    assert "--preview" in failure["hint"]
    half = lake.refused(*sides, "--take", "source:bo*")
    assert "1 path changed differently on both sides: gone." in half["message"]
    assert lake.head("main") == main

    decided = ("--take", "source:bo*", "--strategy", "dest-wins")
    assert lake.json(*sides, "--preview", *decided)["conflicts"] == []
    made = lake.json(*sides, *decided, "--meta", "job=x")
    assert made["parents"] == [main, dev]
    assert made["message"] == "Merge dev into main"
    assert made["metadata"].pop("tarn.task")  # the merge ran as a task
    assert made["metadata"] == {"job": "x"}
    assert lake.read("main") == {
        "both": "dev-1", "here": "main", "new": "dev-4", "there": "dev-3",
    }  # fmt: skip
    log = lake.tarn.ok("log", lake.ref("main")).out
    assert f"Merge:  {main[:12]} {dev[:12]}" in log
    own = lake.json("log", lake.ref("main"), "--first-parent")
    assert "dev" not in [each["message"] for each in own]

    again = lake.refused(*sides)
    assert (again["error"], "--allow-empty" in again["hint"]) == ("NOTHING_TO_MERGE", True)
    shown = lake.tarn.ok(*sides, "--preview").out
    assert shown == f"nothing to merge: {sides[2]} already contains {sides[1]}\n"
    empty = lake.json(*sides, "--allow-empty", "-m", "Again")
    assert empty["parents"] == [made["commit"], dev]


def test_a_squash_has_one_parent_and_a_fast_forward_makes_no_commit(
    lake: VersionedRepository,
) -> None:
    main, dev = forked(lake)
    failure = lake.refused("merge", lake.ref("dev"), lake.ref("main"), "--ff-only")
    assert (failure["error"], "--ff-only" in failure["hint"]) == ("NOT_FAST_FORWARD", True)
    arguments = ("--squash", "--strategy", "source-wins")
    made = lake.json("merge", lake.ref("dev"), lake.ref("main"), *arguments)
    assert made["parents"] == [main]
    assert lake.read("main")["gone"] == "dev-2"

    lake.branch("replica", "main~1")
    moved = lake.json("merge", lake.ref("main"), lake.ref("replica"), "--ff-only")
    assert moved["commit"] == made["commit"] == lake.head("replica")
    assert dev not in [each["commit"] for each in lake.json("log", lake.ref("replica"))]


def test_commands_that_make_no_sense_are_usage_errors(lake: VersionedRepository) -> None:
    sides = ("merge", lake.ref("main"), lake.ref("main"))
    for wrong in (
        (*sides, "--take", "raw/**"),
        (*sides, "--take", "ours:raw/**"),
        (*sides, "--take", "source:"),
        (*sides, "--take", "source:a\\"),
        (*sides, "--strategy", "mine"),
        (*sides, "--ff-only", "--squash"),
        (*sides, "--ff-only", "-m", "text"),
        ("merge", lake.ref("main"), "other-lake/main"),
        ("revert", lake.ref("main"), "other-lake/main"),
        ("revert", lake.ref("main"), "main", "--parent", "0"),
        ("branch", "move", lake.ref("main"), "main", "--expect", "main", "--yes"),
    ):
        done = lake.tarn.cli(*wrong)
        assert done.code == 2, (wrong, done)


def test_uncommitted_changes_refuse_all_but_reset_and_a_forced_move(
    lake: VersionedRepository,
) -> None:
    forked(lake)
    head = lake.head("main")
    lake.put("main", dirt="1")
    move = ("branch", "move", lake.ref("main"), "main~1", "--yes")
    for arguments in (
        ("merge", lake.ref("dev"), lake.ref("main"), "--strategy", "source-wins"),
        ("revert", lake.ref("main"), "main"),
        ("cherry-pick", lake.ref("main"), "dev", "--strategy", "source-wins"),
        move,
    ):
        failure = lake.refused(*arguments)
        assert failure["error"] == "BRANCH_DIRTY"
        assert "has uncommitted changes: dirt." in failure["message"]
        assert "tarn branch reset" in failure["hint"]
    unanswered = lake.tarn.cli("branch", "reset", lake.ref("main"), stdin=b"")
    assert unanswered.code == 1
    assert "Discard all uncommitted changes" in unanswered.err
    assert (lake.head("main"), lake.read("main")["dirt"]) == (head, "1")

    lake.tarn.ok("branch", "reset", lake.ref("main"), stdin=b"y\n")
    assert lake.json("diff", lake.ref("main")) == []
    assert "dirt" not in lake.read("main")
    lake.put("main", dirt="2")
    moved = lake.json(*move, "--force")
    assert (moved["branch"], moved["former_commit"]) == ("main", head)
    assert lake.read("main") == {"both": "base", "gone": "base", "here": "base", "there": "base"}


def test_a_prefix_or_one_object_is_reset(lake: VersionedRepository) -> None:
    lake.commit("main", "base", **{"raw/a": "1", "rest": "1"})
    lake.put("main", **{"raw/a": "2", "raw/b": "2", "rest": "2"})
    for wrong in (("--prefix", ""), ("--path", ""), ("--path", "a", "--prefix", "b")):
        done = lake.tarn.cli("branch", "reset", lake.ref("main"), "--yes", *wrong)
        assert done.code == 2, (wrong, done)
    unanswered = lake.tarn.cli("branch", "reset", lake.ref("main"), "--prefix", "raw/", stdin=b"")
    assert unanswered.code == 1
    assert f"Discard all uncommitted changes below raw/ in {lake.ref('main')}?" in unanswered.err
    assert lake.read("main") == {"raw/a": "2", "raw/b": "2", "rest": "2"}
    lake.tarn.ok("branch", "reset", lake.ref("main"), "--prefix", "raw/", "--yes")
    assert lake.read("main") == {"raw/a": "1", "rest": "2"}
    assert [each["path"] for each in lake.json("diff", lake.ref("main"))] == ["rest"]
    lake.put("main", more="1")
    lake.tarn.ok("branch", "reset", lake.ref("main"), "--path", "rest", "--yes")
    assert lake.read("main") == {"raw/a": "1", "rest": "1", "more": "1"}
    lake.commit("main", "more")
    assert lake.read("main@") == {"raw/a": "1", "rest": "1", "more": "1"}


def test_one_commit_is_undone_and_one_is_picked(lake: VersionedRepository) -> None:
    lake.commit("main", "good", a="1")
    bad = lake.commit("main", "bad", a="broken")
    lake.commit("main", "later", b="2")
    undone = lake.json("revert", lake.ref("main"), bad[:10])
    assert (undone["message"], undone["metadata"]) == (f"Revert {bad}", {"tarn.revert_of": bad})
    assert lake.read("main") == {"a": "1", "b": "2"}
    failure = lake.refused("revert", lake.ref("main"), bad)
    assert (failure["error"], "--allow-empty" in failure["hint"]) == ("NOTHING_TO_COMMIT", True)

    lake.branch("release", bad)
    picked = lake.json("cherry-pick", lake.ref("release"), lake.ref("main~1"))
    assert (picked["message"], len(picked["parents"])) == ("later", 1)
    assert list(picked["metadata"]) == ["tarn.cherry_picked_from"]
    assert lake.read("release") == {"a": "broken", "b": "2"}

    # Of a merge, the parent must be named.
    lake.branch("dev", "main~3")
    lake.commit("dev", "dev", c="3")
    merged = lake.json("merge", lake.ref("dev"), lake.ref("main"))["commit"]
    for command in ("revert", "cherry-pick"):
        lake.refused(command, lake.ref("main"), merged, code=2)
        lake.refused(command, lake.ref("main"), merged, "--parent", "3", code=2)
    lake.tarn.ok("cherry-pick", lake.ref("release"), merged, "--parent", "1")
    assert lake.read("release") == {"a": "broken", "b": "2", "c": "3"}
    lake.tarn.ok("revert", lake.ref("main"), merged, "--parent", "1", "-m", "Undo", "--meta", "k=v")
    assert lake.read("main") == {"a": "1", "b": "2"}
    # A path that changed again is in conflict: the source is the state before the commit.
    again = ("revert", lake.ref("release"), "release~3")
    lake.commit("release", "newer", a="newer")
    assert lake.refused(*again[:2], bad)["error"] == "MERGE_CONFLICT"
    lake.tarn.ok(*again[:2], bad, "--take", "source:a")
    assert lake.read("release")["a"] == "1"


def test_a_branch_moves_from_the_expected_head_only(lake: VersionedRepository) -> None:
    first = lake.commit("main", "first", a="1")
    second = lake.commit("main", "second", a="2")
    move = ("branch", "move", lake.ref("main"))
    asked = lake.tarn.cli(*move, first, stdin=b"n\n")
    assert asked.code == 1
    question = f"Move {lake.ref('main')} from commit {second[:12]} to commit {first[:12]}?"
    assert question in asked.err
    failure = lake.refused(*move, first, "--expect", first, "--yes")
    assert failure["error"] == "REF_MOVED"
    assert second in failure["message"]
    assert "tarn log" in failure["hint"]
    assert lake.head("main") == second
    moved = lake.json(*move, "main~1", "--expect", second[:12], "--yes")
    assert (moved["commit"], moved["former_commit"]) == (first, second)
    assert lake.read("main") == {"a": "1"}
    back = lake.json(*move, second, "--yes")
    assert back["commit"] == lake.head("main") == second
    assert lake.refused(*move, "nothing", "--yes", code=3)["error"] == "REF_NOT_FOUND"


def test_a_branch_that_moves_while_the_command_waits_for_its_answer_stays(
    lake: VersionedRepository,
) -> None:
    """The expectation is the head that the question names, not the one at the time of the answer."""
    first = lake.commit("main", "first", a="1")
    lake.commit("main", "second", a="2")
    command = ["--settings", str(lake.tarn.settings), "branch", "move", lake.ref("main"), first]
    with subprocess.Popen(
        [str(BIN / "tarn"), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    ) as asking:
        assert asking.stderr is not None
        question = ""
        while not question.endswith("?"):
            letter = asking.stderr.read(1)
            assert letter, f"the command ended without a question: {question}"
            question += letter
        third = lake.commit("main", "third", a="3")
        _, err = asking.communicate("y\n", timeout=60)
    assert asking.returncode == 5, err
    assert f"is at commit {third}" in err
    assert (lake.head("main"), lake.read("main")) == (third, {"a": "3"})


def test_a_reader_previews_and_changes_nothing(lake: VersionedRepository) -> None:
    main, _ = forked(lake)
    tarn, name = lake.tarn, f"ada-{lake.name}"
    tarn.ok("auth", "user", "create", name, "--role", "Analyst")
    key = tarn.ok("--json", "auth", "credential", "create", "--user", name).json
    ada = ("--access-key-id", key["access_key_id"], "--secret-access-key", key["secret_access_key"])
    lake.put("main", dirt="1")
    assert tarn.ok("--json", *ada, "merge", lake.ref("dev"), lake.ref("main"), "--preview").json
    for arguments in (
        ("merge", lake.ref("dev"), lake.ref("main"), "--strategy", "source-wins"),
        ("revert", lake.ref("main"), "main"),
        ("cherry-pick", lake.ref("main"), "dev"),
        ("branch", "reset", lake.ref("main"), "--yes"),
        ("branch", "move", lake.ref("main"), "main~1", "--force", "--yes"),
    ):
        failure = lake.refused(*ada, *arguments, code=4)
        assert failure["error"] == "ACCESS_DENIED", arguments
    assert lake.head("main") == main
    assert lake.read("main")["dirt"] == "1"


@pytest.mark.in_form("single")
def test_conflicts_at_long_paths_cross_the_wire_and_all_pages_are_read(
    lake: VersionedRepository, tmp_path: Path
) -> None:
    """More conflicts than a page of 1,000, and names of which ten exceed gRPC's limit for an error."""
    deep = tmp_path.joinpath("raw", *("😀" * 50 for _ in range(4)))
    deep.mkdir(parents=True)

    def write(body: str, branch: str) -> None:
        for number in range(1003):
            (deep / f"{number:04}").write_text(body)
        lake.tarn.ok(
            "fs", "upload", "-r", str(tmp_path / "raw"), f"{lake.ref(branch)}/raw/", timeout=120
        )
        lake.commit(branch, body)

    lake.branch("dev")
    write("dev", "dev")
    write("main!", "main")
    sides = ("merge", lake.ref("dev"), lake.ref("main"))
    done = lake.tarn.cli(*sides)
    assert (done.code, len(done.err.splitlines())) == (5, 1)
    assert done.err.startswith("tarn: 1003 paths changed differently on both sides: raw/😀")
    assert "--take" in done.err
    preview = lake.json(*sides, "--preview")
    assert preview["conflict_count"] == 1003
    paths = [each["path"] for each in preview["conflicts"]]
    assert paths == sorted(set(paths))
    assert len(paths) == 1003
    assert {each["base"] for each in preview["conflicts"]} == {None}
    shown = lake.tarn.ok(*sides, "--preview").out
    assert shown.count("none: both sides added the path") == 1003


def test_differences_as_lists_names_counts_and_folders(lake: VersionedRepository) -> None:
    lake.commit("main", "base", **{"raw/a": "1", "raw/b": "22", "top": "333"})
    lake.branch("dev")
    lake.commit("dev", "dev", **{"raw/b": "4444", "raw/c": "5", "ref/d": "6"})
    lake.commit("main", "main", top="main")
    two, three = f"{lake.ref('main')}..dev", f"{lake.ref('main')}...{lake.ref('dev')}"
    assert lake.tarn.ok("diff", two, "--name-only").out == "raw/b\nraw/c\nref/d\ntop\n"
    assert lake.tarn.ok("diff", three, "--name-only").out == "raw/b\nraw/c\nref/d\n"
    by_base = lake.json("diff", lake.ref("main"), lake.ref("dev"), "--merge-base")
    assert by_base == lake.json("diff", three)
    assert by_base[0] == {
        "path": "raw/b", "change": "changed", "left_size_bytes": 2, "right_size_bytes": 4,
    }  # fmt: skip
    assert lake.json("diff", three, "--name-only", "--prefix", "raw/") == [
        {"path": "raw/b", "change": "changed"},
        {"path": "raw/c", "change": "added"},
    ]
    shown = lake.tarn.ok("diff", two, "--stat", "--delimiter", "/").out
    assert shown == (
        "raw/  +1 ~1 -0  (5 B added, 2 B removed)\n"
        "ref/  +1 ~0 -0  (1 B added, 0 B removed)\n"
        "top  +0 ~1 -0  (3 B added, 4 B removed)\n"
        "total  +2 ~2 -0  (9 B added, 6 B removed)\n"
    )
    first = lake.tarn.ok("diff", two, "--stat", "--delimiter", "/", "--limit", "1")
    assert (first.out.splitlines()[1], "--limit 0" in first.err) == (shown.splitlines()[-1], True)
    total = lake.json("diff", three, "--stat")
    assert (total["added"], total["changed"], total["added_bytes"]) == (2, 1, 6)

    lake.put("dev", **{"raw/x": "1", "raw/y": "1", "z": "1"})
    assert lake.tarn.ok("diff", lake.ref("dev"), "--name-only").out == "raw/x\nraw/y\nz\n"
    (line,) = lake.json("diff", lake.ref("dev"), "--delimiter", "/", "--prefix", "r")
    assert (line["path"], line["is_prefix"], line["added"]) == ("raw/", True, 2)
    assert lake.json("diff", lake.ref("dev"), "--stat")["added_bytes"] == 3
    two_refs = lake.tarn.cli(
        "diff", two, lake.ref("dev")
    )  # dots in one of two names are part of it
    assert (two_refs.code, "ref main..dev does not exist" in two_refs.err) == (3, True)
    for wrong in (
        (lake.ref("dev"), "--merge-base"),
        (two, "--name-only", "--stat"),
        (lake.ref("main.."),),
        (f"{lake.ref('main')}..other/dev",),
    ):
        assert lake.tarn.cli("diff", *wrong).code == 2, wrong


def test_a_what_if_merge_is_tried_on_a_branch_and_then_made(lake: VersionedRepository) -> None:
    main, dev = forked(lake)
    lake.put("main", dirt="1")
    sides = ("merge", lake.ref("dev"), lake.ref("main"), "--as", "try")
    assert lake.refused(*sides)["error"] == "MERGE_CONFLICT"
    assert lake.refused("branch", "show", lake.ref("try"), code=3)["error"] == "BRANCH_NOT_FOUND"
    decided = (*sides, "--take", "source:bo*", "--strategy", "dest-wins")
    made = lake.json(*decided)
    assert (made["branch"], made["parents"], made["message"]) == (
        "try", [main, dev], "Merge dev into main",
    )  # fmt: skip
    assert lake.read("try") == {
        "both": "dev-1", "here": "main", "new": "dev-4", "there": "dev-3",
    }  # fmt: skip
    assert (lake.head("main"), lake.read("main")["both"]) == (main, "main-1")
    assert lake.refused(*decided)["error"] == "BRANCH_EXISTS"
    lake.tarn.ok("branch", "reset", lake.ref("main"), "--yes")
    real = lake.json("merge", lake.ref("try"), lake.ref("main"), "--ff-only")
    assert real["commit"] == made["commit"] == lake.head("main")
    for wrong in ("--squash", "--ff-only", "--preview"):
        assert lake.tarn.cli(*sides, wrong).code == 2


def test_a_range_is_undone_as_a_whole_or_not_at_all(lake: VersionedRepository) -> None:
    lake.commit("main", "good", a="1", b="1")
    lake.tarn.ok("tag", "create", lake.ref("v1"), "--from", "main")
    first = lake.commit("main", "bad 1", a="22")
    second = lake.commit("main", "bad 2", b="22")
    last = lake.commit("main", "later", a="333")
    failure = lake.refused("revert", lake.ref("main"), f"v1..{second[:10]}")
    assert failure["error"] == "MERGE_CONFLICT"
    assert failure["message"].startswith(f"commit {first} cannot be reverted: 1 path changed")
    assert lake.head("main") == last
    made = lake.json("revert", lake.ref("main"), "v1..main")
    assert made["reverted_commits"] == [last, second, first]
    assert lake.read("main") == {"a": "1", "b": "1"}
    shown = [each["message"] for each in lake.json("log", lake.ref("main"))][:4]
    assert shown == [f"Revert {each}" for each in (first, second, last)] + ["later"]
    squashed = lake.json("revert", lake.ref("main"), "main~2..main", "--squash", "-m", "Back")
    assert (squashed["message"], len(squashed["reverted_commits"])) == ("Back", 2)
    assert lake.read("main") == {"a": "22", "b": "22"}
    for wrong in (("main", "--squash"), ("v1...main",), ("v1..",), ("main..main",)):
        assert lake.tarn.cli("revert", lake.ref("main"), *wrong).code == 2, wrong
