"""Records that are made only by who holds a name: two registers that agree, without a transaction.

A record (a branch, a tag, a repository) is to exist only while it holds a second register, its *name* (a
ref name, a storage namespace). Three compare-and-sets make it:

1. the record is placed as *pending*, with a nonce that is used once: no reader sees it;
2. the name is won: it names the pending record's nonce;
3. the pending record goes live.

What this rests on: a nonce is placed once and goes live only from its own pending version. So once a name
names a nonce, and a read that began after that finds the nonce's record neither pending nor live, the
nonce is *dead for good*: its creator may be slow, but its third step will fail. Hence:

- A name is taken only from the dead, by a compare-and-set over the version that was judged. A live record
  therefore always holds its name, and one name never has two live records.
- A crash leaves a pending record, or a name that names a dead nonce. Both can be taken over: removing the
  pending record is what kills it. Whoever meets a pending record of another call waits for it first,
  because its creator is probably alive. That is politeness; nothing is unsafe if the creator is slower.
- A lost answer of step 1 or 2 does no harm, applied at once, later, or not at all: nothing is live yet, so
  the caller may be told "not done". Only step 3 decides. It may be sent again, as it can succeed once
  only; if the record cannot tell any more what became of it, the outcome is unknown.

A store that applies one compare-and-set twice is outside of this (`Kv.set_if` is applied at most once).
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

__all__ = ["Claim", "Claiming", "Holder", "Plan", "Seen", "Stage"]

_ROUNDS = 64
_FINISH_TRIES = 8
_POLL_SECONDS = 0.1
PATIENCE_SECONDS = 2.0
"""A pending record of another call that stays the same for so long is taken over."""


class Stage(enum.Enum):
    """How far a record is."""

    PENDING = "pending"
    LIVE = "live"
    """Also while its repository is being deleted: it holds its name until it is removed."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a stored record is to the creation of another one."""

    nonce: bytes
    stage: Stage


Look = Callable[[bytes], Seen]


@dataclass(frozen=True, slots=True)
class Plan:
    """A record that is to be made.

    Attributes:
        what: the record in the words of an error, such as `branch dev`.
        new_nonce: a nonce that no other attempt has.
        encode: the record of a nonce; True: as pending.
        look: reads any record that may lie at `key`.
        exists: the error for a live record that is there already.
    """

    partition: Partition
    key: bytes
    what: str
    new_nonce: Callable[[], bytes]
    encode: Callable[[bytes, bool], bytes]
    look: Look
    exists: Callable[[], TarnError]


@dataclass(frozen=True, slots=True)
class Claim:
    """A pending record of ours."""

    plan: Plan
    nonce: bytes
    predicate: Predicate


@dataclass(frozen=True, slots=True)
class Holder:
    """Whose a name is.

    Attributes:
        partition: of the holder's record, as `key`.
        nonce: of the holder; it is alive if its record has this nonce.
        taken: the error if the holder is live.
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
        """Whether this record has been met for long enough; if not, waits a little."""
        now = self._clock.monotonic()
        if self._seen != value:
            self._seen, self._since = value, now
        if now - self._since >= PATIENCE_SECONDS:
            return True
        await self._clock.sleep(_POLL_SECONDS)
        return False


def _busy(what: str) -> TarnError:
    text = f"{what} was not created: other calls create the same name; try again"
    return TarnError(Kind.UNAVAILABLE, Reason.TOO_MANY_RETRIES, text)


class Claiming:
    """The three steps. See the module."""

    def __init__(self, kv: Kv, clock: Clock) -> None:
        self._kv = kv
        self._clock = clock

    async def _read(self, partition: Partition, key: bytes) -> Versioned | None:
        (found,) = await self._kv.get_many(partition, [key], settle=True)
        return found

    async def place(self, plan: Plan) -> Claim:
        """Step 1.

        Raises:
            TarnError: what `plan.exists` says; UNAVAILABLE: surely not created.
        """
        patience = _Patience(self._clock)
        sent: set[bytes] = set()
        for _ in range(_ROUNDS):
            found = await self._read(plan.partition, plan.key)
            if found is not None:
                seen = plan.look(found.value)
                if seen.stage is Stage.LIVE:
                    raise plan.exists()
                if seen.nonce in sent:
                    return Claim(plan, seen.nonce, found.predicate)
                if not await patience.is_over(found.value):
                    continue
            # Never the same nonce twice: the first attempt might be applied after the second one.
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
        """Step 2: has the name at `key` hold `value`, which names the claim's nonce.

        `holder_of` says whose a stored name is; it raises for one that can never be taken.

        Raises:
            TarnError: the holder's `taken`; UNAVAILABLE: surely not created.
        """
        patience = _Patience(self._clock)
        for _ in range(_ROUNDS):
            held = await self._read(partition, key)
            if held is not None:
                if held.value == value:
                    return
                holder = holder_of(held.value)
                # After the name, not with it: what was placed between the two reads would look dead.
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
        """Whether a holder can never go live; False: judge it anew."""
        seen = holder.look(record.value)
        if seen.nonce != holder.nonce:
            return True
        if seen.stage is Stage.LIVE:
            raise holder.taken
        if await patience.is_over(record.value):
            with suppress(PredicateFailedError, OutcomeUnknownError):  # the next look tells
                await self._kv.delete_if(holder.partition, holder.key, record.predicate)
        return False

    async def finish(self, claim: Claim) -> None:
        """Step 3.

        Raises:
            OutcomeUnknownError: the record cannot tell whether it went live.
            TarnError: surely not created: what `plan.exists` says, UNAVAILABLE.
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
            if seen is not None and seen.stage is Stage.LIVE:
                raise plan.exists()
            raise _busy(plan.what)
        raise self._unknown(plan, f"{_FINISH_TRIES} answers were lost")

    async def _settled(self, plan: Plan) -> Versioned | None:
        try:
            return await self._read(plan.partition, plan.key)
        except TarnError as error:  # a refused read says nothing about what was sent
            raise self._unknown(plan, error.message) from error

    @staticmethod
    def _unknown(plan: Plan, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(f"creation of {plan.what}: {why}")

    async def withdraw(self, claim: Claim) -> bool:
        """Gives up a claim that did not go live. Whether it surely never will.

        A pending record that stays behind is taken over by who next wants its place.
        """
        try:
            await self._kv.delete_if(claim.plan.partition, claim.plan.key, claim.predicate)
        except PredicateFailedError:
            return True
        except TarnError:
            return False
        return True
