"""The drill: load, backup under load, more load, the metadata store is lost, restore: what was promised is there."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from cassandra_proxies import kv_url
from running_tarn import RunningTarn, launch, running_tarn, wait_until_up
from store_loss import Writer, client_of, under_load
from tests.support.servers.cassandra_nodes import CassandraNodes

KEYS = 24
LOAD_S = 3.0


def multipart(tarn: RunningTarn, lake: str) -> dict[str, Any]:
    """Begins an upload and sends its part; returns what completes it."""
    s3, names = tarn.s3(), {"Bucket": lake, "Key": "main/parts"}
    upload = s3.create_multipart_upload(**names)["UploadId"]
    etag = s3.upload_part(**names, UploadId=upload, PartNumber=1, Body=b"part" * 9)["ETag"]
    parts = {"Parts": [{"PartNumber": 1, "ETag": etag}]}
    return {**names, "UploadId": upload, "MultipartUpload": parts}


def back_up(tarn: RunningTarn, target: Path, *options: str) -> dict[str, Any]:
    done = tarn.ok(
        "backup",
        "create",
        str(target),
        "--json",
        "--data-dir",
        str(tarn.data),
        *options,
        timeout=180,
    )
    return dict(done.json)


def fsck(tarn: RunningTarn, *options: str) -> list[str]:
    """Returns what is lost or inconsistent, but for notes of commits that are newer than the restored backup."""
    done = tarn.cli(
        "fsck", "--json", "--data-dir", str(tarn.data), "--grace-hours", "0", *options, timeout=180
    )
    assert done.code in (0, 7), done.err
    findings = json.loads(done.out)["findings"]
    expected = ("orphan", "note-invalid")
    return [str(each) for each in findings if not {each["severity"], each["code"]} & {*expected}]


def drill(tarn: RunningTarn, folder: Path, kv: tuple[str, ...], new_kv: tuple[str, ...]) -> None:
    """Plays the drill on a running Tarn; leaves the restored one running."""
    lake, target = tarn.new_repository(), folder / "backups"
    tarn.ok("branch", "create", f"{lake}/dev", "--from", "main")
    writers = [
        Writer(lake, branch, tarn.s3(), [f"{name}/{n}" for n in range(KEYS)])
        for branch, name in (("main", "a"), ("main", "b"), ("dev", "c"))
    ]
    upload = multipart(tarn, lake)
    with under_load(tarn, lake, writers):
        time.sleep(LOAD_S)
        back_up(tarn, target, *kv)
        with client_of(tarn) as client:
            head = client.get_branch(lake, "main").commit_id
        begin = time.monotonic()
        last = back_up(tarn, target, *kv)
        end = time.monotonic()
        time.sleep(LOAD_S / 2)
    assert last["repositories"] == 1

    tarn.supervisor.send_signal(signal.SIGKILL)
    tarn.supervisor.wait()
    time.sleep(1.0)  # its processes see that it is gone
    shutil.rmtree(tarn.data / "kv", ignore_errors=True)
    restored = tarn.ok(
        *("backup", "restore", str(target), "--json", "--data-dir", str(tarn.data), *new_kv),
        timeout=180,
    ).json
    assert restored["backup"] == last["backup"]
    assert fsck(tarn, *new_kv) == []

    (tarn.data / "tarn.json").unlink()  # of the killed one
    ports = (
        "--port",
        tarn.endpoint.rpartition(":")[2],
        "--rpc-port",
        tarn.server.rpartition(":")[2],
    )
    tarn.supervisor = launch(tarn.data, *ports, "--workers", "2", *new_kv)
    wait_until_up(tarn)
    for writer in writers:
        writer.s3 = tarn.s3()
    assert [problem for writer in writers for problem in writer.problems(begin, end)] == []
    with client_of(tarn) as client:
        assert head in {each.commit_id for each in client.list_commits(lake, "main")}
        assert tarn.s3().complete_multipart_upload(**upload)["ETag"]
        # New writes win over restored rows, and can be committed.
        for writer in writers:
            for key in writer.keys:
                writer.s3.put_object(Bucket=lake, Key=f"{writer.branch}/{key}", Body=b"2")
            client.create_commit(lake, writer.branch, "after the restore")
            assert {writer.now(key) for key in writer.keys} == {2}
    assert "held_until" in tarn.ok("gc", "status", lake, "--json").json
    assert fsck(tarn, *new_kv) == []


@pytest.mark.timeout(600)
def test_a_lost_metadata_store_is_restored(tmp_path: Path) -> None:
    with running_tarn(tmp_path, "single") as tarn:
        drill(tarn, tmp_path, (), ())
        assert (
            tarn.ok(
                *(
                    "backup",
                    "verify",
                    str(tmp_path / "backups"),
                    "--data-dir",
                    str(tarn.data),
                    "--json",
                ),
                timeout=180,
            ).json["findings"]
            == 0
        )


@pytest.mark.cassandra
@pytest.mark.timeout(600)
def test_a_lost_keyspace_is_restored(tmp_path: Path, cassandra_nodes: CassandraNodes) -> None:
    kv = ("--kv", kv_url(cassandra_nodes, f"tarn_{tmp_path.name[-20:].replace('-', '_')}"))
    new_kv = ("--kv", kv[1] + "_new")
    with running_tarn(tmp_path, "single", *kv) as tarn:
        drill(tarn, tmp_path, kv, new_kv)
