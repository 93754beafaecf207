"""Timers of a real Tarn: collections and backups that it runs by itself, and its stop in the middle of one."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from eager_tarn import eager_tarn, fsck
from running_tarn import RunningTarn, stop


def eventually(tarn: RunningTarn, look: Callable[[], bool], seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not look():
        assert time.monotonic() < end, tarn.tail()
        time.sleep(0.2)


def test_tarn_collects_and_backs_up_by_itself(tmp_path: Path) -> None:
    backups = tmp_path / "backups"
    config = tmp_path / "tarn.yaml"
    config.write_text(
        f"lifecycle: {{gc: {{interval: 3s, settings: {tmp_path}/credentials}}}}\n"
        f"backup: {{interval: 4s, place: {backups}, keep: 2}}\n"
    )
    with eager_tarn(tmp_path, "single", "--config", str(config)) as tarn:
        lake = tarn.new_repository()
        for body in (b"old", b"new"):
            tarn.ok("fs", "upload", "-", f"{lake}/main/a", stdin=body)

        def swept() -> bool:
            status = tarn.ok("gc", "status", lake, "--json").json
            return bool(status.get("last_sweep", {}).get("deleted"))

        eventually(tarn, swept)
        assert tarn.ok("fs", "cat", f"{lake}/main/a").out == "new"
        assert fsck(tarn) == []

        def shown() -> dict[str, dict[str, object]]:
            status = tarn.ok("status", "--json", "--data-dir", str(tarn.data)).json
            return dict(status["timers"])

        eventually(tarn, lambda: shown()["backup"].get("exit_code") == 0)
        assert shown()["gc"]["last_begin"]
        listed = tarn.ok("backup", "list", "--json", str(backups), "--data-dir", str(tarn.data))
        assert 1 <= len(listed.json) <= 3
        assert "prune" not in (tarn.data / "logs" / "backup.log").read_text()
    times = json.loads((tarn.data / "timers.json").read_text())
    assert set(times) == {"gc", "backup"}
    assert "timer gc: done" in tarn.log.read_text()


def test_a_stop_ends_a_run_before_the_services(tmp_path: Path) -> None:
    """So the run can release its lease, which is longer than the test."""
    config, settings = tmp_path / "tarn.yaml", tmp_path / "settings"
    config.write_text(f"lifecycle: {{gc: {{interval: 3s, rate: 1, settings: {settings}}}}}\n")
    with eager_tarn(tmp_path, "single", "--config", str(config), lease_s=600) as tarn:
        lake, s3 = tarn.new_repository(), tarn.s3()
        for number in range(60):
            for body in (b"old", b"new"):
                s3.put_object(Bucket=lake, Key=f"main/{number}", Body=body * 50_000)
        time.sleep(1)  # all of them may be judged
        # The timer waits for the settings, so its first mark finds all 60, and the sweep takes a minute.
        shutil.copyfile(tmp_path / "credentials", settings)

        def is_sweeping() -> bool:
            return bool(tarn.ok("gc", "status", lake, "--json").json["phase"] == "sweep")

        eventually(tarn, is_sweeping)
        children = psutil.Process(tarn.supervisor.pid).children(recursive=True)
        stop(tarn)
        assert "timer gc: was broken off" in tarn.log.read_text()
        assert not [each for each in children if each.is_running()]
    times = json.loads((tarn.data / "timers.json").read_text())["gc"]
    assert (times["end_us"], times["exit_code"]) == (0, 143)
    with eager_tarn(tmp_path, "single") as tarn:
        assert tarn.ok("gc", "status", lake, "--json").json["phase"] == "idle"
