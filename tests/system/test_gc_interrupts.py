"""Ctrl-C and SIGTERM in the middle of a sweep of a real Tarn."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from eager_tarn import GRACE_S, eager_tarn, fsck
from running_tarn import BIN, RunningTarn, clean_environment

pytestmark = pytest.mark.timeout(400)
BLOCKS = 60
STOP_S = 40
"""Far less than the sweep would take, and than a call to graveler may take."""


def bodies(tarn: RunningTarn) -> int:
    return len(list((tarn.data / "blocks").glob("*/data/*/*")))


@contextmanager
def sweep_under_way(tarn: RunningTarn, lake: str) -> Iterator[subprocess.Popen[bytes]]:
    """Yields a sweep that deletes a block each second, when the first ones are gone."""
    s3 = tarn.s3()
    for _ in range(BLOCKS + 1):
        s3.put_object(Bucket=lake, Key="main/a", Body=os.urandom(100_000))
    time.sleep(1.5)
    tarn.ok("gc", "run", "--data-dir", str(tarn.data), timeout=120)
    time.sleep(GRACE_S + 0.5)
    assert bodies(tarn) == BLOCKS + 1
    command = [
        *(str(BIN / "tarn"), "--settings", str(tarn.settings), "gc", "run", lake),
        *("--data-dir", str(tarn.data), "--max-percent", "100", "--rate", "1", "--batch", "2"),
    ]
    with subprocess.Popen(command, env=clean_environment(), stderr=subprocess.PIPE) as sweep:
        try:
            deadline = time.monotonic() + 90
            while bodies(tarn) == BLOCKS + 1:
                assert sweep.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield sweep
        finally:
            sweep.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130)])
def test_an_interrupted_sweep_ends_and_the_next_one_goes_on(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    """The lease is longer than the test: it was released."""
    with eager_tarn(tmp_path, "single", lease_s=300) as tarn:
        lake = tarn.new_repository()
        with sweep_under_way(tarn, lake) as sweep:
            sweep.send_signal(number)
            _, told = sweep.communicate(timeout=STOP_S)
            assert sweep.returncode == code
            assert b"interrupted; the next run goes on" in told
        assert 1 < bodies(tarn) < BLOCKS + 1
        assert tarn.ok("gc", "status", lake, "--json").json["phase"] == "idle"
        data = ("--data-dir", str(tarn.data), "--max-percent", "100")
        tarn.ok("gc", "run", "--only", "sweep", lake, *data, timeout=120)
        assert bodies(tarn) == 1
        assert fsck(tarn) == []


def test_a_sweep_ends_although_graveler_does_not_answer(tmp_path: Path) -> None:
    """Its lease is left to expire."""
    with eager_tarn(tmp_path, "single", lease_s=10) as tarn:
        lake = tarn.new_repository()
        with sweep_under_way(tarn, lake) as sweep:
            workers = [psutil.Process(pid) for pid in tarn.state()["processes"].values()]
            for worker in workers:
                worker.suspend()
            try:
                sweep.send_signal(signal.SIGINT)
                sweep.communicate(timeout=STOP_S)
                assert sweep.returncode == 130
            finally:
                for worker in workers:
                    worker.resume()
        deadline = time.monotonic() + 120
        data = ("--data-dir", str(tarn.data), "--max-percent", "100")
        while (again := tarn.cli("gc", "run", lake, *data, timeout=120)).code != 0:
            assert (again.code, "is running" in again.err) == (5, True), again.err
            assert time.monotonic() < deadline
        assert bodies(tarn) == 1
        assert fsck(tarn) == []
