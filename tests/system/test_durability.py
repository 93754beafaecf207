"""Acknowledged writes are there: under concurrent commits, and after workers are killed.

Keys are overwritten and deleted, so that a lost overwrite and a deleted object that comes back are detected. Each
key has one writer, which performs one operation after another and never repeats a request. Every value names its
operation, so the value of a key shows which operation was the last to take effect.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from running_tarn import RunningTarn

WRITERS = 8
KEYS_PER_WRITER = 12
COMMITS = 20
KILLS_MIN, KILLS_MAX = 4, 12

SECONDS_MAX = 150
"""A writer ends after this time, however little it has done."""

NOTHING = 0
"""The value of a key that was deleted or never written."""


@dataclass
class Key:
    """The state of one key as its writer knows it.

    Attributes:
        is_set: number of the last acknowledged operation; `NOTHING` after a delete.
        unsettled: operations without an answer: each may take effect at any time, or never.
        replaced: values that an acknowledged operation has replaced; they must never be seen again.
    """

    is_set: int = NOTHING
    unsettled: set[int] = field(default_factory=set)
    replaced: set[int] = field(default_factory=set)
    acknowledged: int = 0

    def acknowledge(self, number: int) -> None:
        """Records the answer to an operation."""
        self.replaced.add(self.is_set)
        self.replaced.discard(number)
        self.is_set = number
        self.acknowledged += 1

    def allows(self, found: int) -> bool:
        """Whether the key may hold the value of an operation (`NOTHING`: no value)."""
        return found == self.is_set or found in self.unsettled


def body_of(key: str, number: int) -> bytes:
    return f"{key} {number}".encode()


@dataclass(frozen=True)
class Work:
    """The work of each writer: it ends after `count_max` operations, or earlier: after `acknowledged_min`
    acknowledged ones, when told that the other work is done. So a slow machine takes longer and proves as much.
    """

    seed: int
    acknowledged_min: int
    count_max: int
    delete_rate: float


class Writer:
    """Writes, overwrites, deletes and reads its own keys."""

    def __init__(self, client: Any, repository: str, name: int, seed: int) -> None:
        self.client = client
        self.repository = repository
        self.random = random.Random(f"{seed} {name}")
        self.keys = {f"main/{name}/{number:02}": Key() for number in range(KEYS_PER_WRITER)}
        self.wrong: list[str] = []
        self._number = 0

    def run(self, work: Work) -> None:
        """Performs writes and deletes until the work is done."""
        end = time.monotonic() + SECONDS_MAX
        for _ in range(work.count_max):
            is_enough = self.acknowledged >= work.acknowledged_min
            if time.monotonic() > end or (is_enough and _may_end.is_set()):
                return
            name = self.random.choice([*self.keys])
            if self.random.random() < work.delete_rate:
                self._delete(name)
            else:
                self._put(name)
            if self.random.random() < 0.2:
                self._get(name)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged operations."""
        return sum(key.acknowledged for key in self.keys.values())

    def _put(self, name: str) -> None:
        self._number += 1
        number, key = self._number, self.keys[name]
        body = body_of(name, number)
        key.unsettled.add(number)
        if self._done(lambda: self._object("put_object", name, Body=body)):
            key.unsettled.discard(number)
            key.acknowledge(number)

    def _delete(self, name: str) -> None:
        key = self.keys[name]
        was_unsettled = NOTHING in key.unsettled  # an earlier delete may still take effect
        key.unsettled.add(NOTHING)
        if self._done(lambda: self._object("delete_object", name)):
            key.acknowledge(NOTHING)
            if not was_unsettled:
                key.unsettled.discard(NOTHING)

    def _get(self, name: str) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            answer = self._object("get_object", name)
            found = int(answer["Body"].read().split()[1])
        except self.client.exceptions.NoSuchKey:
            found = NOTHING
        except (ClientError, BotoCoreError):
            return
        if not self.keys[name].allows(found):
            self.wrong.append(f"{name} holds operation {found}: {self.keys[name]}")

    def _object(self, operation: str, name: str, **more: Any) -> Any:
        return getattr(self.client, operation)(Bucket=self.repository, Key=name, **more)

    @staticmethod
    def _done(act: Callable[[], object]) -> bool:
        """Performs one operation; returns whether it was acknowledged."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            act()
        except (ClientError, BotoCoreError):
            time.sleep(0.05)
            return False
        return True


_may_end: Event
"""In the process of a writer: set when the work beside the writers is done."""


def _share(may_end: Event) -> None:
    global _may_end  # noqa: PLW0603 - the only way in which a pool hands an event to its processes
    _may_end = may_end


def write(
    connection: dict[str, str], repository: str, name: int, work: Work
) -> tuple[dict[str, Key], list[str]]:
    """Runs one writer in a separate process; returns the states of its keys, and the wrong answers."""
    tarn = RunningTarn("", Path(), Path(), None, **connection)  # type: ignore[arg-type]  # a client only
    # A request that boto repeats could take effect after a newer one was acknowledged.
    client = tarn.s3(retries={"mode": "standard", "max_attempts": 1}, read_timeout=20)
    writer = Writer(client, repository, name, work.seed)
    writer.run(work)
    client.close()
    return writer.keys, writer.wrong


def connection_of(tarn: RunningTarn) -> dict[str, str]:
    return {
        "endpoint": tarn.endpoint,
        "access_key_id": tarn.access_key_id,
        "secret_access_key": tarn.secret_access_key,
    }


def etags_of(client: Any, repository: str, ref: str = "main") -> dict[str, str]:
    """Returns the ETags of a ref, by the key on branch main."""
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=repository, Prefix=f"{ref}/")
    return {
        f"main/{each['Key'].partition('/')[2]}": each["ETag"].strip('"')
        for page in pages
        for each in page.get("Contents", [])
    }


def number_of(name: str, etag: str | None, numbers_max: int) -> int:
    """Returns the operation whose body has an ETag; -1 if there is none."""
    if etag is None:
        return NOTHING
    for number in range(1, numbers_max + 1):
        if hashlib.md5(body_of(name, number)).hexdigest() == etag:
            return number
    return -1


def write_from_many_processes(
    tarn: RunningTarn,
    repository: str,
    work: Work,
    meanwhile: Callable[[Event, threading.Event], None],
) -> dict[str, Key]:
    """Runs all writers; returns the state of every key.

    Args:
        meanwhile: runs beside the writers. It sets its first event as soon as they may end, and works on until its
            second event is set: then they have ended.
    """
    # "spawn": this process has threads and open connections that a fork would copy.
    context = multiprocessing.get_context("spawn")
    may_end, have_ended = context.Event(), threading.Event()
    beside = threading.Thread(target=meanwhile, args=(may_end, have_ended))
    with ProcessPoolExecutor(
        WRITERS, mp_context=context, initializer=_share, initargs=(may_end,)
    ) as pool:
        futures = [
            pool.submit(write, connection_of(tarn), repository, name, work)
            for name in range(WRITERS)
        ]
        beside.start()
        try:
            answers = [future.result() for future in futures]
        finally:
            have_ended.set()
    beside.join()
    assert [line for _, wrong in answers for line in wrong] == []
    return {name: key for keys, _ in answers for name, key in keys.items()}


def check_all(client: Any, repository: str, known: dict[str, Key], ref: str = "main") -> None:
    """Checks that listing and GET agree on each key, and that its value is the acknowledged one."""
    listed = etags_of(client, repository, ref)
    wrong = [f"{name} was never written" for name in listed.keys() - known.keys()]
    for name, key in known.items():
        number = number_of(name, listed.get(name), key.acknowledged + 10_000)
        if not key.allows(number):
            seen = "was replaced before" if number in key.replaced else "is not the last one"
            wrong.append(f"{ref}: {name} holds operation {number}, which {seen}: {key}")
        if name in listed:
            path = name.removeprefix("main/")
            body = client.get_object(Bucket=repository, Key=f"{ref}/{path}")["Body"].read()
            if body != body_of(name, number):
                wrong.append(f"{ref}: {name} is listed as operation {number} and reads {body!r}")
    assert wrong == []


@pytest.mark.in_form("separate")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_acknowledged_write_is_lost_while_another_commits(
    tarn: RunningTarn, s3: Any, repository: str
) -> None:
    commits = []

    def commit(may_end: Event, have_ended: threading.Event) -> None:
        for number in range(COMMITS):
            made = tarn.cli("commit", f"{repository}/main", "-m", str(number), "--allow-empty")
            commits.append(made)
        may_end.set()
        have_ended.wait()

    work = Work(seed=1, acknowledged_min=200, count_max=200, delete_rate=0.0)
    known = write_from_many_processes(tarn, repository, work, commit)
    assert [done.err for done in commits if done.code] == []
    assert sum(key.acknowledged for key in known.values()) == WRITERS * 200
    assert [key for key in known.values() if key.unsettled] == []
    check_all(s3, repository, known)
    tarn.ok("commit", f"{repository}/main", "-m", "last", "--allow-empty")
    check_all(s3, repository, known)
    log = tarn.ok("--json", "log", f"{repository}/main", "-n", "0").json
    assert len(log) >= COMMITS + 2
    # Every commit holds the value of the previous commit or a newer one.
    numbers_max = max(key.is_set for key in known.values())
    newer = {name: key.is_set for name, key in known.items()}
    for each in log[::4]:
        etags = etags_of(s3, repository, each["commit"])
        older = {name: number_of(name, etags.get(name), numbers_max) for name in known}
        assert [name for name in known if not 0 <= older[name] <= newer[name]] == []
        newer = older


def is_healed(state: dict[str, Any], killed_count: int) -> bool:
    """Whether every killed worker was restarted and every worker runs."""
    return state["restart_count"] == killed_count and all(state["processes"].values())


@pytest.mark.in_form
@pytest.mark.slow
@pytest.mark.on_cassandra("three")
@pytest.mark.timeout(300)
def test_killed_workers_are_restarted_and_lose_nothing(own_tarn: RunningTarn) -> None:
    tarn = own_tarn
    repository = tarn.new_repository()
    seed = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 1_000_000)
    print(f"SEED={seed} plays the same kills")  # noqa: T201 - pytest shows it with a failure
    rng = random.Random(seed)
    killed: list[int] = []

    def kill(may_end: Event, have_ended: threading.Event) -> None:
        while not have_ended.wait(rng.uniform(0.1, 2.5)):
            if rng.random() < 0.5:
                tarn.cli("commit", f"{repository}/main", "-m", "beside", "--allow-empty")
            processes = tarn.state()["processes"]
            if len(killed) == KILLS_MAX:
                continue  # a slow machine must come to its acknowledged operations
            if pid := processes[rng.choice(sorted(processes))]:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            if len(killed) >= KILLS_MIN:
                may_end.set()

    work = Work(seed, acknowledged_min=50, count_max=5_000, delete_rate=0.2)
    known = write_from_many_processes(tarn, repository, work, kill)
    assert len(killed) >= KILLS_MIN, f"{len(killed)} kills show little"
    end = time.monotonic() + 60
    while not is_healed(tarn.state(), len(killed)):
        assert time.monotonic() < end, f"not every worker was restarted: {tarn.state()}"
        time.sleep(0.1)
    # A process that was started last may still open its store, and an SDK stops asking for it after some tries.
    while (done := tarn.cli("branch", "list", repository)).code:
        assert time.monotonic() < end, f"what was restarted does not serve: {done.err}"
    assert not set(killed) & set(tarn.state()["processes"].values())
    acknowledged = sum(key.acknowledged for key in known.values())
    overwritten = sum(len(key.replaced) > 1 for key in known.values())
    assert acknowledged >= WRITERS * 50, f"{acknowledged} acknowledged operations show little"
    assert overwritten > WRITERS * KEYS_PER_WRITER / 2
    client = tarn.s3()
    check_all(client, repository, known)
    tarn.ok("commit", f"{repository}/main", "-m", "after the kills", "--allow-empty")
    check_all(client, repository, known)
    client.close()
