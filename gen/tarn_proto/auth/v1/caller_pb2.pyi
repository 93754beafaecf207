from tarn_proto.auth.v1 import session_key_service_pb2 as _session_key_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Statement(_message.Message):
    __slots__ = ("allow", "actions", "resources")
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    allow: bool
    actions: _containers.RepeatedScalarFieldContainer[str]
    resources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, allow: _Optional[bool] = ..., actions: _Optional[_Iterable[str]] = ..., resources: _Optional[_Iterable[str]] = ...) -> None: ...

class Grant(_message.Message):
    __slots__ = ("user_id", "statements", "caller_token", "ttl_ms", "user_uid", "roles", "bindings", "session_key_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    CALLER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    statements: _containers.RepeatedCompositeFieldContainer[Statement]
    caller_token: str
    ttl_ms: int
    user_uid: bytes
    roles: _containers.RepeatedScalarFieldContainer[str]
    bindings: _containers.RepeatedCompositeFieldContainer[_session_key_service_pb2.Binding]
    session_key_id: str
    def __init__(self, user_id: _Optional[str] = ..., statements: _Optional[_Iterable[_Union[Statement, _Mapping]]] = ..., caller_token: _Optional[str] = ..., ttl_ms: _Optional[int] = ..., user_uid: _Optional[bytes] = ..., roles: _Optional[_Iterable[str]] = ..., bindings: _Optional[_Iterable[_Union[_session_key_service_pb2.Binding, _Mapping]]] = ..., session_key_id: _Optional[str] = ...) -> None: ...
