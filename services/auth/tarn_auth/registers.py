"""Compare-and-set on one row, with unknown outcomes settled.

A write that timed out may have taken effect. It is settled by the one kind of read that can settle it
(`settle=True`) and by comparing values. Every value of auth contains something random (a uid, a sealed secret)
or the whole new state, so an equal value is this write or an equivalent one (docs/design/protocol.md, rule 8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tarn.kv.port import Kv, OutcomeUnknownError, Partition, PredicateFailedError, Row, Versioned
from tarn.kv.register import REGISTER_TRIES, Register, unknown_if

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
            OutcomeUnknownError: it may be written, now or later.
        """
        await self._set(key, value, None)

    async def replace(self, key: bytes, value: bytes, current: Versioned) -> None:
        """Replaces the version that was read; raises as `insert`."""
        await self._set(key, value, current)

    async def remove(self, key: bytes, current: Versioned) -> None:
        """Removes the version that was read; an absent row is not an error.

        Raises:
            PredicateFailedError: the row has another version.
            OutcomeUnknownError: it may be removed, now or later.
        """
        try:
            await self._kv.delete_if(self._partition, key, current.predicate)
        except PredicateFailedError as error:
            if error.current is not None:
                raise
        except OutcomeUnknownError:
            found = await self._settle(key)
            if found is None:
                return
            if not _is_same(found, current):
                raise PredicateFailedError(key, found) from None
            raise  # it may be removed later

    async def drop(self, keys: list[bytes]) -> None:
        """Removes rows regardless of their values."""
        if keys:
            await self._kv.delete_many(self._partition, keys)

    async def _set(self, key: bytes, value: bytes, current: Versioned | None) -> None:
        """Repeats a compare-and-set whose answer was lost: if the repetition is made, the first one never will be. A
        settling read alone does not show that (docs/design/protocol.md, "Late compare-and-sets")."""
        predicate = None if current is None else current.predicate
        may_be_written = False
        for _ in range(REGISTER_TRIES):
            try:
                await self._kv.set_if(self._partition, key, value, predicate)
            except PredicateFailedError as error:
                is_there = error.current is not None and error.current.value == value
                if may_be_written and is_there:
                    return  # an earlier attempt, or an equivalent write
                raise
            except OutcomeUnknownError:
                may_be_written = True
                with unknown_if(written=True):
                    found = await self._settle(key)
                if found is not None and found.value == value:
                    return
                if not _is_same(found, current):
                    raise PredicateFailedError(key, found) from None
            else:
                return
        raise OutcomeUnknownError(f"the write of key {key!r} may be made later")

    async def _settle(self, key: bytes) -> Versioned | None:
        return (await self._kv.get_many(self._partition, [key], settle=True))[0]


def _is_same(found: Versioned | None, expected: Versioned | None) -> bool:
    return found is expected or (
        found is not None and expected is not None and found.predicate == expected.predicate
    )
