"""Log-in: exchanges a proof of a secret, usable once, for a caller token.

Every invalid proof gets the same answer after the same work: an unknown access key is checked against a
random secret that no caller knows.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter, OrderedDict

from tarn.core.access.key_use import claimed_use
from tarn.core.access.policy import Grant
from tarn.core.access.proof import NONCE_BYTES, log_in_proof
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.auth_records import Credential
from tarn_auth.authorizer import Authorizer
from tarn_auth.credentials import Credentials
from tarn_auth.key_uses import KeyUses
from tarn_auth.secret_box import RandomBytes, SecretBox
from tarn_auth.session_keys import SessionKeys

__all__ = ["SKEW_US_MAX", "LogIn", "Nonces"]

SKEW_US_MAX = 900_000_000
_NONCE = re.compile(rf"[0-9a-f]{{{2 * NONCE_BYTES}}}")
_NONCES_MAX = 100_000
_NONCES_PER_KEY_MAX = 10_000


class LogIn:
    """Checks proofs."""

    def __init__(
        self,
        authorizer: Authorizer,
        credentials: Credentials,
        session_keys: SessionKeys,
        box: SecretBox,
        clock: Clock,
        random_bytes: RandomBytes,
        uses: KeyUses,
    ) -> None:
        self._authorizer = authorizer
        self._uses = uses
        self._credentials = credentials
        self._session_keys = session_keys
        self._clock = clock
        self._nonces = Nonces(clock)
        self._box = box
        self._random_bytes = random_bytes
        self._decoy = _decoy(box, random_bytes)

    async def log_in(
        self,
        access_key_id: str,
        sign_time_s: int,
        nonce: str,
        signature: str,
        session_token: str = "",
        use: str = "",
    ) -> tuple[Grant, int]:
        """Returns the grant of the user of a key pair, or of a session key if there is a token, and when the caller
        token expires, in Unix microseconds. `use` is what the log-in claims to be for (`claimed_use`).

        Raises:
            TarnError: UNAUTHENTICATED, SIGNATURE_MISMATCH for a wrong secret, an unknown key, a time
                more than 15 minutes off, or a proof that was used before (in this process: another
                replica does not know it, so a stolen proof works there for 15 minutes; TLS protects
                proofs from theft). EXHAUSTED, OVERLOADED for too many log-ins.
        """
        if session_token:
            holder = await self._authorizer.find_session(access_key_id, session_token)
        else:
            holder = await self._authorizer.find(access_key_id)
        if self._decoy.encryption_key_id not in self._box.key_ids:  # the secret was replaced
            self._decoy = _decoy(self._box, self._random_bytes)
        if holder is not None and holder.session is not None:
            secret = self._session_keys.open(holder.session)
        else:
            secret = self._credentials.open(
                holder.credential if holder is not None else self._decoy
            )
        expected = log_in_proof(secret, access_key_id, sign_time_s, nonce)
        matches = hmac.compare_digest(expected.encode(), signature.encode())
        skew_us = abs(self._clock.now_us() - sign_time_s * 1_000_000)
        fits = skew_us <= SKEW_US_MAX and _NONCE.fullmatch(nonce) is not None
        # Only valid proofs are recorded, so that unauthenticated callers cannot fill the memory.
        if holder is None or not (matches and fits) or not self._nonces.use(access_key_id, nonce):
            text = (
                "the log-in proof is not valid: check the key pair, or the session key with its token, and this "
                "machine's clock"
            )
            raise TarnError(Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, text)
        kind = claimed_use(use)
        self._uses.note(holder.credential, kind)
        grant = self._authorizer.grant(holder, kind)
        return grant, self._authorizer.expire_time_us(holder, grant)


class Nonces:
    """Used nonces whose proofs are still within their time, so that no proof is accepted twice."""

    def __init__(
        self,
        clock: Clock,
        *,
        nonces_max: int = _NONCES_MAX,
        per_key_max: int = _NONCES_PER_KEY_MAX,
    ) -> None:
        self._clock = clock
        self._nonces_max = nonces_max
        self._per_key_max = per_key_max
        # (access key id, nonce) → end on the monotonic clock. Invariant: ends never decrease.
        # Not a `TtlCache`, which makes room by forgetting: a forgotten nonce could be used again.
        self._ends: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._per_key: Counter[str] = Counter()

    def use(self, access_key_id: str, nonce: str) -> bool:
        """Records a nonce; returns whether it was new.

        Raises:
            TarnError: EXHAUSTED, OVERLOADED if this key pair, or all of them together, log in too often.
                Dropping a nonce early would let its proof be used again.
        """
        self._forget()
        if (access_key_id, nonce) in self._ends:
            return False
        full = len(self._ends) >= self._nonces_max
        if full or self._per_key[access_key_id] >= self._per_key_max:
            text = "too many log-ins within 30 minutes; keep the caller token and use it again"
            raise TarnError(Kind.EXHAUSTED, Reason.OVERLOADED, text)
        # A proof from 15 minutes ahead is valid for 30 minutes.
        self._ends[access_key_id, nonce] = self._clock.monotonic() + 2 * SKEW_US_MAX / 1_000_000
        self._per_key[access_key_id] += 1
        return True

    def _forget(self) -> None:
        now = self._clock.monotonic()
        while self._ends:
            key = next(iter(self._ends))
            # One second more, because proofs carry whole seconds.
            if self._ends[key] + 1 > now:
                return
            del self._ends[key]
            self._per_key[key[0]] -= 1
            if not self._per_key[key[0]]:
                del self._per_key[key[0]]


def _decoy(box: SecretBox, random_bytes: RandomBytes) -> Credential:
    """Returns a key pair that belongs to no user, with a secret that no caller knows."""
    access_key_id = AccessKeyId("")
    sealed, key_id = box.seal(access_key_id, random_bytes(20).hex())
    return Credential(access_key_id, UserId(""), b"", "", 0, sealed, key_id)
