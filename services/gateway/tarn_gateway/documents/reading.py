"""Reads the documents of requests: collects each in memory, within one budget, and parses it in pieces.

A connection costs the server little; a document that is being collected costs its size. So the budget counts the bytes
that clients *announce*, before the first one is read: what thousands of slow clients hold together is bounded by it,
and whoever comes too late is told so at once. One user cannot take all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from tarn_gateway.bodies.payload import Payload
from tarn_gateway.documents.xml_in import PIECE_BYTES, DocumentParser
from tarn_gateway.s3error import S3Error

__all__ = ["DOCUMENT_MEMORY_BYTES", "ByteBudget", "DocumentReader"]

DOCUMENT_MEMORY_BYTES: Final = 64 * 1024**2
"""Bytes of documents that are held together: 600 of 1,000 keys of 100 bytes each, or 8 of the largest kind."""

RATE_MIN_BYTES: Final = 16 * 1024
"""Bytes per second at which a document must arrive: the largest one then holds its bytes for 9 minutes at most. A
body that is stored as it arrives may take its time (`HttpLimits.body_rate_min_bytes`); this one holds memory."""

_RETRY_AFTER_S: Final = 2

Parsed = TypeVar("Parsed")


class ByteBudget:
    """Bytes that may be held in memory at a time, by all users together.

    Args:
        bytes_max: of all users.

    Attributes:
        held: bytes that are taken now.
        refused: number of refusals so far.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        # Half: one user at the bound leaves the other half to the others.
        self._user_bytes_max = bytes_max // 2
        self._by_user: dict[str, int] = {}
        self.held = 0
        self.refused = 0

    @contextmanager
    def hold(self, user_id: str, count: int) -> Iterator[None]:
        """Takes bytes for the block.

        Raises:
            S3Error: SlowDown if they are not free. Nothing was taken then.
        """
        of_user = self._by_user.get(user_id, 0) + count
        if of_user > self._user_bytes_max:
            whose = f"user {user_id} holds its share of {self._user_bytes_max}"
            raise self._refusal(whose)
        if self.held + count > self._bytes_max:
            raise self._refusal(f"all users together hold {self._bytes_max}")
        self._by_user[user_id] = of_user
        self.held += count
        try:
            yield
        finally:
            self.held -= count
            left = self._by_user[user_id] - count
            if left:
                self._by_user[user_id] = left
            else:
                del self._by_user[user_id]

    def _refusal(self, whose: str) -> S3Error:
        self.refused += 1
        text = (
            f"Too many documents of requests are being received: {whose} bytes; "
            f"try again after {_RETRY_AFTER_S} s."
        )
        return S3Error("SlowDown", text, headers={"Retry-After": str(_RETRY_AFTER_S)})


class DocumentReader:
    """Reads documents; one for each gateway.

    Args:
        bytes_max: see `ByteBudget`; at least twice the largest document.

    Attributes:
        budget: what the documents hold.
    """

    def __init__(self, bytes_max: int = DOCUMENT_MEMORY_BYTES) -> None:
        self.budget = ByteBudget(bytes_max)
        # One at a time: all are parsed on the thread of the loop, so more would only delay each other's end and
        # take more of each turn of the loop from other requests.
        self._parsing = asyncio.Lock()

    async def read(
        self,
        payload: Payload,
        user_id: str,
        bytes_max: int,
        new_parser: Callable[[], DocumentParser[Parsed]],
    ) -> Parsed:
        """Returns what a document says.

        Call it after every check that does not need the document.

        Args:
            payload: the body; nothing of it is read yet.
            user_id: the caller.
            bytes_max: maximum size of the document; announced ones are shorter, others are counted with it.
            new_parser: `delete_parser` or `complete_parser`.

        Raises:
            S3Error: SlowDown if too many documents are being read; the errors of `Payload.read_all` and of the parser.
        """
        announced = bytes_max if payload.size is None else min(payload.size, bytes_max)
        with self.budget.hold(user_id, announced):
            payload.require_rate(RATE_MIN_BYTES)
            body, _ = await payload.read_all(bytes_max)
            parser = new_parser()
            if len(body) <= PIECE_BYTES:
                parser.feed(body)
                return parser.finish()
            async with self._parsing:
                for at in range(0, len(body), PIECE_BYTES):
                    parser.feed(body[at : at + PIECE_BYTES])
                    await asyncio.sleep(0)  # lets the other requests run
            return parser.finish()
