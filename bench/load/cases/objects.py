"""1 KiB GET, HEAD and PUT by connections, durability and form of Tarn."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from bench.load.client import Load
from bench.load.node import Form, Node, raw_loop, running
from bench.load.seeding import connected
from bench.load.signing import Request
from bench.load.sizes import KIB
from bench.load.table import Goal, Row
from bench.load.trial import Case, Trial, Yardstick, compare, fsync_ms, trouble

__all__ = ["BODY", "CASES", "REPOSITORY", "at_work", "fill", "make_repository", "requests_for"]

REPOSITORY = "bench"
BODY = bytes(range(256)) * (KIB // 256)
_KEYS = 1000
_CONNECTIONS = (1, 4, 32, 128)
_QUICK_CONNECTIONS = (1, 32)
_PUTS_PER_SECOND_MAX = {1: 6_000, 4: 15_000}
"""Requests that a round prepares per second; if the server is faster, requests are sent twice."""
_PUTS_PER_SECOND = 25_000

_FORMS = (
    Form("os"),
    Form("fsync"),
    Form("os", separate=True),
    Form("fsync", separate=True),
    Form("os", workers=1, is_pinned=True),
)

_GOALS = {
    ("GET", False, "os", 32): Goal(ratio_min=0.25, cpu_us_max=60, p99_ms_max=6),
    ("HEAD", False, "os", 32): Goal(ratio_min=0.28),
    ("PUT", False, "os", 32): Goal(ratio_min=0.13),
    ("PUT", False, "fsync", 32): Goal(ratio_min=0.06),
    ("GET", True, "os", 32): Goal(ratio_min=0.09),
    ("PUT", True, "os", 32): Goal(ratio_min=0.05),
    ("GET", False, "os", 1): Goal(p50_ms_max=0.25),
    ("PUT", False, "os", 1): Goal(p50_ms_max=0.4),
    ("PUT", False, "fsync", 1): Goal(p50_ms_max=0.4),
}
"""By operation, separate processes, durability and connections."""


def make_repository(node: Node, name: str = REPOSITORY) -> None:
    """Creates a repository of a node."""
    import uvloop

    async def create() -> None:
        async with connected(node) as connection:
            await connection.graveler.create_repository(connection.call(), name)

    uvloop.run(create())


@contextmanager
def at_work(trial: Trial, form: Form) -> Iterator[tuple[Node, Yardstick]]:
    """Yields a node with a repository, and the raw loop."""
    folder = trial.within(str(form).replace(" ", "-").replace(",", ""))
    with running(folder, form) as node, raw_loop(form) as (address, processes):
        make_repository(node)
        yield node, Yardstick("raw loop", address, processes)


def fill(node: Node, prefix: str, count: int, body: bytes = BODY) -> None:
    """Puts `count` objects `<prefix>0` … over HTTP.

    Raises:
        RuntimeError: the server refused one.
    """
    requests = [
        node.signer.request("PUT", f"/{REPOSITORY}/main/{prefix}{number}", body=body)
        for number in range(count)
    ]
    done = Load(node.address, requests, min(16, count), 600).run()
    if done.failures:
        raise RuntimeError(f"filling {prefix}: {trouble(done)}")


def _goal(operation: str, form: Form, connections: int, fsync: float) -> Goal:
    """Returns the goal of a row (docs/design/performance.md, "Goals"); with fsync, one client gets one fsync
    more.
    """
    if form.is_pinned:
        return Goal()
    goal = _GOALS.get((operation, form.separate, form.durability, connections), Goal())
    if goal.p50_ms_max is not None and form.durability == "fsync":
        return replace(goal, p50_ms_max=round(goal.p50_ms_max + fsync, 3))
    return goal


def requests_for(
    node: Node, operation: str, connections: int, trial: Trial
) -> Callable[[int], Sequence[Request]]:
    """Returns the requests of a round; reads cycle over the keys, every write has its own key."""
    if operation != "PUT":
        read = [
            node.signer.request(operation, f"/{REPOSITORY}/main/read/{number}")
            for number in range(trial.count(_KEYS, 10))
        ]
        return lambda _round: read
    fresh = itertools.count()
    rate = _PUTS_PER_SECOND_MAX.get(connections, _PUTS_PER_SECOND)
    count = max(connections, int(rate * trial.seconds))

    def writes(number: int) -> Sequence[Request]:
        wanted = count if number >= 0 else max(connections, count // 8)
        return [
            node.signer.request("PUT", f"/{REPOSITORY}/main/put/{next(fresh)}", body=BODY)
            for _ in range(wanted)
        ]

    return writes


def _run(operation: str, trial: Trial) -> None:
    forms: Sequence[Form] = _FORMS
    if trial.quick:
        forms = _FORMS[:2] if operation == "PUT" else _FORMS[:1]
    for form in forms:
        several = _QUICK_CONNECTIONS if trial.quick else _CONNECTIONS
        with at_work(trial, form) as (node, yardstick):
            if operation != "PUT":
                fill(node, "read/", trial.count(_KEYS, 10))
            fsync = fsync_ms(trial.folder) if form.durability == "fsync" else 0.0
            for connections in (32,) if form.is_pinned else several:
                plural = "s" if connections > 1 else ""
                goal = _goal(operation, form, connections, fsync)
                note = f"one fsync here takes {fsync:.2f} ms" if goal.p50_ms_max and fsync else ""
                compare(
                    trial,
                    node,
                    yardstick,
                    Row(
                        trial.case,
                        f"{operation} 1 KiB, {connections} connection{plural}",
                        goal=goal,
                        note=note,
                    ),
                    requests_for(node, operation, connections, trial),
                    connections,
                    repeat=operation != "PUT",
                )


CASES = (
    Case("get", partial(_run, "GET"), limit_s=1200, quick=True),
    Case("head", partial(_run, "HEAD"), limit_s=1200, quick=True),
    Case("put", partial(_run, "PUT"), limit_s=1200, quick=True),
)
