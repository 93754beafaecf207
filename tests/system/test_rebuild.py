"""The drill: a day's work with a journal, the metadata store is lost, `tarn rebuild`: all that was drained is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from running_tarn import RunningTarn, running_tarn, set_up
from spark_jobs import QUICK_JAVA
from spark_lakes import java_home
from store_loss import REFS, days_work, findings, kill, shown, start_again

CONFIGURATION = "journal:\n  enabled: true\n  interval: 1s\n"


@pytest.mark.timeout(600)
def test_a_lost_metadata_store_is_rebuilt_from_the_bucket(tmp_path: Path) -> None:
    config = tmp_path / "tarn.yaml"
    config.write_text(CONFIGURATION)
    with running_tarn(tmp_path, "single", "--config", str(config)) as tarn:
        lake = tarn.new_repository()
        days_work(tarn, lake)
        before = shown(tarn, lake)
        time.sleep(5.0)
        kill(tarn)
        shutil.rmtree(tarn.data / "kv")
        where = ("--config", str(config), "--data-dir", str(tarn.data))
        done = tarn.cli("--json", "rebuild", *where, timeout=180)
        assert done.code in (0, 7), done.err
        report = json.loads(done.out)
        assert report["is_whole"], report
        start_again(tarn, config)
        set_up(tarn)  # with the key in its file, which so works again
        assert shown(tarn, lake) == before
        assert report["keys_to_reissue"]
        assert findings(tarn) == []
        time.sleep(5.0)
        kill(tarn)
        shutil.rmtree(tarn.data / "kv")
        start_again(tarn, config)
        set_up(tarn)
        namespace = report["repositories"][0]["storage_namespace"]
        tarn.ok("repo", "rebuild", lake, "--storage-namespace", namespace, *where, timeout=180)
        after = shown(tarn, lake)
        for ref in REFS:
            for what in (ref, f"{ref} bodies", f"{ref} log", f"{ref} changes"):
                assert after.get(what) == before.get(what), what
        assert findings(tarn) == []
        tarn.s3().put_object(Bucket=lake, Key="main/new", Body=b"new")
        tarn.ok("commit", f"{lake}/main", "-m", "after the rebuild")


def replay_in_spark(tarn: RunningTarn, config: Path, namespace: str, result: Path) -> None:
    """Runs the job as an operator does."""
    command = [sys.executable, "-m", "tarn_spark.rebuild", namespace, str(result)]
    where = ("--config", str(config), "--data-dir", str(tarn.data))
    small = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")
    java = {"JAVA_HOME": java_home(), "JDK_JAVA_OPTIONS": QUICK_JAVA}
    done = subprocess.run(
        [*command, *where, *small],
        env={**os.environ, **java},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"tarn rebuild --replayed {result}" in done.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_rebuild_takes_over_what_spark_has_replayed(tmp_path: Path) -> None:
    """Of one repository, beside one that it replays itself; a file that is damaged is refused, and changes nothing."""
    config, result = tmp_path / "tarn.yaml", tmp_path / "lake.replayed"
    config.write_text(CONFIGURATION)
    with running_tarn(tmp_path, "single", "--config", str(config)) as tarn:
        lake, other = tarn.new_repository(), tarn.new_repository()
        days_work(tarn, lake)
        tarn.s3().put_object(Bucket=other, Key="main/staged", Body=b"other")
        before = shown(tarn, lake)
        namespace = tarn.ok("--json", "repo", "show", lake).json["storage_namespace"]
        time.sleep(5.0)
        kill(tarn)
        shutil.rmtree(tarn.data / "kv")
        replay_in_spark(tarn, config, namespace, result)
        # The bodies of passes are not read again: a replay in one process would miss these.
        files = [*tarn.data.glob(f"**/{lake}*/_tarn/journal/*/*-*-*/*.parquet")]
        assert files
        for each in files:
            each.write_bytes(b"damaged")
        where = ("--config", str(config), "--data-dir", str(tarn.data))
        damaged = tmp_path / "damaged.replayed"
        damaged.write_bytes(result.read_bytes()[:-9])
        refused = tarn.cli("rebuild", *where, "--replayed", str(damaged), timeout=180)
        assert refused.code == 1
        assert "run tarn_spark.rebuild again" in refused.err
        done = tarn.cli("--json", "rebuild", *where, "--replayed", str(result), timeout=180)
        assert done.code in (0, 7), done.err
        report = json.loads(done.out)
        assert report["is_whole"], report
        assert {each["repository"] for each in report["repositories"]} == {lake, other}
        start_again(tarn, config)
        set_up(tarn)
        assert shown(tarn, lake) == before
        found = tarn.s3().get_object(Bucket=other, Key="main/staged")
        assert found["Body"].read() == b"other"
        assert findings(tarn) == []
        tarn.s3().put_object(Bucket=lake, Key="main/new", Body=b"new")
        tarn.ok("commit", f"{lake}/main", "-m", "after the rebuild")
