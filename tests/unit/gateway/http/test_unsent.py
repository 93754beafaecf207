"""Answers that clients do not take hold a bounded sum of memory; who makes progress stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from tests.support.servers.toy_service import until

from tarn_gateway.http import HttpLimits, Request, Response
from tarn_gateway.http.unsent import Sending, Unsent, give_way

Serving = Callable[..., AbstractAsyncContextManager[Any]]
Wire = Any

LIMITS = HttpLimits(unsent_bytes_max=100, unsent_patience_s=5.0)
NOW = 1000.0
MIB = 1024**2


@dataclass(eq=False)
class Waiting:
    """A connection whose client took something `ago` seconds ago."""

    ago: float
    size: int

    @property
    def unsent(self) -> Unsent | None:
        return Unsent(NOW - self.ago, self.size)


class Working:
    """A connection whose answer does not wait for its client."""

    unsent: Unsent | None = None


def test_no_connection_ends_within_the_bound() -> None:
    connections: list[Sending] = [Waiting(50, 60), Working(), Waiting(50, 40)]
    assert give_way(connections, LIMITS, NOW) == (100, [])


def test_the_longest_waits_end_and_no_more_than_needed() -> None:
    young, old, oldest = Waiting(6, 40), Waiting(7, 40), Waiting(8, 40)
    connections: list[Sending] = [young, old, Working(), oldest]
    assert give_way(connections, LIMITS, NOW) == (120, [oldest])
    young.size = 120
    assert give_way([young, old, oldest], LIMITS, NOW) == (200, [oldest, old, young])


def test_clients_that_make_progress_stay_above_the_bound() -> None:
    busy = [Waiting(4.9, 90) for _ in range(9)]
    assert give_way(busy, LIMITS, NOW) == (810, [])
    stuck = Waiting(5, 10)
    assert give_way([*busy, stuck], LIMITS, NOW) == (820, [stuck])


def test_an_answer_that_holds_nothing_stays() -> None:
    sends_a_file, stuck = Waiting(50, 0), Waiting(6, 101)
    assert give_way([sends_a_file, stuck], LIMITS, NOW) == (101, [stuck])


async def test_stuck_clients_lose_their_answers(serving: Serving, wire: Wire) -> None:
    """The buffers of the system take some of each answer, so how many end is not known."""
    clients = 4

    async def handler(request: Request) -> Response:
        return Response(200, [], bytes(32 * MIB) if request.raw_path == b"/large" else b"small")

    limits = HttpLimits(unsent_bytes_max=50 * MIB, unsent_patience_s=0.2, idle_timeout_s=2)
    async with serving(handler, limits) as stage:
        for _ in range(clients):
            client = await stage.connect()
            client.stop_reading()
            client.send(wire.get("/large"))
        assert (await stage.exchange()).status == 0
        await until(lambda: 0 < stage.server.unsent_bytes <= limits.unsent_bytes_max)
        assert 1 <= stage.server.connection_count < clients
        assert (await (await stage.connect()).ask(wire.get())).body == b"small"
