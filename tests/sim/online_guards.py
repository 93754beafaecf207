"""Guards of online deletion (docs/design/online-deletion.md), and plausible code without each.

Their seeds are played with online deletion and garbage collections (`python -m tests.sim --online`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.faults.guards import Guard, Weakening
from tests.support.faults.modes import Mode

import tarn_graveler.branch.staging
import tarn_graveler.collection.online_deletion
from tarn.core.branch import Token
from tarn.core.collection import Collection
from tarn.core.entry import address_of, is_tombstone
from tarn.core.ids import BranchId, TokenId
from tarn.kv.records import Repository
from tarn_graveler.branch.copy_sources import CopySources
from tarn_graveler.branch.private_rows import PrivateRows, Replaced, ReplacedRows
from tarn_graveler.branch.reading import entry_not_found
from tarn_graveler.branch.staging import _born
from tarn_graveler.collection.online_deletion import OnlineDeletion
from tarn_graveler.records.branches import BranchName

__all__ = ["ONLINE_GUARDS", "RARE_ONLINE_GUARDS"]

_acknowledged, _address_at = PrivateRows.acknowledged, PrivateRows.address_at
_reason_to_keep = OnlineDeletion._reason_to_keep


async def _find_plainly(self: CopySources, repository: Repository, ref: str, path: str) -> bytes:
    """Notes nothing."""
    return await self._reading.lookup(repository, ref, path)


async def _find_once(self: CopySources, repository: Repository, ref: str, path: str) -> bytes:
    """Notes the address, and does not read its source again."""
    found, token = await self._newest(BranchName(repository, BranchId(ref)), path)
    if found.packed is None or is_tombstone(found.packed):
        raise entry_not_found(repository, ref, path)
    address = address_of(found.packed)
    if token is not None and address is not None:
        name = BranchName(repository, BranchId(ref))
        await self._notes.submit(self._layers.partition(name, token), address)
    return found.packed


def _ended_lately(
    self: PrivateRows,
    name: BranchName,
    token: Token,
    path: str,
    before: bytes | None,
    born: bytes | None,
) -> None:
    """Takes for ended what is private when the newer write is acknowledged."""
    del before
    _acknowledged(self, name, token, path, _address_at(self, token, path), born)


def _any_token(token: Token) -> Token:
    return Token(TokenId("any"), token.kind, token.buckets, token.create_time_us)


def _at_any_token(self: PrivateRows, token: Token, path: str) -> bytes | None:
    """Knows private rows by their path, in any token."""
    return _address_at(self, _any_token(token), path)


def _in_any_token(
    self: PrivateRows,
    name: BranchName,
    token: Token,
    path: str,
    before: bytes | None,
    born: bytes | None,
) -> None:
    key = (TokenId("any"), path)
    if before is not None and self._addresses.get(key) == before:
        self._addresses.pop(key)
        self._offer(Replaced(name, token, path, before))
    if born is not None:
        self._addresses.put(key, born)


async def _whatever_notes_say(self: OnlineDeletion, rows: Sequence[Replaced]) -> list[str]:
    """Takes a copied row for private."""
    return ["" if each == "copied" else each for each in await _reason_to_keep(self, rows)]


async def _whether_named_or_not(self: OnlineDeletion, rows: Sequence[Replaced]) -> list[str]:
    """Trusts notes that may be dropped."""
    return ["" if each == "token-left" else each for each in await _reason_to_keep(self, rows)]


def _never(collection: Collection, now_us: int) -> bool:
    """Waits for nothing."""
    return False


def _no_wait(self: ReplacedRows, replaced: Replaced) -> None:
    """Lets no time pass for readers."""
    self.outcomes["queued"] += 1
    self.new.append((replaced, self._clock.monotonic()))


def _born_at_any_attempt(packed: bytes, attempt: int, *, is_new: bool) -> bytes | None:
    return _born(packed, 0, is_new=is_new)


def _of(name: str, without: str, *weakenings: Weakening) -> Guard:
    return Guard(name, "online", "I9", without, weakenings, runs=200, mode=Mode.ONLINE)


ONLINE_GUARDS: Sequence[Guard] = (
    _of(
        "copy-is-noted",
        "a copy by reference leaves no note",
        Weakening(CopySources, "find", _find_plainly),
    ),
    _of(
        "notes-are-read",
        "a row is deleted although it is copied",
        Weakening(OnlineDeletion, "_reason_to_keep", _whatever_notes_say),
    ),
    _of(
        "row-ends-in-its-token",
        "a row ends by a write in a later token",
        Weakening(PrivateRows, "address_at", _at_any_token),
        Weakening(PrivateRows, "acknowledged", _in_any_token),
        Weakening(OnlineDeletion, "_reason_to_keep", _whether_named_or_not),
    ),
    _of(
        "online-delay",
        "a block is deleted at once",
        Weakening(ReplacedRows, "offer", _no_wait),
    ),
)

RARE_ONLINE_GUARDS: Sequence[Guard] = (
    _of(
        "copy-reads-again",
        "a copy does not read its source again after the note",
        Weakening(CopySources, "find", _find_once),
    ),
    _of(
        "first-attempt-is-private",
        "a row of a later attempt is private",
        Weakening(tarn_graveler.branch.staging, "_born", _born_at_any_attempt),
    ),
    _of(
        "end-was-known-before",
        "of two writes at once, the later acknowledged one ends the other",
        Weakening(PrivateRows, "acknowledged", _ended_lately),
    ),
    _of(
        "notes-of-named-tokens",
        "notes count although their token may be dropped",
        Weakening(OnlineDeletion, "_reason_to_keep", _whether_named_or_not),
    ),
    _of(
        "online-waits-for-collections",
        "blocks are deleted beside collections",
        Weakening(tarn_graveler.collection.online_deletion, "_must_wait", _never),
    ),
)
"""Guards for which no seed is recorded; `tests.sim.rare_guards` names the tests that detect their absence."""
