"""`tarn gc` on a real Tarn, whose times of collections are short."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

from eager_tarn import GRACE_S, eager_tarn, fsck
from running_tarn import BIN, RunningTarn, clean_environment


def gc(tarn: RunningTarn, *options: str) -> dict[str, object]:
    """Runs `tarn gc run`; returns what it did in the one repository."""
    done = tarn.ok("gc", "run", "--json", "--data-dir", str(tarn.data), *options, timeout=120)
    (row,) = json.loads(done.out)
    assert isinstance(row, dict)
    return row


def test_garbage_goes_and_everything_else_stays(tmp_path: Path) -> None:
    """Bodies of 10 bytes are rows of the sqlite file, those of 100,000 bytes are files."""
    with eager_tarn(tmp_path, "separate") as tarn:
        lake = tarn.new_repository()
        bodies = {f"{size}/{name}": name.encode() * size for size in (10, 100_000) for name in "ab"}
        for path, body in bodies.items():
            tarn.ok("fs", "upload", "-", f"{lake}/main/{path}", stdin=b"x" * len(body))
            tarn.ok("fs", "upload", "-", f"{lake}/main/{path}", stdin=body)
        tarn.ok("commit", f"{lake}/main", "-m", "two sizes")
        tarn.ok("fs", "upload", "-", f"{lake}/main/new", stdin=b"new")
        assert fsck(tarn) == ["block-orphan"] * 4
        time.sleep(1.5)

        dry = gc(tarn, "--dry-run")
        assert str(dry["data_candidates"]).startswith("4 of 9")
        assert tarn.ok("gc", "status", lake, "--json").json["phase"] == "idle"
        marked = gc(tarn)
        assert (marked["did"], marked["data_candidates"]) == ("mark", dry["data_candidates"])
        assert gc(tarn, "--only", "mark")["did"] == "mark"
        time.sleep(GRACE_S + 0.5)
        swept = gc(tarn)
        assert swept["did"] == "sweep"
        assert str(swept["deleted"]).startswith("4 (195.3 KiB"), swept

        assert fsck(tarn) == []
        for path, body in {**bodies, "new": b"new"}.items():
            assert tarn.ok("fs", "cat", f"{lake}/main/{path}").out.encode() == body
        status = tarn.ok("gc", "status", lake, "--json").json
        assert status["last_sweep"]["deleted"] == 4
        page = tmp_path / "report.html"
        places = ("--data-dir", str(tarn.data), "--html", str(page))
        told = tarn.ok("gc", "report", lake, "--json", "--price", "1024", *places).json
        assert (told["mark"], told["deleted"]) == (swept["mark"], "4 (195.3 KiB)")
        assert told["saved_a_month"] == round(195.3 / 1024, 2)
        assert "195.3 KiB" in page.read_text()
        assert gc(tarn)["did"] == "mark"
        erase(tarn, lake, tmp_path)


def erase(tarn: RunningTarn, lake: str, folder: Path) -> None:
    """Erases objects of both sizes out of two commits, and an uncommitted one, by the command line."""
    tarn.ok("fs", "rm", f"{lake}/main/10/a")
    tarn.ok("commit", f"{lake}/main", "-m", "gone from the head")
    tarn.ok("fs", "upload", "-", f"{lake}/main/10/a", stdin=b"c" * 10)
    time.sleep(1.5)
    data = ("--data-dir", str(tarn.data), "--json")
    assert tarn.cli("erase", "plan", lake, "**", *data).code == 2
    plan = tarn.ok("erase", "plan", lake, "1*/a", "--everything", *data).json
    assert plan["blocks"].startswith("3 (97.7 KiB")
    assert (plan["in_heads_of"], plan["uncommitted_in"]) == ({"main": 1}, {"main": 1})
    unasked = tarn.cli("erase", "run", lake, "--plan", plan["plan"], *data)
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    proof = folder / "certificate.json"
    ran = ("erase", "run", lake, "--plan", plan["plan"], "--yes", "-o", str(proof), *data)
    first = tarn.ok(*ran).json
    assert (first["deleted"], first["discarded_in"]) == (plan["blocks"], {"main": 1})
    certificate = json.loads(proof.read_text())
    assert certificate["plan"]["list_sha256"] == plan["list_sha256"]
    assert (certificate["erased_by"] != "", certificate["discarded"]) == (True, {"main": 1})
    for path in ("main~1/10/a", "main/100000/a"):
        read = tarn.cli("fs", "cat", f"{lake}/{path}")
        assert (read.code != 0, plan["plan"] in read.err) == (True, True), read.err
    assert tarn.ok("fs", "cat", f"{lake}/main/10/b").out == "b" * 10
    assert fsck(tarn) == []
    assert tarn.ok("erase", "repair", lake, *data).json["erased_blocks"] == 3
    assert tarn.ok(*ran).json["deleted"] == plan["blocks"], "a run may be repeated"


def test_limits_holds_and_errors(tmp_path: Path) -> None:
    with eager_tarn(tmp_path, "single") as tarn:
        lake = tarn.new_repository()
        for _ in range(2):
            tarn.ok("fs", "upload", "-", f"{lake}/main/a", stdin=os.urandom(10))
        time.sleep(1.5)
        data = ("--data-dir", str(tarn.data))
        early = tarn.cli("gc", "run", *data, "--only", "sweep", lake)
        assert early.code == 5
        assert "has no mark to sweep" in early.err

        tarn.ok("gc", "hold", lake, "1h")
        held = tarn.cli("gc", "run", *data, lake)
        assert held.code == 5
        assert "held" in held.err
        assert "held_until" in tarn.ok("gc", "status", lake).out
        other = tarn.new_repository()
        both = tarn.cli("gc", "run", "--json", *data)
        assert both.code == 5, "one of two repositories is held"
        done = {row["repository"]: row["did"] for row in json.loads(both.out)}
        assert done == {lake: "nothing", other: "mark"}
        tarn.ok("gc", "release", lake)

        mark = str(gc(tarn, lake)["mark"])
        time.sleep(GRACE_S + 0.5)
        refused = tarn.cli("gc", "run", *data, "--max-percent", "10", lake)
        assert refused.code == 5
        assert f"--confirm {mark}" in refused.err
        swept = gc(tarn, "--max-percent", "10", "--confirm", mark, lake)
        assert str(swept["deleted"]).startswith("1 (")

        tarn.ok("repo", "delete", other, "--yes", "--with-data", "--grace", f"{GRACE_S:.0f}s")
        (doomed,) = tarn.ok("gc", "doomed", "--json").json
        assert (doomed["repository"], doomed["state"]) == (other, "doomed")
        place = tarn.data / "blocks" / str(doomed["namespace"]).partition("://")[2]
        assert list(place.glob("_tarn/commits/*"))
        time.sleep(GRACE_S + 0.5)
        purged = gc(tarn, "--only", "purge")
        assert (purged["repository"], purged["did"]) == (other, "purge"), purged
        assert [each.parent.name for each in place.rglob("*") if each.is_file()] == ["purge"] * 2
        assert tarn.ok("gc", "doomed", "--json").json[0]["state"] == "purged"
        assert tarn.cli("gc", "spare", str(doomed["namespace"])).code == 5

        assert tarn.cli("gc", "hold", lake, "8d").code == 2
        assert tarn.cli("gc", "status", "no-such-lake").code == 3
        assert tarn.cli("gc", "run", "--dry-run", "--only", "sweep").code == 2
        assert tarn.cli("gc", "run", lake, "--confirm", mark, "--only", "mark").code == 2


def test_a_killed_sweep_is_taken_over(tmp_path: Path) -> None:
    """It deletes a block every second, and is killed when the first ones are gone."""
    with eager_tarn(tmp_path, "single") as tarn:
        lake = tarn.new_repository()
        for number in range(3):
            for _ in range(3):
                body = os.urandom(100_000)
                tarn.ok("fs", "upload", "-", f"{lake}/main/{number}", stdin=body)
        time.sleep(1.5)
        gc(tarn)
        time.sleep(GRACE_S + 0.5)

        def bodies() -> int:
            return len(list((tarn.data / "blocks").glob("*/data/*/*")))

        assert bodies() == 9
        command = [str(BIN / "tarn"), "--settings", str(tarn.settings), "gc", "run"]
        options = [
            "--data-dir",
            str(tarn.data),
            "--max-percent",
            "100",
            "--rate",
            "1",
            "--batch",
            "2",
        ]
        with subprocess.Popen([*command, *options], env=clean_environment()) as sweep:
            deadline = time.monotonic() + 60
            while bodies() == 9:
                assert sweep.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            sweep.kill()
        assert 3 < bodies() < 9
        data = ("--data-dir", str(tarn.data), "--max-percent", "100")
        while (again := tarn.cli("gc", "run", *data)).code != 0:
            assert (again.code, "is running" in again.err) == (5, True), again.err
            assert time.monotonic() < deadline
        assert bodies() == 3
        assert fsck(tarn) == []
