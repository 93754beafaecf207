"""The installation's secret is rotated under load, without a restart and without a failed request."""

from __future__ import annotations

import asyncio
import os
import random
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from running_tarn import RunningTarn, clean_environment, running_tarn

from tarn.client.auth import AuthClient
from tarn.core.errors import Reason, TarnError
from tarn.rpc.client.grpc_transport import GrpcTransport
from tarn.rpc.process.system import SystemClock, SystemIds
from tarn.rpc.wire.call import Call

GRANT_SECONDS = 6.0
"""Longer than a gateway keeps a user's token."""


class Load:
    """Clients that write, read and commit until they are stopped; the first failure ends them."""

    def __init__(self, tarn: RunningTarn) -> None:
        self.failures: list[BaseException] = []
        self.count = 0
        self._tarn = tarn
        self._stop = threading.Event()
        self._repository = tarn.new_repository()
        work = (self._objects, self._objects, self._log_in)
        self._threads = [threading.Thread(target=self._repeat, args=(each,)) for each in work]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join(30)

    def _repeat(self, begin: Callable[[], Callable[[], object]]) -> None:
        try:
            work = begin()
            while not self._stop.is_set() and not self.failures:
                work()
                self.count += 1
        except BaseException as error:  # noqa: BLE001 - whatever fails is the result of the test
            self.failures.append(error)

    def _objects(self) -> Callable[[], object]:
        s3 = self._tarn.s3(retries={"total_max_attempts": 1})
        chance = random.Random(threading.get_ident())

        def put_and_get() -> None:
            key = f"main/{chance.randrange(50)}/{threading.get_ident()}"
            body = chance.randbytes(100)
            s3.put_object(Bucket=self._repository, Key=key, Body=body)
            assert s3.get_object(Bucket=self._repository, Key=key)["Body"].read() == body

        return put_and_get

    def _log_in(self) -> Callable[[], object]:
        return lambda: caller_of(self._tarn, log_in(self._tarn))


def with_auth(tarn: RunningTarn, work: Callable[[AuthClient, Call], object]) -> object:
    async def calls() -> object:
        clock = SystemClock()
        transport = GrpcTransport([tarn.auth_server], tls=None, clock=clock, rng=random.Random(1))
        try:
            made = work(AuthClient(transport), Call("rotation", "", clock.monotonic() + 30))
            return await made  # type: ignore[misc]
        finally:
            await transport.close()

    return asyncio.run(calls())


def log_in(tarn: RunningTarn) -> str:
    clock = SystemClock()
    session = with_auth(
        tarn,
        lambda auth, call: auth.log_in(
            call,
            tarn.access_key_id,
            tarn.secret_access_key,
            now_us=clock.now_us(),
            nonce=SystemIds(clock).nonce(),
        ),
    )
    return str(session.grant.caller_token)  # type: ignore[attr-defined]


def caller_of(tarn: RunningTarn, token: str) -> None:
    with_auth(tarn, lambda auth, call: auth.get_caller(Call("r", token, call.deadline)))


def metric(tarn: RunningTarn, name: str) -> float:
    """A metric of the process of auth."""
    address = tarn.state()["admin_addresses"]["auth"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        found = re.search(rf"^{re.escape(name)} (\S+)$", page.read().decode(), re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def put(file: Path, text: str) -> None:
    """Replaces a file, as Kubernetes does."""
    draft = file.with_suffix(".new")
    draft.write_text(text)
    draft.chmod(0o600)
    draft.rename(file)


def wait_for(tarn: RunningTarn, name: str, value: float) -> None:
    deadline = time.monotonic() + 30
    while metric(tarn, name) != value:
        assert time.monotonic() < deadline, f"{name} is not {value}:\n{tarn.tail()}"
        time.sleep(0.1)


def used(tarn: RunningTarn, count: int) -> None:
    wait_for(tarn, 'tarn_secrets_reloads_total{outcome="used"}', count)


def start_with(tarn: RunningTarn, secret: str) -> subprocess.CompletedProcess[str]:
    """Starts auth on the same store with one secret; returns when it has ended."""
    environment = clean_environment(
        TARN_DATA_DIR=str(tarn.data),
        TARN_INSTALLATION_SECRET=secret,
        TARN_RPC_LISTEN_ADDRESS="127.0.0.1:0",
        TARN_TELEMETRY_ADMIN_ADDRESS="127.0.0.1:0",
    )
    command = [sys.executable, "-m", "tarn_auth"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_a_rotation_under_load_fails_no_request(tmp_path: Path) -> None:
    with running_tarn(tmp_path, "separate") as tarn:
        current, other = tarn.data / "secret", tarn.data / "previous_secret"
        old, new = current.read_text().strip(), os.urandom(32).hex()
        session = log_in(tarn)
        load = Load(tarn)
        with load.running():
            put(other, "damaged")
            wait_for(tarn, "tarn_secrets_refused", 1)
            put(other, new)
            used(tarn, 1)
            put(other, old)
            put(current, new)
            used(tarn, 2)
            swapped = time.monotonic()
            sealed = tarn.ok(
                "--json", "auth", "rotate-master-key", "--data-dir", str(tarn.data)
            ).json
            assert sealed["waiting"] == 0
            caller_of(tarn, session)
            time.sleep(max(0.0, swapped + GRANT_SECONDS - time.monotonic()))
            other.unlink()
            used(tarn, 3)
            before = load.count
            time.sleep(1)
        assert load.failures == []
        assert load.count > before > 20
        with pytest.raises(TarnError) as refused:
            caller_of(tarn, session)
        assert refused.value.reason is Reason.CALLER_TOKEN_INVALID
        ended = start_with(tarn, old)
        assert ended.returncode == 1
        assert "made with another secret" in ended.stdout + ended.stderr
        tarn.ok("repo", "list")
