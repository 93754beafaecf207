"""The answers that clients got: the history, and the stored form of every value."""

from __future__ import annotations

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tests.support.check.history import History, Op, OpKind, Outcome

__all__ = ["Ledger", "Timed", "WallHistory", "body_of"]


@dataclass
class WallHistory(History):
    """A history on this machine's monotonic clock, in microseconds since its begin; all times are distinct."""

    began_ns: int = field(default_factory=time.monotonic_ns)

    def tick(self) -> int:
        """The time of the next event."""
        now = (time.monotonic_ns() - self.began_ns) // 1000
        self.clock = max(self.clock + 1, now)
        return self.clock


def body_of(value: int, size: int) -> bytes:
    """Returns the bytes of a value: its name, repeated."""
    word = b"v%d\n" % value
    return (word * (size // len(word) + 1))[: max(size, len(word))]


@dataclass(slots=True)
class Timed:
    """A request and its duration.

    Attributes:
        what: kind of the operation, then branch and key.
        began: on the monotonic clock, in seconds.
        seconds: until the answer, or until the client stopped waiting.
        answer: status and code, or the reason why there is none; a commit has only the latter.
    """

    what: str
    began: float
    seconds: float = 0.0
    answer: str = ""

    def line(self, since: float) -> str:
        """One line for people; times count from `since`."""
        began = self.began - since
        return f"{self.what}: {self.seconds:.1f} s, from {began:.1f} to {began + self.seconds:.1f}: {self.answer}"


class Ledger:
    """The record of a run, shared by all clients.

    Attributes:
        history: input of the checker.
        problems: answers that no server may give and no history can represent.
        counts: requests by kind and outcome.
        reasons: reasons of unknown outcomes.
        requests: in the order of their ends.
        keys: by branch, every path that a client tried to write.
    """

    def __init__(self) -> None:
        self.history = WallHistory()
        self.problems: list[str] = []
        self.counts: Counter[tuple[str, Outcome]] = Counter()
        self.reasons: Counter[str] = Counter()
        self.requests: list[Timed] = []
        self.keys: defaultdict[str, set[str]] = defaultdict(set)
        self._value_of: dict[str, int] = {}
        self._etag_of: dict[int, tuple[str, int]] = {}
        self._last_value = 0

    def new_value(self, size: int) -> tuple[int, bytes]:
        """Returns a value that was never written before, and its bytes."""
        self._last_value += 1
        body = body_of(self._last_value, size)
        etag = hashlib.md5(body, usedforsecurity=False).hexdigest()
        self._value_of[etag] = self._last_value
        self._etag_of[self._last_value] = etag, len(body)
        return self._last_value, body

    def value_of(self, etag: str, size: int | None = None) -> int:
        """Returns the value with an ETag (and a size); an ETag that was never written becomes a new value."""
        value = self._value_of.get(etag.strip('"'))
        if value is None or size not in (None, self._etag_of[value][1]):
            self.problems.append(f"ETag {etag} of {size} bytes was never written")
            self._last_value += 1
            return self._last_value
        return value

    def value_in(self, body: bytes, etag: str) -> int:
        """Returns the value of a body, after checking the body against its ETag."""
        found = hashlib.md5(body, usedforsecurity=False).hexdigest()
        if found != etag:
            self.problems.append(f"a body of {len(body)} bytes has ETag {etag}, not {found}")
        return self.value_of(found)

    def begin(
        self, proc: str, kind: OpKind, branch: str, key: str | None = None, value: int | None = None
    ) -> Op:
        """Records the begin of an operation."""
        if key is not None and kind in (OpKind.PUT, OpKind.DELETE):
            self.keys[branch].add(key)
        return self.history.begin(proc, kind, branch, key, value)

    def count(self, what: str, outcome: Outcome, note: str = "") -> None:
        """Counts a finished request."""
        self.counts[what, outcome] += 1
        if outcome is Outcome.INFO:
            self.reasons[note] += 1

    @contextmanager
    def timed(self, what: str) -> Iterator[Timed]:
        """Records a request that is sent in the block."""
        request = Timed(what, time.monotonic())
        try:
            yield request
        except Exception as error:
            request.answer = str(error)
            raise
        finally:
            request.seconds = time.monotonic() - request.began
            self.requests.append(request)

    def slowest(self, count: int, since: float) -> list[str]:
        """Describes the slowest requests of each kind of operation, slowest first; times count from `since`."""
        by_kind: defaultdict[str, list[Timed]] = defaultdict(list)
        for request in sorted(self.requests, key=lambda each: -each.seconds):
            by_kind[request.what.partition(" ")[0]].append(request)
        return [each.line(since) for requests in by_kind.values() for each in requests[:count]]
