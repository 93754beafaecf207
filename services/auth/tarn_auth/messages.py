"""Converts auth's records to messages of its rpcs."""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf.timestamp_pb2 import Timestamp

from tarn.core.access.policy import Binding, Grant, Statement
from tarn.kv.auth_records import Credential, SessionKey, User, WebSession
from tarn_auth.web_sessions import web_session_id
from tarn_proto.auth.v1 import caller_pb2 as caller_pb
from tarn_proto.auth.v1 import session_key_service_pb2 as session_key_pb
from tarn_proto.auth.v1 import session_service_pb2 as session_pb
from tarn_proto.auth.v1 import user_pb2 as user_pb

__all__ = [
    "to_bindings",
    "to_credential",
    "to_grant",
    "to_session_key",
    "to_statements",
    "to_timestamp",
    "to_user",
    "to_web_session",
]


def to_timestamp(time_us: int) -> Timestamp:
    """Converts Unix microseconds to a timestamp."""
    return Timestamp(seconds=time_us // 1_000_000, nanos=time_us % 1_000_000 * 1000)


def to_statements(statements: Iterable[Statement]) -> list[caller_pb.Statement]:
    """Converts the statements of a policy."""
    return [
        caller_pb.Statement(allow=s.allow, actions=s.actions, resources=s.resources)
        for s in statements
    ]


def to_grant(grant: Grant) -> caller_pb.Grant:
    """Converts a grant, including its token."""
    return caller_pb.Grant(
        user_id=grant.user_id,
        statements=to_statements(grant.policy.statements),
        caller_token=grant.caller_token,
        ttl_ms=grant.ttl_ms,
        user_uid=grant.user_uid,
        roles=grant.roles,
        bindings=to_bindings(grant.bindings),
        session_key_id=grant.session_key_id,
    )


def to_bindings(bindings: Iterable[Binding]) -> list[session_key_pb.Binding]:
    """Converts the bindings of a session key."""
    return [
        session_key_pb.Binding(bucket_id=b.bucket, repository_id=b.repository, ref=b.ref)
        for b in bindings
    ]


def to_session_key(key: SessionKey) -> session_key_pb.SessionKey:
    """Converts a session key, without its secrets."""
    return session_key_pb.SessionKey(
        access_key_id=key.access_key_id,
        user_id=key.user_id,
        issuer_access_key_id=key.issuer_access_key_id,
        description=key.description,
        create_time=to_timestamp(key.create_time_us),
        expire_time=to_timestamp(key.expire_time_us),
        renew_until_time=to_timestamp(key.renew_until_us),
        permissions=[
            session_key_pb.Permission(actions=p.actions, resources=p.resources)
            for p in key.permissions
        ],
        bindings=to_bindings(key.bindings),
    )


def to_web_session(digest: bytes, session: WebSession) -> session_pb.WebSession:
    """Converts a session of a browser."""
    return session_pb.WebSession(
        web_session_id=web_session_id(digest),
        access_key_id=session.access_key_id,
        create_time=to_timestamp(session.create_time_us),
        use_time=to_timestamp(session.use_time_us),
    )


def to_user(user: User) -> user_pb.User:
    """Converts a user."""
    return user_pb.User(
        user_id=user.user_id,
        roles=user.roles,
        create_time=to_timestamp(user.create_time_us),
        user_uid=user.user_uid,
    )


def to_credential(credential: Credential) -> user_pb.Credential:
    """Converts a key pair, without its secret."""
    return user_pb.Credential(
        access_key_id=credential.access_key_id,
        user_id=credential.user_id,
        description=credential.description,
        create_time=to_timestamp(credential.create_time_us),
        use_time=to_timestamp(credential.use_time_us) if credential.use_time_us else None,
        use_kind=credential.use_kind,
    )
