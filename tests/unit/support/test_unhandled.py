"""Errors that are only logged fail a test: those of its own loop, and those of a service that it started."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from tests.support.unhandled import (
    check_log,
    defects_in,
    no_lost_errors,
    no_unhandled_errors,
)

LINE = '2026-11-22T04:22:01.897953Z info    s3 method=GET status=200 path="a b"'


@pytest.mark.parametrize(
    "defect",
    [
        'error   unhandled error what="Future exception was never retrieved" future="<Future>"',
        '{"event": "Future exception was never retrieved\\nfuture: <Future>", "level": "error"}',
        "Task exception was never retrieved",
        "Task was destroyed but it is pending!",
        "a.py:3: RuntimeWarning: coroutine 'f' was never awaited",
        "sys:1: ResourceWarning: unclosed <socket.socket fd=3>",
        "Unclosed client session",
        "Exception ignored in: <function f>",
        "Traceback (most recent call last):",
        "error   background task failed",
    ],
)
def test_a_defect_is_found_and_its_lines_are_shown(defect: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(f"{LINE}\n{defect}\n  one more line of it\n")
    with pytest.raises(AssertionError) as raised:
        check_log(log)
    assert str(raised.value).endswith(f"\n{defect}\n  one more line of it")
    assert "reports 1 defects" in str(raised.value)


def test_a_log_without_defects_passes_and_so_does_none_at_all(tmp_path: Path) -> None:
    log = tmp_path / "log"
    check_log(log)
    log.write_text(f"{LINE}\n" * 3)
    check_log(log)


def test_a_traceback_belongs_to_the_line_before_it() -> None:
    one = 'error unhandled error what="x"\nTraceback (most recent call last):\n  File\nOSError: 5'
    assert defects_in(f"{LINE}\n{one}\n{one}\n") == [one, one]


def test_grpcs_line_about_a_client_that_left_is_not_a_defect() -> None:
    noise = "Traceback (most recent call last):\n  File\ngrpc._cython.cygrpc.ExecuteBatchError: x\n"
    assert defects_in(f"{LINE}\n{noise}{LINE}\n") == []


async def abandon() -> None:
    """Leaves a failed future behind whose error is never retrieved."""
    async with no_unhandled_errors():
        future = asyncio.get_running_loop().create_future()
        future.set_exception(OSError(5, "never retrieved"))
        del future


async def test_an_error_that_is_never_retrieved_fails_the_test_that_caused_it() -> None:
    with pytest.raises(AssertionError, match="exception was never retrieved") as raised:
        await abandon()
    assert isinstance(raised.value.__cause__, OSError)


def test_an_error_of_any_loop_that_is_never_retrieved_fails_its_test() -> None:
    async def lose() -> None:
        asyncio.get_running_loop().create_future().set_exception(OSError(5, "lost"))

    with (
        pytest.raises(AssertionError, match=r"1 errors were never retrieved:(?s:.*)lost"),
        no_lost_errors(),
    ):
        asyncio.run(lose())
    with no_lost_errors():
        logging.getLogger("asyncio").error("another error")


async def test_errors_that_were_retrieved_pass() -> None:
    async with no_unhandled_errors():
        future = asyncio.get_running_loop().create_future()
        future.set_exception(OSError(5, "asked for"))
        assert future.exception() is not None
        del future


def test_the_driver_of_cassandra_may_say_that_a_node_does_not_answer() -> None:
    quiet = (
        "warning Host 127.0.1.1 has been marked down\n"
        "Traceback (most recent call last):\n"
        '  File "cassandra/cluster.py", line 3291, in cassandra.cluster.Session.run\n'
        '  File "cassandra/pool.py", line 408, in cassandra.pool.HostConnection.__init__\n'
        "cassandra.OperationTimedOut: errors=Timed out creating connection (5.0 seconds)\n"
        "info rpc\n"
    )
    assert defects_in(quiet) == []
    reset = quiet.replace(
        "cassandra.OperationTimedOut: errors=Timed out creating connection (5.0 seconds)\n",
        '  File "/srv/lib/python3.11/site-packages/cassandra/io/libevreactor.py", line 352, in read\n'
        "    buf = self._socket.recv(self.in_buffer_size)\n"
        "          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "ConnectionResetError: [Errno 104] Connection reset by peer\n",
    )
    assert defects_in(reset) == []
    ours = quiet.replace("cassandra/pool.py", "/tarn/kv/cassandra/store.py")
    assert len(defects_in(ours)) == 1
