"""The child's side of the conversation, over a socket but without a process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tarn.block.committed import BuildResult
from tarn.core.listing.metarange import EMPTY_METARANGE
from tarn.rpc.process.system import SystemClock
from tarn_graveler.branch.building import BuildOrder
from tarn_graveler.heavy.child import Builds
from tarn_graveler.heavy.wire import frame_of, read_message, said_order

SECONDS = 30
ORDER = BuildOrder("local://lake", EMPTY_METARANGE.metarange_id, ())


class Endless:
    """Builds that end only when they are cancelled; in another namespace they raise an unexpected error."""

    def __init__(self) -> None:
        self.running = 0

    async def build(self, order: BuildOrder) -> BuildResult:
        if order.namespace != ORDER.namespace:
            raise ZeroDivisionError("a bug")
        self.running += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.running -= 1
        raise AssertionError


class Parent:
    """The parent's end of the socket, and the child's task."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, child: asyncio.Task[None]
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.child = child

    def say(self, message: dict[str, Any]) -> None:
        self.writer.write(frame_of(message))

    def order(self, number: int, order: BuildOrder = ORDER) -> None:
        self.say({"id": number, "build": said_order(order), "request_id": "r1"})

    async def hear(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            message = await read_message(self.reader)
        assert message is not None
        return message


@pytest.fixture
def endless() -> Endless:
    return Endless()


@pytest.fixture
async def parent(endless: Endless) -> AsyncIterator[Parent]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    async with asyncio.TaskGroup() as group:
        child = group.create_task(Builds(endless, writer, SystemClock()).run(reader))
        parent = Parent(*await asyncio.open_unix_connection(sock=ours), child)
        yield parent
        parent.writer.close()
        await child
        writer.close()


async def test_a_cancelled_build_ends_and_is_answered_at_last(
    parent: Parent, endless: Endless
) -> None:
    parent.order(1)
    parent.order(2)
    parent.say({"id": 1, "cancel": True})
    answer = await parent.hear()
    assert answer["id"] == 1
    assert "cancelled" in answer["error"]["message"]
    assert endless.running == 1
    parent.say({"id": 1, "cancel": True})  # a cancellation that arrives too late is ignored
    parent.say({"id": 2, "cancel": True})
    assert (await parent.hear())["id"] == 2


async def test_a_build_ends_when_the_parent_is_gone(parent: Parent, endless: Endless) -> None:
    parent.order(1)
    parent.order(2, BuildOrder("local://bug", ORDER.base, ()))
    await parent.hear()  # so that the first build has begun
    assert endless.running == 1
    parent.writer.close()
    async with asyncio.timeout(SECONDS):
        await parent.child
    assert endless.running == 0


async def test_a_bug_is_an_internal_error_of_its_request_alone(parent: Parent) -> None:
    parent.order(1)
    parent.order(2, BuildOrder("local://bug", ORDER.base, ()))
    answer = await parent.hear()
    assert (answer["id"], answer["error"]["kind"]) == (2, "internal")
    assert "r1" in answer["error"]["message"]
    assert "bug" not in answer["error"]["message"]
