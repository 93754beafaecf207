from tarn_proto.store.v1 import graveler_pb2 as _graveler_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JournalOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOURNAL_OPERATION_UNSPECIFIED: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_PUT: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_DELETE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_COMPLETE_UPLOAD: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_LINK: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_COPY: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_ERASE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_CREATE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_SEAL: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_COMMIT: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_COMPACT: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_RESET: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_MERGE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_REVERT: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_CHERRY_PICK: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_MOVE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_RESTORE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_EXPIRE: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_REMOVE_BRANCH: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_TOUCH: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_SET: _ClassVar[JournalOperation]
    JOURNAL_OPERATION_REMOVE: _ClassVar[JournalOperation]
JOURNAL_OPERATION_UNSPECIFIED: JournalOperation
JOURNAL_OPERATION_PUT: JournalOperation
JOURNAL_OPERATION_DELETE: JournalOperation
JOURNAL_OPERATION_COMPLETE_UPLOAD: JournalOperation
JOURNAL_OPERATION_LINK: JournalOperation
JOURNAL_OPERATION_COPY: JournalOperation
JOURNAL_OPERATION_ERASE: JournalOperation
JOURNAL_OPERATION_CREATE: JournalOperation
JOURNAL_OPERATION_SEAL: JournalOperation
JOURNAL_OPERATION_COMMIT: JournalOperation
JOURNAL_OPERATION_COMPACT: JournalOperation
JOURNAL_OPERATION_RESET: JournalOperation
JOURNAL_OPERATION_MERGE: JournalOperation
JOURNAL_OPERATION_REVERT: JournalOperation
JOURNAL_OPERATION_CHERRY_PICK: JournalOperation
JOURNAL_OPERATION_MOVE: JournalOperation
JOURNAL_OPERATION_RESTORE: JournalOperation
JOURNAL_OPERATION_EXPIRE: JournalOperation
JOURNAL_OPERATION_REMOVE_BRANCH: JournalOperation
JOURNAL_OPERATION_TOUCH: JournalOperation
JOURNAL_OPERATION_SET: JournalOperation
JOURNAL_OPERATION_REMOVE: JournalOperation

class JournalEvent(_message.Message):
    __slots__ = ("time_us", "user_uid", "session_uid", "operation", "key", "payload", "cause", "event_id")
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    SESSION_UID_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EVENT_ID_FIELD_NUMBER: _ClassVar[int]
    time_us: int
    user_uid: bytes
    session_uid: bytes
    operation: JournalOperation
    key: str
    payload: bytes
    cause: bytes
    event_id: bytes
    def __init__(self, time_us: _Optional[int] = ..., user_uid: _Optional[bytes] = ..., session_uid: _Optional[bytes] = ..., operation: _Optional[_Union[JournalOperation, str]] = ..., key: _Optional[str] = ..., payload: _Optional[bytes] = ..., cause: _Optional[bytes] = ..., event_id: _Optional[bytes] = ...) -> None: ...

class JournalRegistration(_message.Message):
    __slots__ = ("partition", "buckets", "is_plain", "key", "event_key", "expected", "token", "is_drained")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    IS_PLAIN_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    EVENT_KEY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_DRAINED_FIELD_NUMBER: _ClassVar[int]
    partition: str
    buckets: int
    is_plain: bool
    key: bytes
    event_key: bytes
    expected: bytes
    token: _graveler_pb2.Token
    is_drained: bool
    def __init__(self, partition: _Optional[str] = ..., buckets: _Optional[int] = ..., is_plain: _Optional[bool] = ..., key: _Optional[bytes] = ..., event_key: _Optional[bytes] = ..., expected: _Optional[bytes] = ..., token: _Optional[_Union[_graveler_pb2.Token, _Mapping]] = ..., is_drained: _Optional[bool] = ...) -> None: ...
