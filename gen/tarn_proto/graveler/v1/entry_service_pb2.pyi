import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import operation_pb2 as _operation_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperateRequest(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class OperateResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("header", "lookup", "stage", "unstage")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    UNSTAGE_FIELD_NUMBER: _ClassVar[int]
    header: _operation_pb2.OperationHeader
    lookup: Lookup
    stage: Stage
    unstage: Unstage
    def __init__(self, header: _Optional[_Union[_operation_pb2.OperationHeader, _Mapping]] = ..., lookup: _Optional[_Union[Lookup, _Mapping]] = ..., stage: _Optional[_Union[Stage, _Mapping]] = ..., unstage: _Optional[_Union[Unstage, _Mapping]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("operation_id", "error", "lookup", "stage", "unstage")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    UNSTAGE_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    error: _operation_pb2.OperationError
    lookup: LookupResult
    stage: StageResult
    unstage: UnstageResult
    def __init__(self, operation_id: _Optional[int] = ..., error: _Optional[_Union[_operation_pb2.OperationError, _Mapping]] = ..., lookup: _Optional[_Union[LookupResult, _Mapping]] = ..., stage: _Optional[_Union[StageResult, _Mapping]] = ..., unstage: _Optional[_Union[UnstageResult, _Mapping]] = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("repository_id", "ref", "path", "is_copy_source")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    IS_COPY_SOURCE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    path: str
    is_copy_source: bool
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., path: _Optional[str] = ..., is_copy_source: _Optional[bool] = ...) -> None: ...

class LookupResult(_message.Message):
    __slots__ = ("entry", "storage_namespace", "may_be_shared")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_SHARED_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    storage_namespace: str
    may_be_shared: bool
    def __init__(self, entry: _Optional[bytes] = ..., storage_namespace: _Optional[str] = ..., may_be_shared: _Optional[bool] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("repository_id", "instance_uid", "branch_id", "path", "entry", "condition", "is_new_address", "parts")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    instance_uid: str
    branch_id: str
    path: str
    entry: bytes
    condition: WriteCondition
    is_new_address: bool
    parts: bytes
    def __init__(self, repository_id: _Optional[str] = ..., instance_uid: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., entry: _Optional[bytes] = ..., condition: _Optional[_Union[WriteCondition, _Mapping]] = ..., is_new_address: _Optional[bool] = ..., parts: _Optional[bytes] = ...) -> None: ...

class WriteCondition(_message.Message):
    __slots__ = ("if_none_match", "if_match", "size_bytes", "mtime_seconds")
    IF_NONE_MATCH_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    if_none_match: bool
    if_match: str
    size_bytes: int
    mtime_seconds: int
    def __init__(self, if_none_match: _Optional[bool] = ..., if_match: _Optional[str] = ..., size_bytes: _Optional[int] = ..., mtime_seconds: _Optional[int] = ...) -> None: ...

class StageResult(_message.Message):
    __slots__ = ("is_repeat",)
    IS_REPEAT_FIELD_NUMBER: _ClassVar[int]
    is_repeat: bool
    def __init__(self, is_repeat: _Optional[bool] = ...) -> None: ...

class Unstage(_message.Message):
    __slots__ = ("repository_id", "branch_id", "path")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    path: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class UnstageResult(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListEntriesRequest(_message.Message):
    __slots__ = ("repository_id", "ref", "prefix", "delimiter", "after", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    DELIMITER_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    prefix: str
    delimiter: str
    after: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., prefix: _Optional[str] = ..., delimiter: _Optional[str] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListEntriesResponse(_message.Message):
    __slots__ = ("next_page_token", "storage_namespace", "paths", "packed_entries")
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PACKED_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    storage_namespace: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    packed_entries: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, next_page_token: _Optional[str] = ..., storage_namespace: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., packed_entries: _Optional[_Iterable[bytes]] = ...) -> None: ...

class UnstageEntriesRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "paths")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ...) -> None: ...

class UnstageEntriesResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[UnstageOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[UnstageOutcome, _Mapping]]] = ...) -> None: ...

class UnstageOutcome(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: _operation_pb2.OperationError
    def __init__(self, error: _Optional[_Union[_operation_pb2.OperationError, _Mapping]] = ...) -> None: ...

class FindErasedRequest(_message.Message):
    __slots__ = ("repository_id", "ref", "path", "address")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    path: str
    address: bytes
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., path: _Optional[str] = ..., address: _Optional[bytes] = ...) -> None: ...

class FindErasedResponse(_message.Message):
    __slots__ = ("plan_id", "erase_time")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    ERASE_TIME_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    erase_time: _timestamp_pb2.Timestamp
    def __init__(self, plan_id: _Optional[str] = ..., erase_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
