"""Creates a record only for the holder of a name: two registers that agree, without a transaction.

A record (a branch, a tag, a repository) may exist only while it holds a second register, its *name* (a
ref name, a storage namespace). Three compare-and-sets create it:

1. the record is placed as *pending*, with a nonce that is used once; no reader sees it;
2. the name is won: the name's row stores the nonce of the pending record;
3. the pending record goes live.

This relies on one fact: a nonce is placed once and goes live only from its own pending version. So once a
name stores a nonce, and a read that began after that finds the nonce's record neither pending nor live,
the nonce is *dead for good*: its creator may be slow, but its third step will fail. Hence:

- A name is taken over only from a dead holder, by a compare-and-set over the version that was judged. A
  live record therefore always holds its name, and one name never has two live records.
- A crash leaves a pending record, or a name that stores a dead nonce. Both can be taken over; removing
  the pending record makes its nonce dead. A creation that meets a pending record of another call first
  waits for it, because its creator is probably alive. The wait is a courtesy; safety does not depend on
  it.
- A lost answer of step 1 or 2 is harmless, whether the write is applied now, later or never: nothing is
  live yet, so the caller may be told "not done". Only step 3 decides. It may be sent again, because it
  can succeed only once; if the record no longer shows its effect, the outcome is unknown.

A store that applies one compare-and-set twice is not covered (`Kv.set_if` is applied at most once).
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.port import (
    Kv,
    OutcomeUnknownError,
    Partition,
    Predicate,
    PredicateFailedError,
    Versioned,
)

__all__ = ["Claim", "Claiming", "Holder", "Plan", "StoredClaim", "Stage"]

_ROUNDS = 64
_FINISH_TRIES = 8
_POLL_SECONDS = 0.1
PATIENCE_SECONDS = 2.0
"""A pending record of another call is taken over after it has stayed unchanged for this time."""


class Stage(enum.Enum):
    """The stage of a record's creation."""

    PENDING = "pending"
    LIVE = "live"
    """Also while its repository is being deleted: the record holds its name until it is removed."""


@dataclass(frozen=True, slots=True)
class StoredClaim:
    """A stored record, as the creation of another record sees it."""

    nonce: bytes
    stage: Stage


Look = Callable[[bytes], StoredClaim]


@dataclass(frozen=True, slots=True)
class Plan:
    """A record to be created.

    Attributes:
        what: the record as error texts name it, such as `branch dev`.
        new_nonce: returns a nonce that no other attempt has.
        encode: returns the record for a nonce; its second argument says whether the record is pending.
        look: decodes any record that may be stored at `key`.
        exists: returns the error for an existing live record, given its value.
    """

    partition: Partition
    key: bytes
    what: str
    new_nonce: Callable[[], bytes]
    encode: Callable[[bytes, bool], bytes]
    look: Look
    exists: Callable[[bytes], TarnError]


@dataclass(frozen=True, slots=True)
class Claim:
    """A pending record of this creation."""

    plan: Plan
    nonce: bytes
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a name.

    Attributes:
        partition: partition of the holder's record; its key is `key`.
        nonce: nonce of the holder; the holder is alive if its record has this nonce.
        taken: the error to raise if the holder is live.
    """

    partition: Partition
    key: bytes
    nonce: bytes
    look: Look
    taken: TarnError


class _Patience:
    """Waits for the creator of a pending record, while that record does not change."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: bytes | None = None
        self._since = 0.0

    async def is_over(self, value: bytes) -> bool:
        """Whether this record has stayed unchanged for long enough; if not, waits a little."""
        now = self._clock.monotonic()
        if self._seen != value:
            self._seen, self._since = value, now
        if now - self._since >= PATIENCE_SECONDS:
            return True
        await self._clock.sleep(_POLL_SECONDS)
        return False


def _busy(what: str) -> TarnError:
    text = f"{what} was not created: other calls are creating the same name; try again"
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


class Claiming:
    """The three steps of a creation; see the module."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    async def _read(self, partition: Partition, key: bytes) -> Versioned | None:
        (found,) = await self._kv.get_many(partition, [key], settle=True)
        return found

    async def place(self, plan: Plan) -> Claim:
        """Step 1: places the record as pending.

        Raises:
            TarnError: the error of `plan.exists`; UNAVAILABLE: not created.
        """
        patience = _Patience(self._clock)
        sent: set[bytes] = set()
        for _ in range(_ROUNDS):
            found = await self._read(plan.partition, plan.key)
            if found is not None:
                seen = plan.look(found.value)
                if seen.stage is Stage.LIVE:
                    raise plan.exists(found.value)
                if seen.nonce in sent:
                    return Claim(plan, seen.nonce, found.predicate)
                if not await patience.is_over(found.value):
                    continue
            # Never reuse a nonce: the first attempt might be applied after the second one.
            nonce = plan.new_nonce()
            sent.add(nonce)
            value = plan.encode(nonce, True)
            expected = None if found is None else found.predicate
            try:
                predicate = await self._kv.set_if(plan.partition, plan.key, value, expected)
            except (PredicateFailedError, OutcomeUnknownError):
                continue
            return Claim(plan, nonce, predicate)
        raise _busy(plan.what)

    async def win(
        self,
        claim: Claim,
        partition: Partition,
        key: bytes,
        value: bytes,
        holder_of: Callable[[bytes], Holder],
    ) -> None:
        """Step 2: writes `value`, which stores the claim's nonce, to the name at `key`.

        `holder_of` returns the holder that a stored name belongs to; it raises for a name that can never
        be taken over.

        Raises:
            TarnError: the holder's `taken`; UNAVAILABLE: not created.
        """
        patience = _Patience(self._clock)
        for _ in range(_ROUNDS):
            held = await self._read(partition, key)
            if held is not None:
                if held.value == value:
                    return
                holder = holder_of(held.value)
                # Read after the name, not with it: a record placed between the two reads would look dead.
                record = await self._read(holder.partition, holder.key)
                if record is not None and not await self._is_dead(holder, record, patience):
                    continue
            expected = None if held is None else held.predicate
            try:
                await self._kv.set_if(partition, key, value, expected)
            except (PredicateFailedError, OutcomeUnknownError):
                continue
            return
        raise _busy(claim.plan.what)

    async def _is_dead(self, holder: Holder, record: Versioned, patience: _Patience) -> bool:
        """Whether a holder can never go live; False: judge it again."""
        seen = holder.look(record.value)
        if seen.nonce != holder.nonce:
            return True
        if seen.stage is Stage.LIVE:
            raise holder.taken
        if await patience.is_over(record.value):
            with suppress(PredicateFailedError, OutcomeUnknownError):  # the next read decides
                await self._kv.delete_if(holder.partition, holder.key, record.predicate)
        return False

    async def finish(self, claim: Claim) -> None:
        """Step 3: makes the record live.

        Raises:
            OutcomeUnknownError: the record no longer shows whether it went live.
            TarnError: not created: the error of `plan.exists`, UNAVAILABLE.
        """
        plan, predicate = claim.plan, claim.predicate
        value = plan.encode(claim.nonce, False)
        is_doubtful = False
        for _ in range(_FINISH_TRIES):
            try:
                await self._kv.set_if(plan.partition, plan.key, value, predicate)
                return
            except PredicateFailedError as error:
                found = error.current
            except OutcomeUnknownError:
                is_doubtful = True
                found = await self._settled(plan)
            except TarnError as error:
                if is_doubtful:
                    raise self._unknown(plan, error.message) from error
                raise
            seen = None if found is None else plan.look(found.value)
            if found is not None and seen is not None and seen.nonce == claim.nonce:
                if seen.stage is Stage.LIVE:
                    return
                predicate = found.predicate
                continue
            if is_doubtful:
                raise self._unknown(plan, "its record was replaced or removed since")
            if found is not None and seen is not None and seen.stage is Stage.LIVE:
                raise plan.exists(found.value)
            raise _busy(plan.what)
        raise self._unknown(plan, f"{_FINISH_TRIES} answers were lost")

    async def _settled(self, plan: Plan) -> Versioned | None:
        try:
            return await self._read(plan.partition, plan.key)
        except TarnError as error:  # a failed read says nothing about the write
            raise self._unknown(plan, error.message) from error

    @staticmethod
    def _unknown(plan: Plan, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"cannot determine whether {plan.what} was created: {why}")

    async def withdraw(self, claim: Claim) -> bool:
        """Gives up a claim that did not go live. Returns whether it can never go live any more.

        A pending record that stays behind is taken over by the next creation at its key.
        """
        try:
            await self._kv.delete_if(claim.plan.partition, claim.plan.key, claim.predicate)
        except PredicateFailedError:
            return True
        except TarnError:
            return False
        return True
