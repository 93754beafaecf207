"""The drill: a day's work with a journal, the metadata store is lost, `tarn rebuild`: all that was drained is there."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from running_tarn import running_tarn, set_up
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
