"""Documents are collected within one budget, and parsed beside other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from tarn_gateway.bodies.checksums import NO_CLAIMS, Promised
from tarn_gateway.bodies.payload import Payload, PayloadPolicy
from tarn_gateway.documents.reading import RATE_MIN_BYTES, ByteBudget, DocumentReader
from tarn_gateway.documents.xml_in import (
    DELETE_BYTES_MAX,
    PIECE_BYTES,
    DeleteRequest,
    DocumentParser,
    delete_parser,
)
from tarn_gateway.http import BodyReader, Headers, Request
from tarn_gateway.s3error import S3Error

MIB = 1024**2


def document(keys: int = 1000) -> bytes:
    return b"<Delete>%b</Delete>" % (b"<Object><Key>main/%b</Key></Object>" % (b"k" * 500) * keys)


def payload(body: bytes) -> Payload:
    request = Request("POST", b"/lake", b"delete", Headers([]), BodyReader(len(body), body))
    return Payload(request, len(body), None, Promised(NO_CLAIMS), PayloadPolicy())


def refused(budget: ByteBudget, user_id: str, count: int) -> str:
    with pytest.raises(S3Error) as caught, budget.hold(user_id, count):
        pass
    assert (caught.value.code, caught.value.headers) == ("SlowDown", {"Retry-After": "2"})
    return caught.value.message


def test_a_user_takes_at_most_half_of_the_budget() -> None:
    budget = ByteBudget(10)
    with budget.hold("ada", 3), budget.hold("ada", 2):
        assert "user ada holds its share of 5" in refused(budget, "ada", 1)
        with budget.hold("bob", 5):
            assert "all users together hold 10" in refused(budget, "eve", 1)
        assert (budget.held, budget.refused) == (5, 2)
        with budget.hold("eve", 5):
            assert budget.held == 10
    assert budget.held == 0
    with budget.hold("ada", 5):
        assert budget.held == 5


def test_a_failure_gives_the_bytes_back() -> None:
    budget = ByteBudget(10)
    with pytest.raises(ValueError, match="x"), budget.hold("ada", 5):
        raise ValueError("x")
    with budget.hold("ada", 5):
        assert budget.held == 5


async def read(reader: DocumentReader, body: bytes, user_id: str = "ada") -> DeleteRequest:
    return await reader.read(payload(body), user_id, DELETE_BYTES_MAX, delete_parser)


async def test_a_refused_document_is_not_read() -> None:
    reader = DocumentReader(4 * MIB)
    with reader.budget.hold("ada", 2 * MIB):
        body = payload(document(1))
        with pytest.raises(S3Error) as caught:
            await reader.read(body, "ada", DELETE_BYTES_MAX, delete_parser)
    assert caught.value.code == "SlowDown"
    assert await reader.read(body, "ada", DELETE_BYTES_MAX, delete_parser) == DeleteRequest(
        ("main/" + "k" * 500,), quiet=False
    )


async def test_a_malformed_document_gives_its_bytes_back() -> None:
    reader = DocumentReader(4 * MIB)
    for body in (b"<a/>", document()[:-9]):
        with pytest.raises(S3Error, match="MalformedXML"):
            await read(reader, body)
    assert reader.budget.held == 0


async def test_a_document_must_arrive_faster_than_a_body_that_is_stored() -> None:
    body = payload(document(1))
    await DocumentReader().read(body, "ada", DELETE_BYTES_MAX, delete_parser)
    assert body._request.body.rate_min_bytes == RATE_MIN_BYTES


class Recorded(DocumentParser[DeleteRequest]):
    """A parser that records its pieces."""

    def __init__(self, name: str, log: list[str]) -> None:
        inner = delete_parser()
        super().__init__(inner._schema)
        self._name, self._log = name, log

    def feed(self, piece: bytes) -> None:
        assert len(piece) <= PIECE_BYTES
        self._log.append(self._name)
        super().feed(piece)


def recorded(name: str, log: list[str]) -> Callable[[], Recorded]:
    return lambda: Recorded(name, log)


async def test_other_tasks_run_between_the_pieces_of_one_document_at_a_time() -> None:
    reader = DocumentReader()
    log: list[str] = []
    body = document()
    pieces = -(-len(body) // PIECE_BYTES)
    done = asyncio.Event()

    async def neighbour() -> None:
        while not done.is_set():
            log.append("-")
            await asyncio.sleep(0)

    async def parse(name: str) -> None:
        found = await reader.read(payload(body), name, DELETE_BYTES_MAX, recorded(name, log))
        assert len(found.keys) == 1000

    async with asyncio.TaskGroup() as group:
        other = group.create_task(neighbour())
        async with asyncio.TaskGroup() as parsing:
            for name in "ab":
                parsing.create_task(parse(name))
        done.set()
        await other
    text = "".join(log)
    # Each body is hashed by a thread of its own first, so either may be the first one.
    one_by_one = ("a" * pieces + "b" * pieces, "b" * pieces + "a" * pieces)
    assert text.replace("-", "") in one_by_one
    assert "aa" not in text
    assert "bb" not in text


async def test_a_small_document_waits_for_no_other() -> None:
    reader = DocumentReader()
    log: list[str] = []
    async with asyncio.TaskGroup() as group:
        large = recorded("a", log)
        group.create_task(reader.read(payload(document()), "a", DELETE_BYTES_MAX, large))
        small = recorded("b", log)
        group.create_task(reader.read(payload(document(1)), "b", DELETE_BYTES_MAX, small))
    assert "b" in log[:3]
