import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import branch_service_pb2 as _branch_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HeadOperation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    HEAD_OPERATION_UNSPECIFIED: _ClassVar[HeadOperation]
    HEAD_OPERATION_CREATE: _ClassVar[HeadOperation]
    HEAD_OPERATION_COMMIT: _ClassVar[HeadOperation]
    HEAD_OPERATION_MERGE: _ClassVar[HeadOperation]
    HEAD_OPERATION_REVERT: _ClassVar[HeadOperation]
    HEAD_OPERATION_CHERRY_PICK: _ClassVar[HeadOperation]
    HEAD_OPERATION_MOVE: _ClassVar[HeadOperation]
    HEAD_OPERATION_DELETE: _ClassVar[HeadOperation]
    HEAD_OPERATION_RESTORE: _ClassVar[HeadOperation]
HEAD_OPERATION_UNSPECIFIED: HeadOperation
HEAD_OPERATION_CREATE: HeadOperation
HEAD_OPERATION_COMMIT: HeadOperation
HEAD_OPERATION_MERGE: HeadOperation
HEAD_OPERATION_REVERT: HeadOperation
HEAD_OPERATION_CHERRY_PICK: HeadOperation
HEAD_OPERATION_MOVE: HeadOperation
HEAD_OPERATION_DELETE: HeadOperation
HEAD_OPERATION_RESTORE: HeadOperation

class HeadChange(_message.Message):
    __slots__ = ("time", "operation", "user_id", "old_commit_id", "new_commit_id", "incarnation")
    TIME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    OLD_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    time: _timestamp_pb2.Timestamp
    operation: HeadOperation
    user_id: str
    old_commit_id: str
    new_commit_id: str
    incarnation: bytes
    def __init__(self, time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., operation: _Optional[_Union[HeadOperation, str]] = ..., user_id: _Optional[str] = ..., old_commit_id: _Optional[str] = ..., new_commit_id: _Optional[str] = ..., incarnation: _Optional[bytes] = ...) -> None: ...

class ListReflogRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListReflogResponse(_message.Message):
    __slots__ = ("entries", "next_page_token")
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[HeadChange]
    next_page_token: str
    def __init__(self, entries: _Optional[_Iterable[_Union[HeadChange, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListDeletedBranchesRequest(_message.Message):
    __slots__ = ("repository_id", "page_size", "page_token", "prefix")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    page_size: int
    page_token: str
    prefix: str
    def __init__(self, repository_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ...) -> None: ...

class DeletedBranch(_message.Message):
    __slots__ = ("branch_id", "commit_id", "delete_time", "user_id")
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DELETE_TIME_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    branch_id: str
    commit_id: str
    delete_time: _timestamp_pb2.Timestamp
    user_id: str
    def __init__(self, branch_id: _Optional[str] = ..., commit_id: _Optional[str] = ..., delete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., user_id: _Optional[str] = ...) -> None: ...

class ListDeletedBranchesResponse(_message.Message):
    __slots__ = ("branches", "next_page_token")
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    branches: _containers.RepeatedCompositeFieldContainer[DeletedBranch]
    next_page_token: str
    def __init__(self, branches: _Optional[_Iterable[_Union[DeletedBranch, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class RestoreBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ...) -> None: ...

class RestoreBranchResponse(_message.Message):
    __slots__ = ("branch",)
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    branch: _branch_service_pb2.Branch
    def __init__(self, branch: _Optional[_Union[_branch_service_pb2.Branch, _Mapping]] = ...) -> None: ...
