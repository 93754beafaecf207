"""Tasks from the command line: a merge and a preview in the background, on one node and on separate services."""

from __future__ import annotations

from running_tarn import RunningTarn


def two_branches(tarn: RunningTarn) -> str:
    """Returns a new repository with a branch `side` that has a commit more than `main`."""
    name = tarn.new_repository()
    tarn.ok("branch", "create", f"{name}/side", "--from", "main")
    tarn.s3().put_object(Bucket=name, Key="side/a", Body=b"1")
    tarn.ok("commit", f"{name}/side", "-m", "a")
    return name


def test_a_merge_in_the_background(tarn: RunningTarn) -> None:
    name = two_branches(tarn)
    task = tarn.ok("merge", f"{name}/side", f"{name}/main", "--background").out.strip()
    found = tarn.ok("--json", "task", "wait", task).json
    head = tarn.ok("--json", "branch", "show", f"{name}/main").json["commit"]
    assert (found["state"], found["commit"], found["runs"]) == ("succeeded", head, 1)
    assert tarn.s3().get_object(Bucket=name, Key="main/a")["Body"].read() == b"1"
    assert tarn.ok("--json", "task", "show", task).json == found
    (listed,) = tarn.ok("--json", "task", "list", name).json
    assert f"{name}/{listed['task']}" == task
    assert tarn.ok("task", "cancel", task).out.strip() == "succeeded"  # too late


def test_a_refused_task_ends_the_command_as_the_merge_would(tarn: RunningTarn) -> None:
    name = two_branches(tarn)
    tarn.ok("merge", f"{name}/side", f"{name}/main")
    task = tarn.ok("merge", f"{name}/side", f"{name}/main", "--background").out.strip()
    done = tarn.cli("task", "wait", task)
    assert done.code == 5
    assert "nothing to merge" in done.err


def test_a_preview_in_the_background(tarn: RunningTarn) -> None:
    name = two_branches(tarn)
    start = ("merge", f"{name}/side", f"{name}/main", "--preview", "--background")
    task = tarn.ok(*start).out.strip()
    found = tarn.ok("--json", "task", "wait", task).json
    assert (found["added"], found["conflict_count"], found["conflicts"]) == (1, 0, [])


def test_an_unknown_task_is_not_found(tarn: RunningTarn) -> None:
    name = tarn.new_repository()
    done = tarn.cli("task", "show", f"{name}/{'0' * 12}7{'0' * 19}")
    assert done.code == 3
