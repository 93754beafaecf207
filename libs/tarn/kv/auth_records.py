"""Encodes and decodes the KV values of auth (`protos/tarn_proto/store/v1/auth.proto`).

`unknown_fields` of a value are those that only newer replicas know (`tarn.kv.unknown_fields`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tarn.core.access.policy import Binding
from tarn.core.access.session_policy import RENEWED_S_MAX, Permission
from tarn.core.ids import AccessKeyId, UserId
from tarn.kv.records import parse_record
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import auth_pb2 as pb

__all__ = [
    "Credential",
    "SessionKey",
    "Setup",
    "User",
    "WebSession",
    "decode_credential",
    "decode_session_key",
    "decode_setup",
    "decode_user",
    "decode_web_session",
    "encode_credential",
    "encode_session_key",
    "encode_setup",
    "encode_user",
    "encode_web_session",
]


@dataclass(frozen=True, slots=True)
class User:
    """A user, from its creation to its deletion.

    Attributes:
        user_uid: 16 bytes, unique to this life of the user: a later user of the same name has another uid
            and inherits nothing.
        roles: role names. A role that this version does not know allows nothing.
        change_id: unique to the last change of the roles; empty before the first one.
    """

    user_id: UserId
    user_uid: bytes
    roles: tuple[str, ...]
    create_time_us: int
    change_id: bytes = b""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Credential:
    """A key pair.

    Attributes:
        sealed_secret: the encrypted secret, see `tarn_auth.secret_box`.
        encryption_key_id: id of the key that encrypts `sealed_secret`.
        use_time_us: its last use, up to an hour earlier, in Unix microseconds; 0: none was seen.
        use_kind: of `tarn.core.access.key_use`; empty if it is not known.
    """

    access_key_id: AccessKeyId
    user_id: UserId
    user_uid: bytes
    description: str
    create_time_us: int
    sealed_secret: bytes = field(repr=False)
    encryption_key_id: str
    use_time_us: int = 0
    use_kind: str = ""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SessionKey:
    """A session key.

    Attributes:
        issuer_access_key_id: the key pair that issued it, and with which it ends.
        expire_time_us: Unix microseconds, as is `create_time_us`.
        sealed_secret: as in `Credential`.
        token_digest: SHA-256 of the session token.
        permissions: what it may do at most; none: all that session keys may do.
        bindings: what bucket names mean to its holder.
    """

    access_key_id: AccessKeyId
    user_id: UserId
    user_uid: bytes
    issuer_access_key_id: AccessKeyId
    description: str
    create_time_us: int
    expire_time_us: int
    sealed_secret: bytes = field(repr=False)
    encryption_key_id: str
    token_digest: bytes = field(repr=False)
    permissions: tuple[Permission, ...] = ()
    bindings: tuple[Binding, ...] = ()
    stored_parts: bytes = field(default=b"", compare=False, repr=False)
    """The permissions and bindings as they were read, with what only newer replicas know of them. They never change."""
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    @property
    def renew_until_us(self) -> int:
        """The end of its last renewal at the latest, Unix microseconds."""
        return self.create_time_us + RENEWED_S_MAX * 1_000_000


@dataclass(frozen=True, slots=True)
class WebSession:
    """A session of a browser.

    Attributes:
        access_key_id: the key pair with which its user signed in, and with which it ends.
        use_time_us: its last use, up to a minute earlier; Unix microseconds, as is `create_time_us`.
    """

    user_id: UserId
    user_uid: bytes
    access_key_id: AccessKeyId
    create_time_us: int
    use_time_us: int
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Setup:
    """The record that the first admin exists and set-up is over."""

    setup_time_us: int
    user_id: UserId
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


def encode_user(user: User) -> bytes:
    """Encodes a user as a KV value."""
    record = pb.UserRecord(
        user_id=user.user_id,
        user_uid=user.user_uid,
        roles=user.roles,
        create_time_us=user.create_time_us,
        change_id=user.change_id,
    )
    return with_unknown(record, user.unknown_fields).SerializeToString()


def decode_user(value: bytes) -> User:
    """Decodes a user from a KV value."""
    record = parse_record(pb.UserRecord(), value)
    user_id = UserId(record.user_id)
    roles = tuple(record.roles)
    return User(
        user_id,
        record.user_uid,
        roles,
        record.create_time_us,
        record.change_id,
        unknown_of(record),
    )


def encode_credential(credential: Credential) -> bytes:
    """Encodes a key pair as a KV value."""
    record = pb.CredentialRecord(
        access_key_id=credential.access_key_id,
        user_id=credential.user_id,
        user_uid=credential.user_uid,
        description=credential.description,
        create_time_us=credential.create_time_us,
        sealed_secret=credential.sealed_secret,
        encryption_key_id=credential.encryption_key_id,
        use_time_us=credential.use_time_us,
        use_kind=credential.use_kind,
    )
    return with_unknown(record, credential.unknown_fields).SerializeToString()


def decode_credential(value: bytes) -> Credential:
    """Decodes a key pair from a KV value."""
    record = parse_record(pb.CredentialRecord(), value)
    return Credential(
        AccessKeyId(record.access_key_id),
        UserId(record.user_id),
        record.user_uid,
        record.description,
        record.create_time_us,
        record.sealed_secret,
        record.encryption_key_id,
        record.use_time_us,
        record.use_kind,
        unknown_of(record),
    )


def encode_session_key(key: SessionKey) -> bytes:
    """Encodes a session key as a KV value."""
    record = pb.SessionKeyRecord(
        access_key_id=key.access_key_id,
        user_id=key.user_id,
        user_uid=key.user_uid,
        issuer_access_key_id=key.issuer_access_key_id,
        description=key.description,
        create_time_us=key.create_time_us,
        expire_time_us=key.expire_time_us,
        sealed_secret=key.sealed_secret,
        encryption_key_id=key.encryption_key_id,
        token_digest=key.token_digest,
    )
    if key.stored_parts:
        record.MergeFromString(key.stored_parts)
    else:
        for permission in key.permissions:
            record.permissions.add(actions=permission.actions, resources=permission.resources)
        for each in key.bindings:
            record.bindings.add(bucket_id=each.bucket, repository_id=each.repository, ref=each.ref)
    return with_unknown(record, key.unknown_fields).SerializeToString()


def decode_session_key(value: bytes) -> SessionKey:
    """Decodes a session key from a KV value."""
    record = parse_record(pb.SessionKeyRecord(), value)
    parts = pb.SessionKeyRecord(permissions=record.permissions, bindings=record.bindings)
    return SessionKey(
        AccessKeyId(record.access_key_id),
        UserId(record.user_id),
        record.user_uid,
        AccessKeyId(record.issuer_access_key_id),
        record.description,
        record.create_time_us,
        record.expire_time_us,
        record.sealed_secret,
        record.encryption_key_id,
        record.token_digest,
        tuple(Permission(tuple(p.actions), tuple(p.resources)) for p in record.permissions),
        tuple(Binding(b.bucket_id, b.repository_id, b.ref) for b in record.bindings),
        parts.SerializeToString(),
        unknown_of(record),
    )


def encode_web_session(session: WebSession) -> bytes:
    """Encodes a session of a browser as a KV value."""
    record = pb.WebSessionRecord(
        user_id=session.user_id,
        user_uid=session.user_uid,
        access_key_id=session.access_key_id,
        create_time_us=session.create_time_us,
        use_time_us=session.use_time_us,
    )
    return with_unknown(record, session.unknown_fields).SerializeToString()


def decode_web_session(value: bytes) -> WebSession:
    """Decodes a session of a browser from a KV value."""
    record = parse_record(pb.WebSessionRecord(), value)
    return WebSession(
        UserId(record.user_id),
        record.user_uid,
        AccessKeyId(record.access_key_id),
        record.create_time_us,
        record.use_time_us,
        unknown_of(record),
    )


def encode_setup(setup: Setup) -> bytes:
    """Encodes the record of a finished set-up as a KV value."""
    record = pb.SetupRecord(setup_time_us=setup.setup_time_us, user_id=setup.user_id)
    return with_unknown(record, setup.unknown_fields).SerializeToString()


def decode_setup(value: bytes) -> Setup:
    """Decodes the record of a finished set-up from a KV value."""
    record = parse_record(pb.SetupRecord(), value)
    return Setup(record.setup_time_us, UserId(record.user_id), unknown_of(record))
