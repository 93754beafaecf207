"""The compactor of a running Tarn: its settings in tests, its rpcs, and what listings read."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from running_tarn import RunningTarn
from slowness import scaled
from tests.support.unhandled import check_log

from tarn.client.async_client import AsyncClient
from tarn.client.compactor import CompactorClient
from tarn.client.staging_events import StagingEventClient
from tarn.core.access.caller_token import issue
from tarn.core.access.service import Service
from tarn.core.entry import Entry, pack
from tarn.core.ids import AccessKeyId
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call
from tarn_auth.keyring import Keyring

__all__ = [
    "LOW_THRESHOLDS",
    "Admin",
    "admin_of",
    "another_compactor",
    "config_of",
    "delete",
    "eventually",
    "gateway_token",
    "listed",
    "staging",
    "status",
]

LOW_THRESHOLDS = (
    "compactor: {tombstones: 10, rows: 500, interval: 1s, commit_interval: 1s, age: 5s}\n"
    "audit: {output: file}\n"
)
"""Compactions happen in most tests, because a compaction must change no answer. Neither must the audit log."""
WAIT_SECONDS = scaled(240)
"""A branch rests for five times its last compaction, which takes 20 s beside other tests."""
_ATTEMPTS = 20
_AT_ONCE = 500


def config_of(folder: Path) -> Path:
    """Writes a configuration with low thresholds."""
    file = folder / "tarn.yaml"
    file.write_text(LOW_THRESHOLDS)
    return file


class Admin:
    """The rpcs of an admin.

    Attributes:
        client: graveler and auth.
        compactor: the compactor.
    """

    def __init__(
        self,
        client: AsyncClient,
        token: str,
        compactor: CompactorClient,
        replicas: list[StagingEventClient],
        gateway_token: str,
    ) -> None:
        self.client = client
        self._gateway_token = gateway_token
        self.compactor = compactor
        self._token = token
        self._replicas = replicas

    def call(self) -> Call:
        """Returns the context of a call to a compactor or a replica."""
        return replace(self.client.call(), caller_token=self._token)

    async def stage(self, repository: str, names: list[str]) -> None:
        """Stages entries as a gateway does, but without writing their block; many at a time."""
        graveler = self.client.graveler
        uid = (await graveler.get_repository(self.client.call(), repository)).instance_uid
        packed = pack(Entry(1, 0, SystemIds(SystemClock()).uuid7(), bytes(16)))
        proof = self._gateway_token
        for start in range(0, len(names), _AT_ONCE):
            async with asyncio.TaskGroup() as group:
                for name in names[start : start + _AT_ONCE]:
                    call = replace(self.client.call(), service_token=proof)
                    place = (repository, uid, "main", name, packed)
                    group.create_task(graveler.stage(call, *place))

    async def until_compacting(self, repository: str) -> bool:
        """Returns True as soon as the branch record says that a compaction runs; False if it has ended before."""
        graveler = self.client.graveler
        first = await graveler.staging_statistics(self.client.call(), repository, "main")
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            found = await graveler.staging_statistics(
                self.client.call(), repository, "main", rows_max=1
            )
            if found.HasField("compaction_start_time"):
                return True
            if found.last_compaction_time != first.last_compaction_time:
                return False
            assert time.monotonic() < deadline, found

    async def listing_cost(self, s3: Any, repository: str) -> tuple[int, int]:
        """Lists `main`; returns the rows that all layers gave for it, and the number of its objects.

        A replica counts listings of a branch to which it has written since the branch was sealed. So an object is
        written before, on the same connection, and the listing is repeated until it was counted as a whole.
        """
        for _ in range(_ATTEMPTS):
            s3.put_object(Bucket=repository, Key="main/zz-touched", Body=b"")
            before = await self._listed_rows(repository)
            count = len(listed(s3, repository))
            after = await self._listed_rows(repository)
            if after[1] - before[1] >= count:
                return after[0] - before[0], count
            await asyncio.sleep(0.2)
        raise AssertionError(f"no replica counts the listings of {repository}")

    async def _listed_rows(self, repository: str) -> tuple[int, int]:
        """Returns the rows that listings of a repository read and returned so far, on all replicas."""
        read = returned = 0
        for replica in self._replicas:
            answer = await replica.watch_staging(self.call(), b"", 0, 0)
            for each in answer.tokens:
                if each.repository_id == repository:
                    read += each.listed_rows_read
                    returned += each.listed_rows_returned
        return read, returned


@asynccontextmanager
async def admin_of(tarn: RunningTarn) -> AsyncIterator[Admin]:
    """Yields the rpcs of the admin of a Tarn."""
    addresses = [each.split()[0] for each in status(tarn)["replicas"]]
    transports = [
        GrpcTransport([each], clock=SystemClock(), rng=random.Random(1))
        for each in (tarn.state()["compactor_server"], *addresses)
    ]
    try:
        async with AsyncClient(
            tarn.server,
            auth_addresses=tarn.auth_server if tarn.auth_server != tarn.server else (),
            access_key_id=tarn.access_key_id,
            secret_access_key=tarn.secret_access_key,
            timeout_s=120,
        ) as client:
            first, *others = transports
            replicas = [StagingEventClient(each) for each in others]
            token = await client.log_in()
            yield Admin(client, token, CompactorClient(first), replicas, gateway_token(tarn))
    finally:
        for each in transports:
            await each.close()


def gateway_token(tarn: RunningTarn) -> str:
    """Makes the token of a gateway with the installation's secret, as auth does."""
    secret = bytes.fromhex((tarn.data / "secret").read_text().strip())
    now_us = SystemClock().now_us()
    return issue(
        Keyring([secret], os.urandom).token_keys[0],
        Service.GATEWAY.user_id,
        b"",
        AccessKeyId(""),
        now_us,
        now_us + 3_600_000_000,
    )


def status(tarn: RunningTarn, server: str = "") -> Any:
    """Returns what `tarn compact status` tells of all branches; `server` names another compactor."""
    server = server or tarn.state()["compactor_server"]
    return tarn.ok("--json", "--compactor-server", server, "compact", "status", "-n", "1000").json


def staging(tarn: RunningTarn, repository: str, branch: str = "main") -> Any:
    """Returns what `tarn branch show --staging` tells."""
    return tarn.ok("--json", "branch", "show", f"{repository}/{branch}", "--staging").json


def eventually(look: Callable[[], bool], tarn: RunningTarn) -> None:
    """Waits until something is so."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not look():
        assert time.monotonic() < deadline, status(tarn)
        time.sleep(0.5)


def listed(s3: Any, repository: str, prefix: str = "", branch: str = "main") -> list[str]:
    """Returns all keys of a branch with a prefix."""
    paginator = s3.get_paginator("list_objects_v2")
    pages = paginator.paginate(Bucket=repository, Prefix=f"{branch}/{prefix}")
    return [each["Key"] for page in pages for each in page.get("Contents", ())]


def delete(s3: Any, repository: str, names: list[str], branch: str = "main") -> None:
    """Deletes objects by DeleteObjects, 1,000 at a time."""
    for start in range(0, len(names), 1000):
        keys = [{"Key": f"{branch}/{name}"} for name in names[start : start + 1000]]
        answer = s3.delete_objects(Bucket=repository, Delete={"Objects": keys, "Quiet": True})
        assert not answer.get("Errors")


@contextmanager
def another_compactor(tarn: RunningTarn, folder: Path) -> Iterator[str]:
    """Runs one more compactor beside that of a Tarn, with the same settings; yields its address."""
    own = Path(f"/proc/{tarn.state()['processes']['compactor']}")
    pairs = [each.partition("=") for each in (own / "environ").read_text().split("\0") if each]
    environment = {name: value for name, _, value in pairs if name != "TARN_READY_FD"}
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    for name in ("TARN_RPC_LISTEN_ADDRESS", "TARN_SERVICES_COMPACTOR_ADDRESSES"):
        assert name in environment
        environment[name] = address
    environment["TARN_TELEMETRY_ADMIN_ADDRESS"] = "127.0.0.1:0"
    command = (own / "cmdline").read_text().rstrip("\0").split("\0")
    command = command[command.index("tarn_compactor") + 1 :]
    with (folder / "compactor.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tarn_cli.node.lifeline", str(os.getpid())),
                *(sys.executable, "-m", "tarn_compactor", *command),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
        )
    try:
        command_line = ("--json", "--compactor-server", address, "compact", "status")
        deadline = time.monotonic() + WAIT_SECONDS
        while tarn.cli(*command_line).code != 0:
            assert process.poll() is None, (folder / "compactor.log").read_text()
            assert time.monotonic() < deadline, (folder / "compactor.log").read_text()
        yield address
    finally:
        process.terminate()
        assert process.wait(WAIT_SECONDS) == 0, (folder / "compactor.log").read_text()
    check_log(folder / "compactor.log")
