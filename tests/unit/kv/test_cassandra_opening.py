"""The errors for a cluster that cannot be opened."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator

import pytest
from structlog.testing import capture_logs

from tarn.core.errors import Kind, TarnError
from tarn.kv.cassandra import CassandraLimits, CassandraSettings
from tarn.testing.contract.cassandra_store import open_store

REFUSAL = b"Invalid or unsupported protocol version (5); supported versions are (3/v3, 4/v4)"


async def answer_as_3_11(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers any request with a frame of version 4 that holds a protocol error."""
    await reader.read(9)
    body = struct.pack(">iH", 0x000A, len(REFUSAL)) + REFUSAL
    writer.write(struct.pack(">BBhBi", 0x84, 0, 0, 0x00, len(body)) + body)
    await writer.drain()
    writer.close()


@pytest.fixture
async def old() -> AsyncIterator[CassandraSettings]:
    async with await asyncio.start_server(answer_as_3_11, "127.0.0.1", 0) as server:
        yield settings_of(server.sockets[0].getsockname()[1])


def settings_of(port: int) -> CassandraSettings:
    return CassandraSettings((f"127.0.0.1:{port}",), "datacenter1", "tarn")


async def test_a_server_that_is_too_old_is_refused_at_once(old: CassandraSettings) -> None:
    with pytest.raises(TarnError, match=r"127\.0\.0\.1:\d+ is too old: .* 4\.1") as caught:
        await open_store(old, CassandraLimits(open_seconds=60))
    assert caught.value.kind is Kind.FAILED_PRECONDITION


async def test_a_cluster_that_does_not_answer_is_asked_again_and_told_of_once() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # the port is bound, without a listener
        unreachable = settings_of(silent.getsockname()[1])
        with capture_logs() as logs, pytest.raises(TarnError, match="refused") as caught:
            await open_store(unreachable, CassandraLimits(open_seconds=1.5))
    assert caught.value.kind is Kind.UNAVAILABLE
    assert [entry["event"] for entry in logs] == ["cassandra is not opened yet"]
