"""The drill: load, backup under load, more load, the metadata store is lost, restore: what was promised is there."""

from __future__ import annotations

import json
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cassandra_proxies import kv_url
from running_tarn import RunningTarn, launch, running_tarn, wait_until_up
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.client import Client, TarnCallError

KEYS = 24
LOAD_S = 3.0


@dataclass
class Writer:
    """Writes growing numbers to its own keys of one branch; remembers when each was acknowledged.

    Attributes:
        acknowledged: by key, (time of the acknowledgement, number); an odd number stands for a deletion.
        begun: by key, (time of the request, number).
    """

    lake: str
    branch: str
    s3: Any
    keys: list[str]
    acknowledged: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    begun: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def run(self, is_over: threading.Event) -> None:
        number = 0
        while not is_over.is_set():
            for key in self.keys:
                number += 1
                path = f"{self.branch}/{key}"
                self.begun.setdefault(key, []).append((time.monotonic(), number))
                if number % 5 == 1 and number % 2:
                    self.s3.delete_object(Bucket=self.lake, Key=path)
                else:
                    number += number % 2  # even
                    self.begun[key][-1] = (self.begun[key][-1][0], number)
                    self.s3.put_object(Bucket=self.lake, Key=path, Body=b"%d" % number)
                self.acknowledged.setdefault(key, []).append((time.monotonic(), number))

    def problems(self, begin: float, end: float) -> list[str]:
        """Compares what is there now with what a backup between two times promises."""
        found = []
        for key in self.keys:
            least = max((n for at, n in self.acknowledged.get(key, []) if at <= begin), default=0)
            possible = {n for at, n in self.begun.get(key, []) if n >= least and at <= end}
            now = self.now(key)
            deletions = {n for n in possible if n % 2}
            if now is None:
                if least and not deletions:
                    found.append(f"{self.branch}/{key} is gone; {least} was acknowledged")
            elif now not in possible:
                found.append(f"{self.branch}/{key} holds {now}, not one of {sorted(possible)}")
        return found

    def now(self, key: str) -> int | None:
        try:
            answer = self.s3.get_object(Bucket=self.lake, Key=f"{self.branch}/{key}")
        except self.s3.exceptions.NoSuchKey:
            return None
        return int(answer["Body"].read())


def client_of(tarn: RunningTarn) -> Client:
    return Client(
        tarn.server,
        auth_addresses=tarn.auth_server,
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
    )


def churn(tarn: RunningTarn, lake: str, is_over: threading.Event) -> None:
    """Commits, merges, compacts, tags, and makes and deletes branches, until it is told to end."""
    with client_of(tarn) as client:
        number = 0
        while not is_over.is_set():
            number += 1
            client.create_branch(lake, f"b{number}", "main")
            client.create_tag(lake, f"t{number}", "main")
            with suppress(TarnCallError):  # nothing to compact
                client.compact_branch(lake, "dev")
            for branch in ("main", "dev"):
                with suppress(TarnCallError):  # nothing to commit
                    client.create_commit(lake, branch, f"commit {number}")
            with suppress(TarnCallError):  # nothing to merge, or uncommitted changes
                client.merge(lake, f"b{number}", "main")
            if number > 1:
                client.delete_branch(lake, f"b{number - 1}")


@contextmanager
def under_load(tarn: RunningTarn, lake: str, writers: list[Writer]) -> Iterator[Callable[[], None]]:
    """Runs all writers and the churn inside the block; their failures are failures of the test."""
    is_over, failures = threading.Event(), list[BaseException]()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                failures.append(error)
                raise

        return run

    works = [lambda each=each: each.run(is_over) for each in writers]
    threads = [threading.Thread(target=guarded(work)) for work in works]
    threads.append(threading.Thread(target=guarded(lambda: churn(tarn, lake, is_over))))
    for thread in threads:
        thread.start()

    def end() -> None:
        is_over.set()
        for thread in threads:
            thread.join()

    try:
        yield end
    finally:
        end()
    assert failures == []


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
