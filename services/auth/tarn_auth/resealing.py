"""Rotation of the installation's secret: seals the secrets of all key pairs and session keys with the current one.

Every row names the key that sealed it, so the rows themselves are the progress: an interrupted run is continued by the
next one, several may run at once, and auth goes on serving. A row is replaced by compare-and-set over the version that
was read; one that changes meanwhile is counted as it was found, and the next run looks again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError
from tarn.kv.auth_records import (
    Credential,
    SessionKey,
    decode_credential,
    decode_session_key,
    encode_credential,
    encode_session_key,
)
from tarn.kv.keys import AuthKeys, after_prefix
from tarn_auth.registers import Registers
from tarn_auth.secret_box import SecretBox
from tarn_auth.secret_mark import forget_other_secrets

__all__ = ["Seals", "count_seals", "reseal"]

_PAGE: Final = 100

Sealed = Credential | SessionKey
_KINDS: Final[tuple[tuple[bytes, Callable[[bytes], Sealed]], ...]] = (
    (AuthKeys.credential(""), decode_credential),
    (AuthKeys.session(""), decode_session_key),
)
"""The rows with sealed secrets: the beginning of their keys, and their decoder."""


@dataclass(frozen=True, slots=True)
class Seals:
    """Which keys seal the users' secret keys.

    Attributes:
        by_key_id: number of secret keys by the id of the key that seals them.
        current_key_id: of the installation's current secret.
        known_key_ids: of all configured secrets.
    """

    by_key_id: Mapping[str, int]
    current_key_id: str
    known_key_ids: tuple[str, ...]

    @property
    def waiting(self) -> int:
        """Secret keys that an earlier secret seals: it is still needed."""
        return sum(self.by_key_id.values()) - self.by_key_id.get(self.current_key_id, 0)

    @property
    def lost(self) -> int:
        """Secret keys that no configured secret opens."""
        return sum(count for key, count in self.by_key_id.items() if key not in self.known_key_ids)


async def count_seals(registers: Registers, box: SecretBox) -> Seals:
    """Counts by reading every key pair, a page at a time.

    Raises:
        TarnError: CORRUPT: a record is damaged. Errors of the store.
    """
    return await _pass(registers, box, None)


async def reseal(registers: Registers, box: SecretBox, report: Callable[[int, int], None]) -> Seals:
    """Seals with the current secret all secret keys that an earlier one seals; returns the new counts by key.

    When nothing waits any more, the store forgets the earlier secrets: a process that has only those is refused.

    Args:
        registers: auth's registers.
        box: with the current secret first, then the earlier ones.
        report: called after each page with the numbers of key pairs read and sealed again so far.

    Raises:
        TarnError: CORRUPT: no configured secret opens a secret key, and nothing was lost by this run; or a record is
            damaged. Errors of the store. The next run continues.
    """
    before = await count_seals(registers, box)
    if before.lost:
        text = (
            f"{before.lost} secret keys are sealed by a secret that is not configured "
            f"({', '.join(sorted(set(before.by_key_id) - set(before.known_key_ids)))}): add it as "
            "installation.previous_secret"
        )
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, text)
    await _pass(registers, box, report)
    after = await count_seals(registers, box)
    if not after.waiting:
        await forget_other_secrets(registers, after.current_key_id)
    return after


async def _pass(
    registers: Registers, box: SecretBox, report: Callable[[int, int], None] | None
) -> Seals:
    """Reads every key pair and session key, and seals it again if `report` is given."""
    counts = Counter[str]()
    current, sealed = box.key_ids[0], 0
    for prefix, decode in _KINDS:
        start, end = prefix, after_prefix(prefix)
        while rows := await registers.page(start, end, _PAGE):
            for key, value in rows:
                key_id = decode(value).encryption_key_id
                is_old = report is not None and key_id != current
                if is_old and await _seal(registers, box, key, decode) == current:
                    key_id = current
                    sealed += 1
                counts[key_id] += 1
            start = rows[-1][0] + b"\0"
            if report is not None:
                report(counts.total(), sealed)
    return Seals(dict(counts), current, tuple(box.key_ids))


async def _seal(
    registers: Registers, box: SecretBox, key: bytes, decode: Callable[[bytes], Sealed]
) -> str | None:
    """Seals one secret again. Returns the id of the key that seals it now; None if its row was deleted meanwhile."""

    def sealed_again(row: Sealed | None) -> Sealed | None:
        if row is None or row.encryption_key_id == box.key_ids[0]:
            return row
        secret = box.open(row.access_key_id, row.sealed_secret, row.encryption_key_id)
        sealed, key_id = box.seal(row.access_key_id, secret)
        return replace(row, sealed_secret=sealed, encryption_key_id=key_id)

    row = registers.record(key, decode, _encode, f"the secret {key!r}")
    sealed = await row.change(sealed_again)
    return None if sealed is None else sealed.encryption_key_id


def _encode(row: Sealed) -> bytes:
    return encode_credential(row) if isinstance(row, Credential) else encode_session_key(row)
