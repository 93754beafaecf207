"""Compare-and-set on one row, with unknown outcomes settled.

A write that timed out may have taken effect. It is settled by the one kind of read that can settle it
(`settle=True`) and by comparing values. Every value of auth contains something random (a uid, a sealed secret)
or the whole new state, so an equal value is this write or an equivalent one (docs/design/protocol.md, rule 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import Kv, OutcomeUnknownError, Partition, PredicateFailedError, Row, Versioned
from tarn.kv.register import Register

__all__ = ["Registers"]

T = TypeVar("T")


class Registers:
    """The rows of one register partition."""

    def __init__(self, kv: Kv, partition: Partition) -> None:
        self._kv = kv
        self._partition = partition

    def register(
        self,
        key: bytes,
        decode: Callable[[bytes | None], T],
        encode: Callable[[T], bytes | None],
        what: str,
    ) -> Register[T]:
        """One row, to be changed as often as others change it meanwhile."""
        return Register(self._kv, self._partition, key, decode, encode, what)

    async def get(self, key: bytes) -> Versioned | None:
        """Returns a row, None if it is absent."""
        return (await self._kv.get_many(self._partition, [key]))[0]

    async def get_many(self, keys: list[bytes]) -> list[Versioned | None]:
        """Returns rows in the order of the keys."""
        return await self._kv.get_many(self._partition, keys)

    async def page(self, start: bytes, end: bytes, limit: int) -> list[Row]:
        """Returns up to `limit` rows with `start <= key < end`."""
        return await self._kv.scan(self._partition, start, end, limit)

    async def insert(self, key: bytes, value: bytes) -> None:
        """Writes a row that must be absent.

        Raises:
            PredicateFailedError: the row exists with another value; it is in `current`.
            TarnError: UNAVAILABLE if the outcome was unknown and it turned out that nothing was written.
        """
        await self._set(key, value, None)

    async def replace(self, key: bytes, value: bytes, current: Versioned) -> None:
        """Replaces the version that was read; raises as `insert`."""
        await self._set(key, value, current)

    async def remove(self, key: bytes, current: Versioned) -> None:
        """Removes the version that was read; an absent row is not an error.

        Raises:
            PredicateFailedError: the row has another version.
            TarnError: UNAVAILABLE as `insert`.
        """
        try:
            await self._kv.delete_if(self._partition, key, current.predicate)
        except PredicateFailedError as error:
            if error.current is not None:
                raise
        except OutcomeUnknownError as error:
            found = await self._settle(key)
            if found is not None:
                raise _lost(key, found, current) from error

    async def drop(self, keys: list[bytes]) -> None:
        """Removes rows regardless of their values."""
        if keys:
            await self._kv.delete_many(self._partition, keys)

    async def _set(self, key: bytes, value: bytes, current: Versioned | None) -> None:
        predicate = None if current is None else current.predicate
        try:
            await self._kv.set_if(self._partition, key, value, predicate)
        except OutcomeUnknownError as error:
            found = await self._settle(key)
            if found is None or found.value != value:
                raise _lost(key, found, current) from error

    async def _settle(self, key: bytes) -> Versioned | None:
        return (await self._kv.get_many(self._partition, [key], settle=True))[0]


def _lost(key: bytes, found: Versioned | None, expected: Versioned | None) -> TarnError:
    """Returns the error for a settled write that is absent: it never took effect, or another one replaced it."""
    same = found is expected or (
        found is not None and expected is not None and found.predicate == expected.predicate
    )
    if not same:
        return PredicateFailedError(key, found)
    text = f"the store did not take the write of key {key!r}; nothing changed"
    return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text, key=repr(key))
