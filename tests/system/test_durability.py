"""What was acknowledged is there: under concurrent commits, and when a worker is killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn

WRITERS = 8
KEYS_PER_WRITER = 200
COMMITS = 20


def write_keys(connection: dict[str, str], repository: str, writer: int, count: int) -> list[str]:
    """Writes keys one after another and returns those that were acknowledged."""
    from botocore.exceptions import BotoCoreError, ClientError

    tarn = RunningTarn("", Path(), Path(), None, **connection)  # type: ignore[arg-type]  # a client only
    client = tarn.s3()
    acknowledged = []
    for number in range(count):
        key = f"main/{writer}/{number:05}"
        try:
            client.put_object(Bucket=repository, Key=key, Body=key.encode())
        except (ClientError, BotoCoreError):
            continue  # out of retries: nobody promised anything
        acknowledged.append(key)
    client.close()
    return acknowledged


def connection_of(tarn: RunningTarn) -> dict[str, str]:
    return {
        "endpoint": tarn.endpoint,
        "access_key_id": tarn.access_key_id,
        "secret_access_key": tarn.secret_access_key,
    }


def keys_of(client: Any, repository: str, ref: str = "main") -> set[str]:
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=repository, Prefix=f"{ref}/")
    return {each["Key"] for page in pages for each in page.get("Contents", [])}


def write_from_many_processes(
    tarn: RunningTarn, repository: str, count: int, meanwhile: threading.Thread
) -> list[str]:
    # "spawn": this process has threads and open connections that a fork would copy.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WRITERS, mp_context=context) as pool:
        futures = [
            pool.submit(write_keys, connection_of(tarn), repository, writer, count)
            for writer in range(WRITERS)
        ]
        meanwhile.start()
        acknowledged = [key for future in futures for key in future.result()]
    meanwhile.join()
    return acknowledged


@pytest.mark.slow
@pytest.mark.on_cassandra("one")
@pytest.mark.timeout(300)
def test_no_acknowledged_write_is_lost_while_another_commits(
    tarn: RunningTarn, s3: Any, repository: str
) -> None:
    commits = []

    def commit() -> None:
        for number in range(COMMITS):
            made = tarn.cli("commit", f"{repository}/main", "-m", str(number), "--allow-empty")
            commits.append(made)

    acknowledged = write_from_many_processes(
        tarn, repository, KEYS_PER_WRITER, threading.Thread(target=commit)
    )
    assert [done.err for done in commits if done.code] == []
    assert len(acknowledged) == WRITERS * KEYS_PER_WRITER
    assert keys_of(s3, repository) == set(acknowledged)
    tarn.ok("commit", f"{repository}/main", "-m", "last", "--allow-empty")
    assert keys_of(s3, repository) == set(acknowledged)
    log = tarn.ok("--json", "log", f"{repository}/main", "-n", "0").json
    assert len(log) >= COMMITS + 2
    # Every commit holds everything that the one before it held: nobody deleted anything.
    sizes = [len(keys_of(s3, repository, each["commit"])) for each in log[::4]]
    assert sizes == sorted(sizes, reverse=True)
    for key in acknowledged[::97]:
        body = s3.get_object(Bucket=repository, Key=key)["Body"].read()
        assert body == key.encode()


def is_healed(state: dict[str, Any], killed_count: int) -> bool:
    """Every death was noticed, and every worker runs."""
    return state["restart_count"] == killed_count and all(state["processes"].values())


@pytest.mark.slow
@pytest.mark.on_cassandra("three")
@pytest.mark.timeout(300)
def test_killed_workers_are_restarted_and_lose_nothing(own_tarn: RunningTarn) -> None:
    tarn = own_tarn
    repository = tarn.new_repository()
    killed = []

    def kill() -> None:
        names = list(tarn.state()["processes"])
        for round_number in range(4):
            time.sleep(1.5)
            name = names[round_number % len(names)]
            if pid := tarn.state()["processes"][name]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    acknowledged = write_from_many_processes(tarn, repository, 150, threading.Thread(target=kill))
    assert killed
    end = time.monotonic() + 60
    while not is_healed(tarn.state(), len(killed)):
        assert time.monotonic() < end, f"not every worker was restarted: {tarn.state()}"
        time.sleep(0.1)
    assert not set(killed) & set(tarn.state()["processes"].values())
    client = tarn.s3()
    found = keys_of(client, repository)
    assert set(acknowledged) <= found
    assert len(acknowledged) > WRITERS * 100, "clients should retry through a restart"
    for key in acknowledged[::53]:
        body = client.get_object(Bucket=repository, Key=key)["Body"].read()
        assert body == key.encode()
    tarn.ok("commit", f"{repository}/main", "-m", "after the storm")
    assert keys_of(client, repository) == found
    client.close()
