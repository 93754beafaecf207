import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BranchState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BRANCH_STATE_UNSPECIFIED: _ClassVar[BranchState]
    BRANCH_STATE_IDLE: _ClassVar[BranchState]
    BRANCH_STATE_QUEUED: _ClassVar[BranchState]
    BRANCH_STATE_RUNNING: _ClassVar[BranchState]
    BRANCH_STATE_WAITING: _ClassVar[BranchState]
BRANCH_STATE_UNSPECIFIED: BranchState
BRANCH_STATE_IDLE: BranchState
BRANCH_STATE_QUEUED: BranchState
BRANCH_STATE_RUNNING: BranchState
BRANCH_STATE_WAITING: BranchState

class GetCompactorStatusRequest(_message.Message):
    __slots__ = ("page_size",)
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    def __init__(self, page_size: _Optional[int] = ...) -> None: ...

class GetCompactorStatusResponse(_message.Message):
    __slots__ = ("branches", "branch_count", "replicas", "pause_end_time", "measure_queue", "compactions", "failures", "rows_read", "rows_written", "sealed_tokens_removed", "tombstones_removed", "duration_ms", "paused_by", "pause_start_time")
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    BRANCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    PAUSE_END_TIME_FIELD_NUMBER: _ClassVar[int]
    MEASURE_QUEUE_FIELD_NUMBER: _ClassVar[int]
    COMPACTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    ROWS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    SEALED_TOKENS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_REMOVED_FIELD_NUMBER: _ClassVar[int]
    DURATION_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    PAUSE_START_TIME_FIELD_NUMBER: _ClassVar[int]
    branches: _containers.RepeatedCompositeFieldContainer[BranchStatus]
    branch_count: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaStatus]
    pause_end_time: _timestamp_pb2.Timestamp
    measure_queue: int
    compactions: int
    failures: int
    rows_read: int
    rows_written: int
    sealed_tokens_removed: int
    tombstones_removed: int
    duration_ms: int
    paused_by: str
    pause_start_time: _timestamp_pb2.Timestamp
    def __init__(self, branches: _Optional[_Iterable[_Union[BranchStatus, _Mapping]]] = ..., branch_count: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaStatus, _Mapping]]] = ..., pause_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., measure_queue: _Optional[int] = ..., compactions: _Optional[int] = ..., failures: _Optional[int] = ..., rows_read: _Optional[int] = ..., rows_written: _Optional[int] = ..., sealed_tokens_removed: _Optional[int] = ..., tombstones_removed: _Optional[int] = ..., duration_ms: _Optional[int] = ..., paused_by: _Optional[str] = ..., pause_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class BranchStatus(_message.Message):
    __slots__ = ("repository_id", "branch_id", "rows", "tombstones", "size_bytes", "sealed_tokens", "since_time", "listing_amplification", "state", "reason")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SEALED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SINCE_TIME_FIELD_NUMBER: _ClassVar[int]
    LISTING_AMPLIFICATION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    rows: int
    tombstones: int
    size_bytes: int
    sealed_tokens: int
    since_time: _timestamp_pb2.Timestamp
    listing_amplification: float
    state: BranchState
    reason: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., rows: _Optional[int] = ..., tombstones: _Optional[int] = ..., size_bytes: _Optional[int] = ..., sealed_tokens: _Optional[int] = ..., since_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., listing_amplification: _Optional[float] = ..., state: _Optional[_Union[BranchState, str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ReplicaStatus(_message.Message):
    __slots__ = ("address", "is_connected", "changes", "gaps", "error")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    IS_CONNECTED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    address: str
    is_connected: bool
    changes: int
    gaps: int
    error: str
    def __init__(self, address: _Optional[str] = ..., is_connected: _Optional[bool] = ..., changes: _Optional[int] = ..., gaps: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class PauseCompactorRequest(_message.Message):
    __slots__ = ("duration_s", "until_resumed")
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    UNTIL_RESUMED_FIELD_NUMBER: _ClassVar[int]
    duration_s: int
    until_resumed: bool
    def __init__(self, duration_s: _Optional[int] = ..., until_resumed: _Optional[bool] = ...) -> None: ...

class PauseCompactorResponse(_message.Message):
    __slots__ = ("pause_end_time",)
    PAUSE_END_TIME_FIELD_NUMBER: _ClassVar[int]
    pause_end_time: _timestamp_pb2.Timestamp
    def __init__(self, pause_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ResumeCompactorRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ResumeCompactorResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
