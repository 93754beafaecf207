import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BranchExpiryState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BRANCH_EXPIRY_STATE_UNSPECIFIED: _ClassVar[BranchExpiryState]
    BRANCH_EXPIRY_STATE_ACTIVE: _ClassVar[BranchExpiryState]
    BRANCH_EXPIRY_STATE_SOON: _ClassVar[BranchExpiryState]
    BRANCH_EXPIRY_STATE_EXPIRED: _ClassVar[BranchExpiryState]
BRANCH_EXPIRY_STATE_UNSPECIFIED: BranchExpiryState
BRANCH_EXPIRY_STATE_ACTIVE: BranchExpiryState
BRANCH_EXPIRY_STATE_SOON: BranchExpiryState
BRANCH_EXPIRY_STATE_EXPIRED: BranchExpiryState

class Branch(_message.Message):
    __slots__ = ("branch_id", "commit_id", "create_time", "expiry")
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    branch_id: str
    commit_id: str
    create_time: _timestamp_pb2.Timestamp
    expiry: BranchExpiry
    def __init__(self, branch_id: _Optional[str] = ..., commit_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expiry: _Optional[_Union[BranchExpiry, _Mapping]] = ...) -> None: ...

class BranchExpiry(_message.Message):
    __slots__ = ("expire_time", "delete_time", "state")
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    DELETE_TIME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    expire_time: _timestamp_pb2.Timestamp
    delete_time: _timestamp_pb2.Timestamp
    state: BranchExpiryState
    def __init__(self, expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., delete_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., state: _Optional[_Union[BranchExpiryState, str]] = ...) -> None: ...

class CreateBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "source_ref", "time_to_live")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REF_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_LIVE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    source_ref: str
    time_to_live: _duration_pb2.Duration
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., source_ref: _Optional[str] = ..., time_to_live: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class CreateBranchResponse(_message.Message):
    __slots__ = ("branch",)
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    branch: Branch
    def __init__(self, branch: _Optional[_Union[Branch, _Mapping]] = ...) -> None: ...

class GetBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ...) -> None: ...

class GetBranchResponse(_message.Message):
    __slots__ = ("branch",)
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    branch: Branch
    def __init__(self, branch: _Optional[_Union[Branch, _Mapping]] = ...) -> None: ...

class ListBranchesRequest(_message.Message):
    __slots__ = ("repository_id", "page_size", "page_token", "prefix", "include_hidden", "after")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    page_size: int
    page_token: str
    prefix: str
    include_hidden: bool
    after: str
    def __init__(self, repository_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., include_hidden: _Optional[bool] = ..., after: _Optional[str] = ...) -> None: ...

class ListBranchesResponse(_message.Message):
    __slots__ = ("branches", "next_page_token")
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    branches: _containers.RepeatedCompositeFieldContainer[Branch]
    next_page_token: str
    def __init__(self, branches: _Optional[_Iterable[_Union[Branch, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ...) -> None: ...

class DeleteBranchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetBranchExpiryRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "time_to_live")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_TO_LIVE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    time_to_live: _duration_pb2.Duration
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., time_to_live: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SetBranchExpiryResponse(_message.Message):
    __slots__ = ("branch",)
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    branch: Branch
    def __init__(self, branch: _Optional[_Union[Branch, _Mapping]] = ...) -> None: ...

class ResetBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "prefix", "path")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    prefix: str
    path: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., prefix: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class ResetBranchResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MoveBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "target_ref", "expected_commit_id", "force")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TARGET_REF_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    target_ref: str
    expected_commit_id: str
    force: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., target_ref: _Optional[str] = ..., expected_commit_id: _Optional[str] = ..., force: _Optional[bool] = ...) -> None: ...

class MoveBranchResponse(_message.Message):
    __slots__ = ("branch",)
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    branch: Branch
    def __init__(self, branch: _Optional[_Union[Branch, _Mapping]] = ...) -> None: ...
