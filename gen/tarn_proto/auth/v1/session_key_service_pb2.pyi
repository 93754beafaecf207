import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Permission(_message.Message):
    __slots__ = ("actions", "resources")
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[str]
    resources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, actions: _Optional[_Iterable[str]] = ..., resources: _Optional[_Iterable[str]] = ...) -> None: ...

class Binding(_message.Message):
    __slots__ = ("bucket_id", "repository_id", "ref")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    repository_id: str
    ref: str
    def __init__(self, bucket_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., ref: _Optional[str] = ...) -> None: ...

class SessionKey(_message.Message):
    __slots__ = ("access_key_id", "user_id", "issuer_access_key_id", "description", "create_time", "expire_time", "renew_until_time", "permissions", "bindings")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUER_ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    RENEW_UNTIL_TIME_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    user_id: str
    issuer_access_key_id: str
    description: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    renew_until_time: _timestamp_pb2.Timestamp
    permissions: _containers.RepeatedCompositeFieldContainer[Permission]
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    def __init__(self, access_key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., issuer_access_key_id: _Optional[str] = ..., description: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., renew_until_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., permissions: _Optional[_Iterable[_Union[Permission, _Mapping]]] = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ...) -> None: ...

class CreateSessionKeyRequest(_message.Message):
    __slots__ = ("duration_s", "description", "permissions", "bindings")
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    duration_s: int
    description: str
    permissions: _containers.RepeatedCompositeFieldContainer[Permission]
    bindings: _containers.RepeatedCompositeFieldContainer[Binding]
    def __init__(self, duration_s: _Optional[int] = ..., description: _Optional[str] = ..., permissions: _Optional[_Iterable[_Union[Permission, _Mapping]]] = ..., bindings: _Optional[_Iterable[_Union[Binding, _Mapping]]] = ...) -> None: ...

class CreateSessionKeyResponse(_message.Message):
    __slots__ = ("session_key", "secret_access_key", "session_token")
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    SECRET_ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_key: SessionKey
    secret_access_key: str
    session_token: str
    def __init__(self, session_key: _Optional[_Union[SessionKey, _Mapping]] = ..., secret_access_key: _Optional[str] = ..., session_token: _Optional[str] = ...) -> None: ...

class ListSessionKeysRequest(_message.Message):
    __slots__ = ("user_id", "page_size", "page_token")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    page_size: int
    page_token: str
    def __init__(self, user_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSessionKeysResponse(_message.Message):
    __slots__ = ("session_keys", "next_page_token")
    SESSION_KEYS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    session_keys: _containers.RepeatedCompositeFieldContainer[SessionKey]
    next_page_token: str
    def __init__(self, session_keys: _Optional[_Iterable[_Union[SessionKey, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RenewSessionKeyRequest(_message.Message):
    __slots__ = ("access_key_id", "duration_s")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    duration_s: int
    def __init__(self, access_key_id: _Optional[str] = ..., duration_s: _Optional[int] = ...) -> None: ...

class RenewSessionKeyResponse(_message.Message):
    __slots__ = ("session_key",)
    SESSION_KEY_FIELD_NUMBER: _ClassVar[int]
    session_key: SessionKey
    def __init__(self, session_key: _Optional[_Union[SessionKey, _Mapping]] = ...) -> None: ...

class EndSessionKeyRequest(_message.Message):
    __slots__ = ("access_key_id",)
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    def __init__(self, access_key_id: _Optional[str] = ...) -> None: ...

class EndSessionKeyResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
