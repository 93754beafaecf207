"""`tarn kv` moves an installation from the embedded store to Cassandra and back."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from cassandra_proxies import kv_url
from running_tarn import (
    BIN,
    RunningTarn,
    clean_environment,
    launch,
    running_tarn,
    stop,
    wait_until_up,
)
from slowness import scaled
from tests.support.servers.cassandra_nodes import CassandraNodes

from tarn.kv.embedded.reading import open_embedded_to_read
from tarn.kv.fence import FenceState, fence_partition

pytestmark = [pytest.mark.cassandra, pytest.mark.timeout(400)]

FREE = ("--port", "0", "--rpc-port", "0", "--workers", "1")
SECONDS = scaled(120)


def start_kv(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(BIN / "tarn"), "--json", "kv", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean_environment(),
    )


def kv(*arguments: str) -> Any:
    """Runs a command, which must succeed; returns its output."""
    process = start_kv(*arguments)
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, f"{arguments}: {process.returncode}\n{out}\n{err}"
    return json.loads(out)


@contextmanager
def tarn_on(before: RunningTarn, *options: str) -> Iterator[RunningTarn]:
    """Starts the same installation (blocks, secret and key) again."""
    supervisor = launch(before.data, *FREE, *options)
    again = RunningTarn("single", before.data, before.settings, supervisor)
    again.access_key_id = before.access_key_id
    again.secret_access_key = before.secret_access_key
    try:
        wait_until_up(again)
        yield again
    finally:
        stop(again)


def fill(tarn: RunningTarn) -> tuple[str, str]:
    """Creates a repository with every kind of KV row; returns its name and an open upload."""
    lake = tarn.new_repository()
    s3 = tarn.s3()
    for n in range(30):
        s3.put_object(Bucket=lake, Key=f"main/raw/{n:03d}", Body=b"%d" % n)
    tarn.ok("commit", f"{lake}/main", "-m", "first")
    tarn.ok("tag", "create", f"{lake}/v1", "--from", "main")
    tarn.ok("branch", "create", f"{lake}/fix", "--from", "main")
    for n in range(30, 60):
        s3.put_object(Bucket=lake, Key=f"main/raw/{n:03d}", Body=b"%d" % n)
    s3.delete_object(Bucket=lake, Key="main/raw/007")
    s3.delete_object(Bucket=lake, Key="main/raw/031")
    s3.put_object(Bucket=lake, Key="fix/only", Body=b"fix")
    upload = s3.create_multipart_upload(Bucket=lake, Key="main/large")["UploadId"]
    s3.upload_part(Bucket=lake, Key="main/large", UploadId=upload, PartNumber=1, Body=b"part")
    s3.close()
    return lake, upload


def listing(tarn: RunningTarn, lake: str) -> dict[str, str]:
    """Returns the ETag of every object of every ref."""
    s3 = tarn.s3()
    found: dict[str, str] = {}
    for ref in ("main", "fix", "v1"):
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=lake, Prefix=f"{ref}/")
        found |= {each["Key"]: each["ETag"] for page in pages for each in page.get("Contents", ())}
    assert s3.get_object(Bucket=lake, Key="main/raw/050")["Body"].read() == b"50"
    s3.close()
    return found


@dataclass
class Writer:
    """Puts objects, one after another, and records which ones were acknowledged."""

    tarn: RunningTarn
    lake: str
    acknowledged: list[str] = field(default_factory=list)
    refused: int = 0
    _end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        s3 = self.tarn.s3(retries={"mode": "standard", "max_attempts": 1})
        number = 0
        while not self._end.is_set():
            number += 1
            key = f"main/live/{number:06d}"
            try:
                s3.put_object(Bucket=self.lake, Key=key, Body=b"")
            except (ClientError, BotoCoreError):
                self.refused += 1
            else:
                self.acknowledged.append(key)
        s3.close()

    @contextmanager
    def writing(self) -> Iterator[None]:
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._end.set()
            thread.join()


def until(look: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Returns when the condition holds; fails if the process ends before."""
    end = time.monotonic() + SECONDS
    while not look():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


def kill(process: subprocess.Popen[str]) -> None:
    assert process.poll() is None
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


async def is_held(file: Path) -> bool:
    store = await open_embedded_to_read(file)
    try:
        (found,) = await store.get_many(fence_partition("tarn"), [b"fence"])
    finally:
        await store.close()
    return found is not None and json.loads(found.value).get("state") == FenceState.HELD.value


def test_a_lake_moves_to_cassandra_and_back(
    tmp_path: Path, cassandra_nodes: CassandraNodes
) -> None:
    url = kv_url(cassandra_nodes, "moved")
    with running_tarn(tmp_path, "single", "--workers", "1") as tarn:
        lake, upload = fill(tarn)
        before = listing(tarn, lake)
        old = f"embedded://{tarn.data / 'kv'}"
    slowly = ("--concurrency", "1", "--rows-per-second", "60")

    dump = tmp_path / "dump"
    process = start_kv("dump", "--config", old, str(dump), *slowly)
    content = dump / "content"
    until(lambda: len(list(content.rglob("*.zst"))) > 3, process)
    kill(process)
    assert kv("dump", "--config", old, str(dump))["changed_meanwhile"] == 0
    rows = kv("verify", str(dump), old)["rows"]
    assert rows > 60

    process = start_kv("migrate", "--from", old, "--to", url, *slowly)
    until(lambda: asyncio.run(is_held(tarn.data / "kv" / "tarn.db")), process)
    time.sleep(0.5)  # some rows are copied by now; the exact point does not matter
    kill(process)
    assert kv("migrate", "--from", old, "--to", url)["rows"] == rows
    assert kv("verify", str(dump), url)["different_rows"] == 0
    refusal = launch(tarn.data, *FREE)
    assert refusal.wait(SECONDS) != 0
    assert "has moved elsewhere" in tarn.tail()

    new = f"embedded://{tarn.data / 'kv-back'}"
    with tarn_on(tarn, "--kv", url) as moved:
        assert listing(moved, lake) == before
        s3 = moved.s3()
        (part,) = s3.list_parts(Bucket=lake, Key="main/large", UploadId=upload)["Parts"]
        s3.complete_multipart_upload(
            Bucket=lake,
            Key="main/large",
            UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
        )
        s3.close()
        # Tarn runs on the source: the copy must have every write that it acknowledges before it sees the fence.
        writer = Writer(moved, lake)
        with writer.writing():
            done = kv("migrate", "--from", url, "--to", new)
        assert writer.acknowledged
        assert writer.refused
        assert done["changed_meanwhile"] == 0
    config = tmp_path / "back.yaml"
    config.write_text(f"metadata: {{db: {{embedded: {{path: {tarn.data / 'kv-back'}}}}}}}\n")
    with tarn_on(tarn, "--config", str(config)) as back:
        after = listing(back, lake)
        assert set(writer.acknowledged) <= set(after)
        assert {key: tag for key, tag in after.items() if "/live/" not in key} == {
            **before,
            "main/large": after["main/large"],
        }
