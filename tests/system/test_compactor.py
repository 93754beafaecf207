"""The compactor beside a running Tarn: deletes without a commit are folded by themselves."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from running_tarn import RunningTarn

from tarn.client.async_client import AsyncClient
from tarn.core.entry import Entry, pack

KEYS = 20_000
WAIT_SECONDS = 120


def paths(count: int) -> list[str]:
    return [f"_temporary/0/task-{number:05}/part-{number:05}" for number in range(count)]


async def stage(tarn: RunningTarn, repository: str, names: list[str]) -> None:
    """Stages entries without a body, many at a time."""
    auth = tarn.auth_server if tarn.auth_server != tarn.server else ()
    async with AsyncClient(
        tarn.server,
        auth_addresses=auth,
        access_key_id=tarn.access_key_id,
        secret_access_key=tarn.secret_access_key,
        timeout_s=120,
    ) as client:
        found = await client.graveler.get_repository(client.call(), repository)
        packed = pack(Entry(1, 0, bytes(16), bytes(16)))
        for start in range(0, len(names), 500):
            async with asyncio.TaskGroup() as group:
                for name in names[start : start + 500]:
                    group.create_task(
                        client.graveler.stage(
                            client.call(), repository, found.instance_uid, "main", name, packed
                        )
                    )


def delete(s3: Any, repository: str, names: list[str]) -> None:
    for start in range(0, len(names), 1000):
        keys = [{"Key": f"main/{name}"} for name in names[start : start + 1000]]
        answer = s3.delete_objects(Bucket=repository, Delete={"Objects": keys, "Quiet": True})
        assert not answer.get("Errors")


def status(tarn: RunningTarn) -> Any:
    server = tarn.state()["compactor_server"]
    return tarn.ok("--json", "--compactor-server", server, "compact", "status").json


def staging(tarn: RunningTarn, repository: str) -> Any:
    return tarn.ok("--json", "branch", "show", f"{repository}/main", "--staging").json


def eventually(look: Callable[[], bool], tarn: RunningTarn) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < deadline, status(tarn)
        time.sleep(0.5)


def listed(s3: Any, repository: str, prefix: str) -> list[str]:
    answer = s3.list_objects_v2(Bucket=repository, Prefix=f"main/{prefix}")
    return [each["Key"] for each in answer.get("Contents", ())]


@pytest.mark.timeout(600)
def test_many_deletes_without_a_commit_are_compacted_by_themselves(
    tarn: RunningTarn, repository: str, s3: Any
) -> None:
    names = paths(KEYS)
    asyncio.run(stage(tarn, repository, names))
    tarn.ok("commit", f"{repository}/main", "-m", "temporary files")
    s3.put_object(Bucket=repository, Key="main/result", Body=b"kept")
    delete(s3, repository, names)
    assert staging(tarn, repository)["tombstones"] > 0

    eventually(lambda: staging(tarn, repository)["staged_rows"] < 100, tarn)
    assert listed(s3, repository, "_temporary/") == []
    assert listed(s3, repository, "") == ["main/result"]
    assert s3.get_object(Bucket=repository, Key="main/result")["Body"].read() == b"kept"
    found = status(tarn)
    assert found["compactions"] >= 1
    assert found["tombstones_removed"] >= KEYS * 0.9
    assert all("connected" in each for each in found["replicas"])
    tarn.ok("commit", f"{repository}/main", "-m", "result")
    assert listed(s3, repository, "") == ["main/result"]


@pytest.mark.timeout(600)
def test_killing_the_compactor_and_a_replica_loses_nothing(own_tarn: RunningTarn) -> None:
    tarn, s3 = own_tarn, own_tarn.s3()
    repository = tarn.new_repository()
    names = paths(6000)
    asyncio.run(stage(tarn, repository, names))
    tarn.ok("commit", f"{repository}/main", "-m", "temporary files")
    os.kill(tarn.state()["processes"]["compactor"], signal.SIGKILL)
    delete(s3, repository, names[:5500])
    victim = next(
        name for name in tarn.state()["processes"] if name.startswith(("worker", "graveler"))
    )
    os.kill(tarn.state()["processes"][victim], signal.SIGKILL)
    # The new compactor finds the branch by its listing of staged branches.
    eventually(lambda: all(tarn.state()["processes"].values()), tarn)
    eventually(lambda: staging(tarn, repository)["staged_rows"] < 100, tarn)
    assert listed(s3, repository, "") == [f"main/{name}" for name in names[5500:]]
    s3.close()
