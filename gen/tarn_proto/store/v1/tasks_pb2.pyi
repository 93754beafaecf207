from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskRecord(_message.Message):
    __slots__ = ("task_id", "repository_id", "instance_uid", "user_id", "user_uid", "roles", "kind", "state", "subject", "request", "create_time_us", "epoch", "runner", "lease_until_us", "is_cancel_requested", "done_count", "total_count", "begin_sequence", "end_time_us", "result", "error", "digest", "incarnation", "request_row", "result_row", "session_key_id")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    RUNNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    IS_CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    BEGIN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    END_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ROW_FIELD_NUMBER: _ClassVar[int]
    RESULT_ROW_FIELD_NUMBER: _ClassVar[int]
    SESSION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    repository_id: str
    instance_uid: str
    user_id: str
    user_uid: bytes
    roles: _containers.RepeatedScalarFieldContainer[str]
    kind: str
    state: str
    subject: str
    request: bytes
    create_time_us: int
    epoch: int
    runner: bytes
    lease_until_us: int
    is_cancel_requested: bool
    done_count: int
    total_count: int
    begin_sequence: int
    end_time_us: int
    result: bytes
    error: TaskErrorRecord
    digest: bytes
    incarnation: bytes
    request_row: bytes
    result_row: bytes
    session_key_id: str
    def __init__(self, task_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., instance_uid: _Optional[str] = ..., user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., roles: _Optional[_Iterable[str]] = ..., kind: _Optional[str] = ..., state: _Optional[str] = ..., subject: _Optional[str] = ..., request: _Optional[bytes] = ..., create_time_us: _Optional[int] = ..., epoch: _Optional[int] = ..., runner: _Optional[bytes] = ..., lease_until_us: _Optional[int] = ..., is_cancel_requested: _Optional[bool] = ..., done_count: _Optional[int] = ..., total_count: _Optional[int] = ..., begin_sequence: _Optional[int] = ..., end_time_us: _Optional[int] = ..., result: _Optional[bytes] = ..., error: _Optional[_Union[TaskErrorRecord, _Mapping]] = ..., digest: _Optional[bytes] = ..., incarnation: _Optional[bytes] = ..., request_row: _Optional[bytes] = ..., result_row: _Optional[bytes] = ..., session_key_id: _Optional[str] = ...) -> None: ...

class TaskErrorRecord(_message.Message):
    __slots__ = ("kind", "reason", "message", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    KIND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    kind: str
    reason: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, kind: _Optional[str] = ..., reason: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TaskQuotaRecord(_message.Message):
    __slots__ = ("start_count", "open_task_ids")
    START_COUNT_FIELD_NUMBER: _ClassVar[int]
    OPEN_TASK_IDS_FIELD_NUMBER: _ClassVar[int]
    start_count: int
    open_task_ids: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, start_count: _Optional[int] = ..., open_task_ids: _Optional[_Iterable[bytes]] = ...) -> None: ...
