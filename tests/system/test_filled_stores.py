"""Two stores are filled from one backup beside one bucket: the first one that drains counts, until a person says so."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from running_tarn import RunningTarn, running_tarn
from slowness import scaled
from store_loss import kill, start_again

CONFIGURATION = "journal:\n  enabled: true\n  interval: 1s\n"


def newest(tarn: RunningTarn, of: str) -> int:
    """The number of the newest epoch of a journal."""
    found = tarn.data.glob(f"**/{of}*/_tarn/journal/epochs/*.json")
    return max((int(each.stem) for each in found), default=0)


def wait_for_epoch(tarn: RunningTarn, names: tuple[str, ...], number: int) -> None:
    end = time.monotonic() + scaled(60)
    while any(newest(tarn, each) < number for each in names):
        assert time.monotonic() < end, tarn.tail()
        time.sleep(0.2)


@pytest.mark.timeout(600)
def test_the_second_one_of_two_filled_stores_drains_only_when_a_person_says_so(
    tmp_path: Path,
) -> None:
    config, target = tmp_path / "tarn.yaml", str(tmp_path / "backups")
    config.write_text(CONFIGURATION)
    with running_tarn(tmp_path, "single", "--config", str(config)) as tarn:
        lake, kv = tarn.new_repository(), tarn.data / "kv"
        where = ("--config", str(config), "--data-dir", str(tarn.data))
        journals = (lake, "tarn-journal")
        tarn.s3().put_object(Bucket=lake, Key="main/a", Body=b"1")
        wait_for_epoch(tarn, journals, 1)
        tarn.ok("backup", "create", target, *where, timeout=180)
        kill(tarn)
        kv.rename(tarn.data / "kv.lost")
        tarn.ok("backup", "restore", target, *where, timeout=180)
        kv.rename(tarn.data / "kv.second")
        tarn.ok("backup", "restore", target, *where, timeout=180)
        start_again(tarn, config)
        tarn.s3().put_object(Bucket=lake, Key="main/b", Body=b"2")
        wait_for_epoch(tarn, journals, 2)
        kill(tarn)

        kv.rename(tarn.data / "kv.first")
        (tarn.data / "kv.second").rename(kv)
        start_again(tarn, config)
        end = time.monotonic() + scaled(60)
        while tarn.log.read_text(errors="replace").count("another store may count now") < 2:
            assert time.monotonic() < end, tarn.tail()
            time.sleep(0.2)
        assert {newest(tarn, each) for each in journals} == {2}
        kill(tarn)

        refused = tarn.cli("journal", "follow", "3", *where)
        assert refused.code != 0
        assert "has the newest epoch 2, not 3" in refused.err
        tarn.ok("journal", "follow", "2", *where)
        tarn.ok("journal", "follow", "2", "--repository", lake, *where)
        start_again(tarn, config)
        wait_for_epoch(tarn, journals, 3)
        assert tarn.s3().get_object(Bucket=lake, Key="main/a")["Body"].read() == b"1"
