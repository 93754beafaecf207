"""Finds the user of a key or a token, and the user's current permissions; decides whether a caller may make one of
auth's own rpcs.

A key pair is valid only while its user lives: the user's record must carry the uid that the key pair
names, so a re-created user does not inherit keys of an earlier user of that name (lakeFS CVE-2024-43784).

Records are cached for `CACHE_TTL_S`, counted from before they were read, and a grant may be used for
`GRANT_TTL_MS` from before it was requested. A deleted key pair or a changed role therefore stays effective for
at most the sum of both, 10 seconds, anywhere; in the process that made the change, for the grant's own
time. Changes of users and keys are never decided from the cache.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import hmac
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from tarn.aio.ttl_cache import TtlCache
from tarn.core.access.caller_token import CallerToken, issue, verify
from tarn.core.access.key_use import KeyUse
from tarn.core.access.policy import Grant, Policy, Role, compile_policy, statements_of
from tarn.core.access.service import Service, service_of
from tarn.core.access.session_policy import intersect, session_statements
from tarn.core.clock import Clock
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId
from tarn.kv.auth_records import Credential, SessionKey, User
from tarn.rpc.rules import Rule
from tarn.rpc.wire.call import Call
from tarn.telemetry.audit.note import note_principal, note_resource
from tarn_auth.credentials import Credentials
from tarn_auth.key_uses import KeyUses
from tarn_auth.keyring import Keyring
from tarn_auth.session_keys import SessionKeys, is_token_of
from tarn_auth.users import Users

__all__ = [
    "CACHE_TTL_S",
    "GRANT_TTL_MS",
    "TOKEN_LIFE_US",
    "Authorizer",
    "Holder",
    "SigningKey",
    "policy_of",
    "roles_of",
    "signing_key",
]

CACHE_TTL_S = 5.0
GRANT_TTL_MS = 5_000
TOKEN_LIFE_US = 3_600_000_000
"""Life of a token: longer than one request, even a large upload. The end of its key pair ends it earlier."""

# Tokens issued within one such window are identical, so that services that cache grants by token do not
# meet a new one every few seconds.
_TOKEN_WINDOW_US = 300_000_000
_HOLDERS_MAX = 8192
_ACCESS_KEY_ID_MAX = 128
_SIGNED_BYTES_MAX = 64 * 1024
"""A string to sign of version 2 holds parts of the head of a request, which has at most 32 KiB."""
_DATE = re.compile(r"[0-9]{8}")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_SERVICES = ("s3", "sts")


def signing_key(secret: str, date: str, region: str, service: str) -> bytes:
    """Returns the SigV4 key of one day: HMAC over date, region, service and `aws4_request`."""
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key


@dataclass(frozen=True, slots=True)
class Holder:
    """A key pair and its living user.

    Attributes:
        session: the session key that is in use; `credential` has issued it.
    """

    user: User
    credential: Credential
    session: SessionKey | None = None

    @property
    def access_key_id(self) -> AccessKeyId:
        """The id of the key in use."""
        return self.credential.access_key_id if self.session is None else self.session.access_key_id


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A signing key of one day and the grant of its user."""

    key: bytes = field(repr=False)
    grant: Grant


class Authorizer:
    """Finds the user and the permissions of a key or a token.

    Args:
        keyring: its token keys sign and verify caller tokens.
        uses: is told of each proof of a key pair.
    """

    def __init__(
        self,
        users: Users,
        credentials: Credentials,
        session_keys: SessionKeys,
        keyring: Keyring,
        clock: Clock,
        uses: KeyUses,
    ) -> None:
        self._users = users
        self._credentials = credentials
        self._session_keys = session_keys
        self._keyring = keyring
        self._clock = clock
        self._uses = uses
        self._holders: TtlCache[str, Holder] = TtlCache(clock, _HOLDERS_MAX)
        # Apart, so that an id that a client chose is never looked up as one of the other kind.
        self._session_holders: TtlCache[str, Holder] = TtlCache(clock, _HOLDERS_MAX)

    async def authorize_key(
        self, access_key_id: str, date: str, region: str, service: str, token_digest: bytes = b""
    ) -> SigningKey:
        """Returns the signing key of an access key for one day, and its user's grant.

        Args:
            access_key_id: of a key pair; of a session key if there is a digest.
            date: `yyyymmdd`.
            region: of the scope.
            service: of the scope.
            token_digest: SHA-256 of the session token of the request; empty if it has none.

        Raises:
            TarnError: UNAUTHENTICATED, CREDENTIAL_NOT_FOUND if the key pair or its user does not exist;
                SESSION_TOKEN_INVALID if there is no session key of this token, SESSION_EXPIRED;
                INVALID for a date more than a day off, or a service other than `s3` and `sts`.
        """
        self._check_scope(date, region, service)
        holder, secret = await self._signer(access_key_id, token_digest)
        # No use is noted yet: the gateway has still to verify the signature.
        key = signing_key(secret, date, region, service)
        return SigningKey(key, self.grant(holder, KeyUse.S3))

    async def authorize_signature_v2(
        self, access_key_id: str, string_to_sign: bytes, signature: bytes, token_digest: bytes = b""
    ) -> Grant:
        """Returns the grant of the user who made a signature of version 2: HMAC-SHA1 with the secret itself, which is
        why it is compared here.

        Args:
            access_key_id: as in `authorize_key`.
            string_to_sign: what was signed.
            signature: 20 bytes, as claimed.
            token_digest: as in `authorize_key`.

        Raises:
            TarnError: UNAUTHENTICATED as `authorize_key`; SIGNATURE_MISMATCH for another signature; INVALID for a text
                that is too long.
        """
        if len(string_to_sign) > _SIGNED_BYTES_MAX:
            text = f"the string to sign has {len(string_to_sign)} bytes, {_SIGNED_BYTES_MAX} are allowed"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="string_to_sign")
        holder, secret = await self._signer(access_key_id, token_digest)
        if not hmac.compare_digest(hmac.digest(secret.encode(), string_to_sign, "sha1"), signature):
            text = "the signature is not that of the access key and the request"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.SIGNATURE_MISMATCH, text)
        self._uses.note(holder.credential, KeyUse.S3)
        return self.grant(holder, KeyUse.S3)

    async def sign_for(self, token: str, region: str) -> tuple[AccessKeyId, int, bytes]:
        """Returns the key pair behind a caller token, as stored now, the time in Unix seconds, and the signing key of
        this day for S3. The signing key is for this process: it signs as the user, and leaves auth for gateways only.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID; DENIED, ACCESS_DENIED: the token is that of a session key,
                whose requests carry a token that auth does not keep; INVALID for a region.
        """
        now_s = self._clock.now_us() // 1_000_000
        date = dt.datetime.fromtimestamp(now_s, dt.UTC).strftime("%Y%m%d")
        self._check_scope(date, region, "s3")
        holder = await self.holder_of(token)
        if holder.session is not None:
            text = "auth signs nothing for a session key; sign in with a key pair"
            raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text)
        secret = self._credentials.open(holder.credential)
        return holder.access_key_id, now_s, signing_key(secret, date, region, "s3")

    async def _signer(self, access_key_id: str, token_digest: bytes) -> tuple[Holder, str]:
        """Returns the holder of a key pair or session key, and its secret. Arguments and errors as `authorize_key`."""
        if token_digest:
            of_session = await self._session_of(access_key_id, token_digest)
            assert of_session.session is not None, "it is the holder of a session key"
            return of_session, self._session_keys.open(of_session.session)
        holder = await self._kept(access_key_id)
        if holder is None:
            text = "the access key does not exist"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CREDENTIAL_NOT_FOUND, text)
        return holder, self._credentials.open(holder.credential)

    def _verify(self, token: str, now_us: int) -> CallerToken:
        """Verifies a caller token with each key. Raises as `verify`."""
        current, *others = self._keyring.token_keys
        try:
            return verify(current, token, now_us)
        except TarnError:
            for key in others:
                with contextlib.suppress(TarnError):
                    return verify(key, token, now_us)
            raise

    async def authorize_token(self, token: str) -> Grant:
        """Returns the grant of a token's bearer; the grant carries the same token.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID if the token is forged or expired, or if its
                key pair was deleted.
        """
        claims = self._verify(token, self._clock.now_us())
        if (service := service_of(claims.user_id)) is not None:
            return _service_grant(service, token)
        if claims.is_session:
            holder = _claimed(claims, await self._kept_session(claims.access_key_id))
            self._require_life(holder, Reason.CALLER_TOKEN_INVALID)
        else:
            holder = _claimed(claims, await self._kept(claims.access_key_id))
        self._uses.note(holder.credential, claims.use)
        return self._grant(holder, token)

    def authorize_service(self, name: str, callers: Collection[Service]) -> Grant:
        """Returns a grant with a caller token for a service that works without a user.

        Its permissions are fixed (`Service`), and auth's own rpcs refuse the token.

        Args:
            name: of the service.
            callers: the services that the caller has proved to be; it gets a token of no other.

        Raises:
            TarnError: INVALID: no service has this name. DENIED, SERVICE_REQUIRED: the caller is another service.
        """
        if name not in set(Service):
            raise _invalid("service", name, f"must be one of {', '.join(Service)}")
        service = Service(name)
        if service not in callers:
            text = (
                f"a service gets its own token only, and the caller did not prove to be {service}"
            )
            raise TarnError(Kind.DENIED, Reason.SERVICE_REQUIRED, text, service=service)
        window = self._window()
        token = issue(
            self._keyring.token_keys[0],
            service.user_id,
            b"",
            AccessKeyId(""),
            window,
            window + _TOKEN_WINDOW_US + TOKEN_LIFE_US,
        )
        return _service_grant(service, token)

    async def caller_of(self, call: Call) -> Holder:
        """Returns the user and key pair of a call's caller token, as stored now.

        Never from the cache, so a deleted admin loses all permissions immediately, on every replica.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID if the token is absent, forged or expired, or if
                its key pair was deleted.
        """
        if not call.caller_token:
            text = "the call carries no caller token; log in first"
            raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
        holder = await self.holder_of(call.caller_token)
        note_principal(holder.user.user_id)
        return holder

    async def holder_of(self, token: str) -> Holder:
        """Returns the user and key pair of a caller token, as stored now.

        Raises:
            TarnError: UNAUTHENTICATED, CALLER_TOKEN_INVALID if it is forged or expired, or if its key pair was deleted.
        """
        claims = self._verify(token, self._clock.now_us())
        if claims.is_session:
            holder = _claimed(claims, await self.find_session(claims.access_key_id))
            self._require_life(holder, Reason.CALLER_TOKEN_INVALID)
        else:
            holder = _claimed(claims, await self.find(claims.access_key_id))
        self._uses.note(holder.credential, claims.use)
        return holder

    def require(self, caller: Holder, rule: Rule, resource: str) -> None:
        """Refuses a call unless the rule of its rpc lets the caller access the resource (`tarn.rpc.rules`).

        Raises:
            TarnError: DENIED, ACCESS_DENIED.
        """
        self.grant(caller).require(rule.require_action(), resource)
        note_resource(resource)

    async def find(self, access_key_id: str) -> Holder | None:
        """Returns a key pair and its user as stored now; None if either does not exist.

        An unknown key costs the same reads as a known one.
        """
        # A string that is too long for a key is replaced by another name that no key has.
        name = access_key_id if len(access_key_id) <= _ACCESS_KEY_ID_MAX else ""
        credential = await self._credentials.find(name)
        user = await self._users.find(credential.user_id if credential is not None else "")
        if credential is None or user is None:
            return None
        if not hmac.compare_digest(user.user_uid, credential.user_uid):
            return None  # a later user of the same name
        return Holder(user, credential)

    async def find_session(self, access_key_id: str, token: str | None = None) -> Holder | None:
        """Returns a session key, its user, and the key pair that issued it, as stored now; None if one of them does not
        exist.

        Args:
            access_key_id: of the session key.
            token: its token; None if the caller has proved to hold it. None is returned for another token, and for a
                key that has expired.
        """
        name = access_key_id if len(access_key_id) <= _ACCESS_KEY_ID_MAX else ""
        session = await self._session_keys.find(name)
        issuer = await self.find("" if session is None else session.issuer_access_key_id)
        if session is None or issuer is None:
            return None
        if not hmac.compare_digest(issuer.user.user_uid, session.user_uid):
            return None  # a later user of the same name
        if token is not None:
            digest = hashlib.sha256(token.encode()).digest()
            if not is_token_of(session, digest) or session.expire_time_us <= self._clock.now_us():
                return None
        return replace(issuer, session=session)

    def grant(self, holder: Holder, use: str = "") -> Grant:
        """Returns a grant with a new token.

        Args:
            holder: of the key that the caller has named, and proved or will prove to hold.
            use: what the key is used for (`tarn.core.access.key_use`); empty if the token is not given out.
        """
        window = self._window()
        token = issue(
            self._keyring.token_keys[0],
            holder.user.user_id,
            holder.user.user_uid,
            holder.access_key_id,
            window,
            window + _TOKEN_WINDOW_US + TOKEN_LIFE_US,
            is_session=holder.session is not None,
            use=use,
        )
        return self._grant(holder, token)

    def _window(self) -> int:
        now = self._clock.now_us()
        return now - now % _TOKEN_WINDOW_US

    def expire_time_us(self, holder: Holder, grant: Grant) -> int:
        """Returns when the token of a grant of this process expires, in Unix microseconds. A session key that
        is renewed meanwhile keeps it valid for longer."""
        end_us = self._verify(grant.caller_token, self._clock.now_us()).expire_time_us
        return end_us if holder.session is None else min(end_us, holder.session.expire_time_us)

    def forget(self) -> None:
        """Clears the cache, because this process has changed a user or a key pair."""
        self._holders.clear()
        self._session_holders.clear()

    async def _kept(self, access_key_id: str) -> Holder | None:
        holder = self._holders.get(access_key_id)
        if holder is None:
            begin = self._clock.monotonic()
            holder = await self.find(access_key_id)
            if holder is not None:  # absence is not cached: strangers choose the names
                self._holders.put(access_key_id, holder, begin + CACHE_TTL_S)
        return holder

    async def _kept_session(self, access_key_id: str) -> Holder | None:
        holder = self._session_holders.get(access_key_id)
        if holder is None or self._has_expired(holder):  # it may have been renewed
            begin = self._clock.monotonic()
            holder = await self.find_session(access_key_id)
            if holder is not None:
                self._session_holders.put(access_key_id, holder, begin + CACHE_TTL_S)
        return holder

    async def _session_of(self, access_key_id: str, token_digest: bytes) -> Holder:
        """Returns the holder of a session key, who has shown its token. Raises as `authorize_key`."""
        holder = await self._kept_session(access_key_id)
        if (
            holder is None
            or holder.session is None
            or not is_token_of(holder.session, token_digest)
        ):
            text = (
                "the session token is not that of a session key with this access key id; the key may have been ended, "
                "or its user or the key pair that issued it deleted"
            )
            raise TarnError(Kind.UNAUTHENTICATED, Reason.SESSION_TOKEN_INVALID, text)
        self._require_life(holder, Reason.SESSION_EXPIRED)
        return holder

    def _has_expired(self, holder: Holder) -> bool:
        session = holder.session
        return session is not None and session.expire_time_us <= self._clock.now_us()

    def _require_life(self, holder: Holder, reason: Reason) -> None:
        """Refuses a session key that has expired."""
        if self._has_expired(holder):
            text = f"session key {holder.access_key_id} has expired; get another one"
            raise TarnError(Kind.UNAUTHENTICATED, reason, text)

    def _grant(self, holder: Holder, token: str) -> Grant:
        user, session = holder.user, holder.session
        names = tuple(role.value for role in roles_of(user))
        policy = policy_of(user)
        if session is None:
            return Grant(user.user_id, policy, token, GRANT_TTL_MS, user.user_uid, names)
        own = session_statements(user.user_id, session.access_key_id, session.permissions)
        policy = compile_policy(intersect(policy.statements, own))
        left_ms = max(0, (session.expire_time_us - self._clock.now_us()) // 1000)
        ttl_ms = min(GRANT_TTL_MS, left_ms)
        return Grant(
            user.user_id,
            policy,
            token,
            ttl_ms,
            user.user_uid,
            names,
            session.bindings,
            session.access_key_id,
        )

    def _check_scope(self, date: str, region: str, service: str) -> None:
        if service not in _SERVICES:
            raise _invalid("service", service, f"must be one of {', '.join(_SERVICES)}")
        if not _REGION.fullmatch(region):
            raise _invalid("region", region, "must be 1 to 64 letters, digits and '-'")
        try:
            day = dt.date.fromisoformat(date if _DATE.fullmatch(date) else "")
        except ValueError:
            raise _invalid("date", date, "must be a day as yyyymmdd") from None
        now = dt.datetime.fromtimestamp(self._clock.now_us() // 1_000_000, dt.UTC)
        if abs(day - now.date()) > dt.timedelta(days=1):
            raise _invalid("date", date, "must be within a day of today, UTC")


def roles_of(user: User) -> Sequence[Role]:
    """Returns the roles of a user that this release knows; others allow nothing."""
    known = {role.value for role in Role}
    return [Role(name) for name in user.roles if name in known]


def policy_of(user: User) -> Policy:
    """Returns what a user may do with a key pair."""
    return compile_policy(statements_of(roles_of(user), user.user_id))


def _service_grant(service: Service, token: str) -> Grant:
    return Grant(service.user_id, compile_policy(service.statements), token, GRANT_TTL_MS)


def _claimed(claims: CallerToken, holder: Holder | None) -> Holder:
    if holder is None or holder.user.user_uid != claims.user_uid:
        text = "the user or the key of the caller token was deleted; log in with another one"
        raise TarnError(Kind.UNAUTHENTICATED, Reason.CALLER_TOKEN_INVALID, text)
    return holder


def _invalid(name: str, value: str, rule: str) -> TarnError:
    text = f"{name} {value[:80]!r} {rule}"
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=name, value=value[:80])
