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

class WatchStagingRequest(_message.Message):
    __slots__ = ("start_id", "after_sequence", "wait_ms", "report")
    START_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    start_id: bytes
    after_sequence: int
    wait_ms: int
    report: CompactorReport
    def __init__(self, start_id: _Optional[bytes] = ..., after_sequence: _Optional[int] = ..., wait_ms: _Optional[int] = ..., report: _Optional[_Union[CompactorReport, _Mapping]] = ...) -> None: ...

class CompactorReport(_message.Message):
    __slots__ = ("compactor_id", "start_time", "branch_count", "due_count", "failing_count", "running", "compactions", "failures")
    COMPACTOR_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    BRANCH_COUNT_FIELD_NUMBER: _ClassVar[int]
    DUE_COUNT_FIELD_NUMBER: _ClassVar[int]
    FAILING_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    COMPACTIONS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    compactor_id: str
    start_time: _timestamp_pb2.Timestamp
    branch_count: int
    due_count: int
    failing_count: int
    running: _containers.RepeatedCompositeFieldContainer[CompactorWork]
    compactions: int
    failures: int
    def __init__(self, compactor_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., branch_count: _Optional[int] = ..., due_count: _Optional[int] = ..., failing_count: _Optional[int] = ..., running: _Optional[_Iterable[_Union[CompactorWork, _Mapping]]] = ..., compactions: _Optional[int] = ..., failures: _Optional[int] = ...) -> None: ...

class CompactorWork(_message.Message):
    __slots__ = ("repository_id", "branch_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ...) -> None: ...

class WatchStagingResponse(_message.Message):
    __slots__ = ("tokens", "sequence", "start_id", "is_incomplete")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    START_ID_FIELD_NUMBER: _ClassVar[int]
    IS_INCOMPLETE_FIELD_NUMBER: _ClassVar[int]
    tokens: _containers.RepeatedCompositeFieldContainer[StagedToken]
    sequence: int
    start_id: bytes
    is_incomplete: bool
    def __init__(self, tokens: _Optional[_Iterable[_Union[StagedToken, _Mapping]]] = ..., sequence: _Optional[int] = ..., start_id: _Optional[bytes] = ..., is_incomplete: _Optional[bool] = ...) -> None: ...

class StagedToken(_message.Message):
    __slots__ = ("repository_id", "branch_id", "token_id", "rows", "tombstones", "size_bytes", "listed_rows_read", "listed_rows_returned", "is_sealed", "is_removed", "is_committed")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    LISTED_ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    LISTED_ROWS_RETURNED_FIELD_NUMBER: _ClassVar[int]
    IS_SEALED_FIELD_NUMBER: _ClassVar[int]
    IS_REMOVED_FIELD_NUMBER: _ClassVar[int]
    IS_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    token_id: str
    rows: int
    tombstones: int
    size_bytes: int
    listed_rows_read: int
    listed_rows_returned: int
    is_sealed: bool
    is_removed: bool
    is_committed: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., token_id: _Optional[str] = ..., rows: _Optional[int] = ..., tombstones: _Optional[int] = ..., size_bytes: _Optional[int] = ..., listed_rows_read: _Optional[int] = ..., listed_rows_returned: _Optional[int] = ..., is_sealed: _Optional[bool] = ..., is_removed: _Optional[bool] = ..., is_committed: _Optional[bool] = ...) -> None: ...

class ListStagedBranchesRequest(_message.Message):
    __slots__ = ("after_repository_id", "after_branch_id", "page_size")
    AFTER_REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    after_repository_id: str
    after_branch_id: str
    page_size: int
    def __init__(self, after_repository_id: _Optional[str] = ..., after_branch_id: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListStagedBranchesResponse(_message.Message):
    __slots__ = ("branches", "next_repository_id", "next_branch_id")
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    branches: _containers.RepeatedCompositeFieldContainer[StagedBranch]
    next_repository_id: str
    next_branch_id: str
    def __init__(self, branches: _Optional[_Iterable[_Union[StagedBranch, _Mapping]]] = ..., next_repository_id: _Optional[str] = ..., next_branch_id: _Optional[str] = ...) -> None: ...

class StagedBranch(_message.Message):
    __slots__ = ("repository_id", "branch_id", "sealed_tokens")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    SEALED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    sealed_tokens: int
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., sealed_tokens: _Optional[int] = ...) -> None: ...

class MeasureStagingRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "rows_max")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    rows_max: int
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., rows_max: _Optional[int] = ...) -> None: ...

class MeasureStagingResponse(_message.Message):
    __slots__ = ("token_ids", "rows", "tombstones", "size_bytes", "is_truncated", "age_ms")
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    token_ids: _containers.RepeatedScalarFieldContainer[str]
    rows: int
    tombstones: int
    size_bytes: int
    is_truncated: bool
    age_ms: int
    def __init__(self, token_ids: _Optional[_Iterable[str]] = ..., rows: _Optional[int] = ..., tombstones: _Optional[int] = ..., size_bytes: _Optional[int] = ..., is_truncated: _Optional[bool] = ..., age_ms: _Optional[int] = ...) -> None: ...
