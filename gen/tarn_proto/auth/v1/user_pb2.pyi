import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class User(_message.Message):
    __slots__ = ("user_id", "roles", "create_time", "user_uid")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    create_time: _timestamp_pb2.Timestamp
    user_uid: bytes
    def __init__(self, user_id: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., user_uid: _Optional[bytes] = ...) -> None: ...

class Credential(_message.Message):
    __slots__ = ("access_key_id", "user_id", "description", "create_time", "use_time", "use_kind")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_FIELD_NUMBER: _ClassVar[int]
    USE_KIND_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    user_id: str
    description: str
    create_time: _timestamp_pb2.Timestamp
    use_time: _timestamp_pb2.Timestamp
    use_kind: str
    def __init__(self, access_key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., description: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., use_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., use_kind: _Optional[str] = ...) -> None: ...
