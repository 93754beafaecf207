"""`tarn merge` over a real server: it waits by a task, goes on after Ctrl-C, and tells how it ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lake import Running, reached
from lake_tasks import MAIN_KEY, done, handler_of, head, merges_of
from served_service import ServedService, served_service
from structlog.testing import capture_logs
from tests.support.clock import ManualClock

from tarn.core.errors import Kind, Reason, TarnError
from tarn_cli import foreground
from tarn_cli.__main__ import run
from tarn_proto.graveler.v1 import task_service_pb2 as pb


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ServedService]:
    """A repository with a branch `side` that has a commit more than `main`, at the time of this machine."""
    # The command line has the clock of this machine, and the id of a task must be of now.
    monkeypatch.setattr(ManualClock.__init__, "__defaults__", (time.time_ns() // 1000,))
    # The server shares its standard output with the command.
    with capture_logs():
        async with served_service(tmp_path) as made:
            await prepare(made, monkeypatch)
            yield made


async def prepare(made: ServedService, monkeypatch: pytest.MonkeyPatch) -> None:
    service = made.service
    await service.graveler.create_branch(service.admin, "lake", "side", "main")
    await service.put("a", 1, "side")
    await service.graveler.create_commit(service.admin, "lake", "side", "a")
    monkeypatch.setenv("HOME", "/nonexistent")
    monkeypatch.setenv("TARN_SERVER", made.address)
    monkeypatch.setenv("TARN_ACCESS_KEY_ID", made.access_key_id)
    monkeypatch.setenv("TARN_SECRET_ACCESS_KEY", made.secret_access_key)


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    made = Running()
    yield made
    await made.close()


async def tarn(*arguments: str) -> int:
    """Runs a command in a thread; returns its exit code."""
    return await asyncio.to_thread(run, arguments)


async def only_task(served: ServedService) -> str:
    service = served.service
    (task,) = (await service.graveler.list_tasks(service.admin, "lake")).tasks
    return task.task_id


async def test_a_merge_prints_the_commit_and_a_refused_one_its_reason(
    served: ServedService, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await tarn("--json", "merge", "lake/side", "lake/main", "-m", "take it") == 0
    shown = capsys.readouterr()
    made = json.loads(shown.out)
    assert (made["message"], shown.err) == ("take it", "")
    assert made["commit"] == await head(served.service)
    assert await tarn("--json", "merge", "lake/side", "lake/main") == 5
    shown = capsys.readouterr()
    assert (shown.out, json.loads(shown.err)["error"]) == ("", "NOTHING_TO_MERGE")


async def test_an_interrupted_command_leaves_the_merge_running_and_tells_its_id(
    served: ServedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service = served.service
    gate = service.replicas.kv.hold("set_if", MAIN_KEY)
    arguments = ("-m", "tarn_cli", "merge", "lake/side", "lake/main")
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=pipe, stderr=pipe, env=os.environ
    )
    await reached(gate)
    name = await only_task(served)
    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()
    assert (process.returncode, out) == (130, b"")
    assert f"`tarn task wait lake/{name}`" in err.decode()
    assert f"`tarn task cancel lake/{name}`" in err.decode()
    gate.open()
    assert (await done(service, name)).state == pb.TASK_STATE_SUCCEEDED
    assert await tarn("--json", "task", "wait", f"lake/{name}") == 0
    assert json.loads(capsys.readouterr().out)["commit"] == await head(service)


async def test_a_merge_that_takes_longer_than_the_first_call_is_followed(
    served: ServedService, running: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    service, waits = served.service, 0
    runner = handler_of(service, ".TaskService")._runner
    wait = runner.wait

    async def counted(*arguments: Any) -> Any:
        nonlocal waits
        waits += 1
        return await wait(*arguments)

    runner.wait = counted
    gate = service.replicas.kv.hold("set_if", MAIN_KEY)
    command = running.start(tarn("merge", "lake/side", "lake/main"))
    await reached(gate)
    name = await only_task(served)
    while waits < 2:  # the second one is that of WaitTask
        service.clock.advance(0.05)
        await asyncio.sleep(0.01)
    gate.open()
    assert await command == 0
    assert capsys.readouterr().out.split()[0] == await head(service)
    assert len(await merges_of(service, name)) == 1


async def test_a_long_preview_becomes_a_task(
    served: ServedService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await tarn("--json", "merge", "lake/side", "lake/main", "--preview") == 0
    plain = capsys.readouterr().out
    assert not (await served.service.graveler.list_tasks(served.service.admin, "lake")).tasks
    monkeypatch.setattr(foreground, "_PLAIN_SECONDS", 0.0)
    assert await tarn("--json", "merge", "lake/side", "lake/main", "--preview") == 0
    assert capsys.readouterr().out == plain
    await only_task(served)


async def test_a_user_with_too_many_tasks_can_still_merge(
    served: ServedService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarn.core.task.OPEN_MAX", 0)
    assert await tarn("--json", "merge", "lake/side", "lake/main") == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["commit"], made["metadata"]) == (await head(served.service), {})


async def test_a_merge_that_no_server_tells_about_is_not_told_as_refused(
    served: ServedService,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away(*_: Any) -> None:
        raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "the store is away")

    monkeypatch.setattr("tarn.client.tasks._FAILURES_MAX", 1)
    monkeypatch.setattr(handler_of(served.service, ".TaskService")._runner, "wait", away)
    assert await tarn("--json", "merge", "lake/side", "lake/main") == 6
    name = await only_task(served)
    told = json.loads(capsys.readouterr().err)
    assert told["error"] == "OUTCOME_UNKNOWN"
    assert f"`tarn task wait lake/{name}`" in told["message"]
    assert (await done(served.service, name)).state == pb.TASK_STATE_SUCCEEDED


async def test_an_error_after_a_start_in_doubt_is_no_refusal(served: ServedService) -> None:
    """The first start may still be on its way; a refusal of the second one says nothing about it."""
    client = served.service.graveler
    lost = TarnError(Kind.UNKNOWN_OUTCOME, Reason.OUTCOME_UNKNOWN, "lost")
    away = TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, "away")
    refused = TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, "too many")
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def outcome(*errors: TarnError) -> Reason:
        left = list(errors)

        async def start() -> pb.Task:
            raise left.pop(0)

        with pytest.raises(TarnError) as caught:
            await client.start_once(start, sleep)
        return caught.value.reason

    assert await outcome(lost, refused) is Reason.OUTCOME_UNKNOWN
    assert await outcome(away, refused) is Reason.OVERLOADED
    assert await outcome(*[away] * 5) is Reason.UNAVAILABLE
    assert await outcome(lost, *[away] * 4) is Reason.OUTCOME_UNKNOWN
    assert len(slept) == 1 + 1 + 4 + 4
