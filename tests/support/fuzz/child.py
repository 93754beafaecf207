"""The process that runs the inputs: `python -m tests.support.fuzz.child` (see `watching`).

It reads its orders as one JSON line on stdin and writes its results to a file, one JSON line each: bugs
when they are found, statistics at the end.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tests.support.fuzz.limits import cap_address_space
from tests.support.fuzz.mailbox import Mailbox
from tests.support.fuzz.session import Bug, Session
from tests.support.fuzz.target import target_of

__all__ = ["ADDRESS_SPACE_BYTES", "Orders", "main"]

ADDRESS_SPACE_BYTES = 2 << 30
"""Bytes that a process may map in addition to those after the import of its target."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The orders of a child.

    Attributes:
        target: `module:NAME`.
        seed: seed of the session.
        seconds: wall time, starting with the first generated input.
        inputs_max: number of generated inputs; None: limited by time only.
        corpus: files to try first, in this order.
        mailbox: file that holds the current input.
        results: file for the results.
        first_bug: whether to stop at the first bug.
    """

    target: str
    seed: int
    seconds: float
    inputs_max: int | None
    corpus: tuple[str, ...]
    mailbox: str
    results: str
    first_bug: bool


def _write(results: IO[str], kind: str, value: dict[str, object]) -> None:
    results.write(json.dumps({kind: value}) + "\n")
    results.flush()


def _patience(orders: Orders, bugs: list[Bug]) -> Callable[[], bool]:
    """Returns a function that says whether to continue. Time affects only the end of a session, and only
    here.
    """
    end, count = 0.0, 0

    def goes_on() -> bool:
        nonlocal end, count
        if count == 0:
            end = time.monotonic() + orders.seconds
        count += 1
        if orders.first_bug and bugs:
            return False
        if orders.inputs_max is not None:
            return count <= orders.inputs_max
        return time.monotonic() < end

    return goes_on


def main() -> None:
    """Runs the orders; see the module."""
    faulthandler.enable()
    orders = Orders(**json.loads(sys.stdin.readline()))
    target = target_of(orders.target)
    mailbox = Mailbox(Path(orders.mailbox))
    bugs: list[Bug] = []
    with Path(orders.results).open("a") as results:

        def report(bug: Bug) -> None:
            bugs.append(bug)
            data = base64.b64encode(bug.data).decode()
            _write(results, "bug", {**asdict(bug), "data": data})

        session = Session(target, orders.seed, mailbox.put, report)
        cap_address_space(ADDRESS_SPACE_BYTES)
        corpus = (Path(name).read_bytes() for name in orders.corpus)
        _write(results, "statistics", asdict(session.run(corpus, _patience(orders, bugs))))


if __name__ == "__main__":
    main()
