"""What a running Tarn does before its metadata store is lost, and the checkers of what comes back."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from running_tarn import RunningTarn, launch, wait_until_up

from tarn.client import Client, TarnCallError

__all__ = [
    "REFS",
    "Writer",
    "client_of",
    "days_work",
    "findings",
    "kill",
    "shown",
    "start_again",
    "under_load",
]

REFS = ("main", "dev", "v1")


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
def under_load(
    tarn: RunningTarn, lake: str, writers: list[Writer], lost: threading.Event | None = None
) -> Iterator[Callable[[], None]]:
    """Runs all writers and the churn inside the block; their failures are failures of the test, until `lost` is set."""
    is_over, failures = threading.Event(), list[BaseException]()

    def guarded(work: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                work()
            except BaseException as error:
                if lost is None or not lost.is_set():
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


def kill(tarn: RunningTarn) -> None:
    """Kills Tarn."""
    tarn.supervisor.send_signal(signal.SIGKILL)
    tarn.supervisor.wait()
    time.sleep(1.0)  # its processes see that it is gone
    (tarn.data / "tarn.json").unlink()


def start_again(tarn: RunningTarn, config: Path, *kv: str) -> None:
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
        *kv,
    )
    tarn.supervisor = launch(tarn.data, *options)
    wait_until_up(tarn)


def findings(tarn: RunningTarn, *kv: str) -> list[str]:
    """Returns what `tarn fsck` finds lost or inconsistent."""
    done = tarn.cli("fsck", "--json", "--data-dir", str(tarn.data), *kv, timeout=180)
    found = json.loads(done.out)["findings"]
    return [str(each) for each in found if each["severity"] != "orphan"]
