"""The drill: a day's work with a journal, the metadata store is lost, `tarn rebuild`: all that was drained is there."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn, launch, running_tarn, set_up, wait_until_up

from tarn.client import Client

REFS = ("main", "dev", "v1")
CONFIGURATION = "journal:\n  enabled: true\n  interval: 1s\n"


def client_of(tarn: RunningTarn) -> Client:
    return Client(
        tarn.server,
        auth_addresses=tarn.auth_server,
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
    )


def days_work(tarn: RunningTarn, lake: str) -> None:
    """Commits, merges, tags, branches, settings, users, and uncommitted writes and deletes."""
    s3 = tarn.s3()
    for number in range(30):
        s3.put_object(Bucket=lake, Key=f"main/committed/{number}", Body=b"%d" % number)
    tarn.ok("commit", f"{lake}/main", "-m", "first")
    tarn.ok("tag", "create", f"{lake}/v1", "--from", "main")
    tarn.ok("branch", "create", f"{lake}/dev", "--from", "main")
    s3.put_object(Bucket=lake, Key="dev/from-dev", Body=b"dev")
    s3.delete_object(Bucket=lake, Key="dev/committed/3")
    tarn.ok("commit", f"{lake}/dev", "-m", "second")
    tarn.ok("merge", f"{lake}/dev", f"{lake}/main")
    tarn.ok("branch", "create", f"{lake}/gone", "--from", "main")
    tarn.ok("branch", "delete", f"{lake}/gone", "--yes")
    tarn.ok("repo", "hide", lake, "tmp-*")
    tarn.ok("repo", "protect", lake, "release-*")
    tarn.ok("repo", "metadata", lake, "--set", "team=lake")
    tarn.ok("quota", "set", lake, "--branches", "200")
    tarn.ok("bucket", "create", "sales", "--to", f"{lake}/main")
    tarn.ok("pr", "create", f"{lake}/dev", "main", "-t", "more of dev")
    tarn.ok("auth", "user", "create", "ann", "--role", "Developer")
    s3.put_object(Bucket=lake, Key="main/staged", Body=b"1")
    s3.put_object(Bucket=lake, Key="main/staged", Body=b"22")
    s3.delete_object(Bucket=lake, Key="main/committed/7")
    s3.put_object(Bucket=lake, Key="dev/staged", Body=b"333")
    tarn.ok("compact", f"{lake}/dev")
    s3.delete_object(Bucket=lake, Key="dev/staged")
    s3.put_object(Bucket=lake, Key="dev/later", Body=b"4")


def shown(tarn: RunningTarn, lake: str) -> dict[str, Any]:
    """What users see: listings and changes of all refs, with bodies, logs, and records."""
    s3 = tarn.s3()
    found: dict[str, Any] = {}
    for ref in REFS:
        page = s3.list_objects_v2(Bucket=lake, Prefix=f"{ref}/")
        found[ref] = [(each["Key"], each["ETag"], each["Size"]) for each in page["Contents"]]
        found[f"{ref} bodies"] = [
            s3.get_object(Bucket=lake, Key=each["Key"])["Body"].read() for each in page["Contents"]
        ]
        found[f"{ref} log"] = tarn.ok("log", f"{lake}/{ref}", "--json").out
    for branch in ("main", "dev"):
        found[f"{branch} changes"] = tarn.ok("diff", f"{lake}/{branch}", "--json").out
        found[f"{branch} record"] = tarn.ok("branch", "show", f"{lake}/{branch}", "--json").out
    for command in (
        *(
            ("branch", "list", lake),
            ("tag", "list", lake),
            ("repo", "rules", lake),
            ("pr", "list", lake),
        ),
        *(("repo", "list"), ("bucket", "list"), ("quota", "list"), ("auth", "user", "list")),
        ("reflog", f"{lake}/main"),
    ):
        found[" ".join(command)] = tarn.ok(*command, "--json").out
    return found


def lose_store(tarn: RunningTarn) -> None:
    """Kills Tarn, and removes its metadata store."""
    tarn.supervisor.send_signal(signal.SIGKILL)
    tarn.supervisor.wait()
    time.sleep(1.0)  # its processes see that it is gone
    shutil.rmtree(tarn.data / "kv")
    (tarn.data / "tarn.json").unlink()


@pytest.mark.timeout(600)
def test_a_lost_metadata_store_is_rebuilt_from_the_bucket(tmp_path: Path) -> None:
    config = tmp_path / "tarn.yaml"
    config.write_text(CONFIGURATION)
    with running_tarn(tmp_path, "single", "--config", str(config)) as tarn:
        lake = tarn.new_repository()
        days_work(tarn, lake)
        before = shown(tarn, lake)
        time.sleep(5.0)
        lose_store(tarn)
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
        lose_store(tarn)
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


def start_again(tarn: RunningTarn, config: Path) -> None:
    """Starts Tarn on its former ports."""
    ports = [each.rpartition(":")[2] for each in (tarn.endpoint, tarn.server)]
    options = (
        "--port",
        ports[0],
        "--rpc-port",
        ports[1],
        "--workers",
        "2",
        "--config",
        str(config),
    )
    tarn.supervisor = launch(tarn.data, *options)
    wait_until_up(tarn)


def findings(tarn: RunningTarn) -> list[str]:
    """Returns what `tarn fsck` finds lost or inconsistent."""
    done = tarn.cli("fsck", "--json", "--data-dir", str(tarn.data), timeout=180)
    found = json.loads(done.out)["findings"]
    return [str(each) for each in found if each["severity"] != "orphan"]
