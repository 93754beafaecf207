"""Knows which staged rows of this replica are private, and which were replaced (docs/design/online-deletion.md).

A row is *private* if its address was made for the write that staged it here, and that write was acknowledged at its
first attempt: then no other row was ever written with this address. If such a row is overwritten or deleted in the same
token, and that write is acknowledged, no commit, no listing and no later read finds the address. Only copies by
reference, which leave notes, and readers that found the row before can still use it.

Memory only: the garbage collection deletes the blocks of the rows that a restart forgets.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from tarn.aio.bounded_map import BoundedMap
from tarn.core.branch import Token, TokenKind
from tarn.core.clock import Clock
from tarn.core.ids import TokenId
from tarn_graveler.records.branches import BranchName

__all__ = ["PrivateRows", "Replaced", "ReplacedRows"]

ROWS_MAX = 50_000
"""Private rows that a replica remembers, with some 400 bytes each; the oldest are forgotten first."""

QUEUE_MAX = 20_000
"""Replaced rows that wait to be judged or deleted."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A private row that was overwritten or deleted in its token, by an acknowledged write.

    Attributes:
        name: the branch.
        token: the token of both rows.
        path: the path of both rows.
        address: the address of the replaced row.
    """

    name: BranchName
    token: Token
    path: str
    address: bytes


class ReplacedRows:
    """The replaced rows of one replica that online deletion has not ended with, each with the time when it is due.

    Attributes:
        new: rows that online deletion has not judged yet.
        waiting: rows to which nothing refers any more.
        outcomes: counts of rows: `queued`, `queue-full`, and what online deletion adds.
    """

    def __init__(self, clock: Clock, delay_seconds: float) -> None:
        self._clock = clock
        self._delay_seconds = delay_seconds
        self.new: deque[tuple[Replaced, float]] = deque()
        self.waiting: deque[tuple[Replaced, float]] = deque()
        self.outcomes: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.new) + len(self.waiting)

    def offer(self, replaced: Replaced) -> None:
        """Adds a row, if the queue is not full."""
        if len(self) >= QUEUE_MAX:
            self.outcomes["queue-full"] += 1
            return
        self.outcomes["queued"] += 1
        self.new.append((replaced, self._clock.monotonic() + self._delay_seconds))


class PrivateRows:
    """The private rows of staging tokens, as far as this replica wrote them.

    Args:
        offer: takes each row that was replaced; called once for each address.
        rows_max: rows that are remembered.
    """

    def __init__(self, offer: Callable[[Replaced], None], rows_max: int = ROWS_MAX) -> None:
        self._offer = offer
        self._addresses: BoundedMap[tuple[TokenId, str], bytes] = BoundedMap(rows_max)

    def address_at(self, token: Token, path: str) -> bytes | None:
        """Returns the address of the private row of a path, if one is known.

        A write asks *before* it writes its own row: only then is its row certainly the newer one.
        """
        return self._addresses.get((token.token_id, path))

    def acknowledged(
        self, name: BranchName, token: Token, path: str, before: bytes | None, born: bytes | None
    ) -> None:
        """Notes an acknowledged write of a path.

        Args:
            name: the branch.
            token: the token of its row.
            path: the path.
            before: what `address_at` returned before the row was written.
            born: the address of the new row if that is private, else None.
        """
        key = (token.token_id, path)
        if before is not None and self._addresses.get(key) == before:
            self._addresses.pop(key)
            self._offer(Replaced(name, token, path, before))
        # In a token for conditional writes, rows of another call may be written again by their operation id.
        if born is not None and token.kind is TokenKind.PLAIN:
            self._addresses.put(key, born)
