"""`tarn log` and `tarn annotate` from the command line, on one node and against separate services."""

from __future__ import annotations

from typing import Any

import pytest
from running_tarn import RunningTarn
from versioned_repository import VersionedRepository


@pytest.fixture
def lake(tarn: RunningTarn, s3: Any, repository: str) -> VersionedRepository:
    return VersionedRepository(tarn, s3, repository)


def test_the_log_answers_ranges_filters_paths_and_draws(lake: VersionedRepository) -> None:
    tarn, name = lake.tarn, lake.name
    lake.commit("main", "one", **{"raw/a": "1", "odd name/é": "1"})
    tarn.ok("branch", "create", f"{name}/dev", "--from", "main")
    tarn.ok("branch", "create", f"{name}/old", "--from", "main")
    lake.commit("dev", "two", **{"raw/b": "2"})
    lake.commit("main", "three", **{"raw/a": "3"})
    tarn.ok("merge", f"{name}/dev", f"{name}/main", "-m", "merge")

    assert lake.log("dev..main") == ["merge", "three"]
    assert sorted(lake.log("dev...main~1")) == ["three", "two"]
    assert lake.log("main..dev") == []
    assert lake.log("main", "--path", "raw/a") == ["three", "one"]
    assert (
        lake.log("main", "--prefix", "raw/", "-n", "2") == lake.log("main", "--prefix", "raw/")[:2]
    )
    assert lake.log("main", "--path", "raw/b") == ["two"]
    assert lake.log("main", "--path", "raw/b", "--first-parent") == ["merge"]
    assert lake.log("main", "--prefix", "odd name/") == ["one"]
    assert lake.log("main", "--author", "no-author") == []
    assert lake.log("main", "--until", "2026-01-01") == []
    assert "merge" in lake.log("main", "--since", "1 hour ago")

    dev = tarn.ok("--json", "refs", "show", f"{name}/dev").json["commit"]
    assert tarn.ok("--json", "refs", "merge-base", f"{name}/main", "dev").json["bases"] == [dev]
    dated = ("-m", "old", "--allow-empty", "--date", "2001-02-03")
    made = tarn.ok("--json", "commit", f"{name}/old", *dated).json
    assert made["authored"] == "2001-02-03T00:00:00Z" < made["created"]
    shown = tarn.ok("log", f"{name}/old", "-n", "1").out.splitlines()
    assert shown[2:4] == [f"Date:   {made['authored']}", f"Commit: {made['created']}"]

    drawn = tarn.ok("log", f"{name}/main", "--graph", "--oneline").out.splitlines()
    assert drawn[:2] == [f"* {drawn[0][2:14]}  merge", "|\\"]
    assert [line for line in drawn if line.startswith("|/")]
    assert tarn.cli("log", f"{name}/main", "--graph", "--path", "x").code == 2
    assert tarn.cli("log", f"{name}/main..").code == 2
    assert tarn.cli("log", f"{name}/main", "--since", "yesterday").code == 2
    assert tarn.cli("log", f"{name}/none..main").code == 3


def test_annotate_names_the_commit_of_each_path(lake: VersionedRepository) -> None:
    one = lake.commit("main", "one", **{"raw/a": "1", "raw/b": "1", "out": "1"})
    two = lake.commit("main", "two", **{"raw/b": "2"})
    found = lake.tarn.ok("--json", "annotate", f"{lake.name}/main/raw/").json
    assert [(each["path"], each["commit"]) for each in found] == [("raw/a", one), ("raw/b", two)]
    assert all(each["is_final"] for each in found)
    text = lake.tarn.ok("annotate", f"{lake.name}/main").out.splitlines()
    assert len(text) == 3
    assert text[0].startswith(f" {one[:12]}  ")
    assert text[0].endswith("  out  (one)")
    cut = lake.tarn.ok("annotate", f"{lake.name}/main", "-n", "2")
    assert len(cut.out.splitlines()) == 2
    assert "more than 2 paths" in cut.err
