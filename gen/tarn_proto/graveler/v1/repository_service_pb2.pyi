import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Repository(_message.Message):
    __slots__ = ("repository_id", "instance_uid", "storage_namespace", "default_branch_id", "create_time", "client_namespace")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    instance_uid: str
    storage_namespace: str
    default_branch_id: str
    create_time: _timestamp_pb2.Timestamp
    client_namespace: str
    def __init__(self, repository_id: _Optional[str] = ..., instance_uid: _Optional[str] = ..., storage_namespace: _Optional[str] = ..., default_branch_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., client_namespace: _Optional[str] = ...) -> None: ...

class CreateRepositoryRequest(_message.Message):
    __slots__ = ("repository_id", "storage_namespace", "default_branch_id", "client_namespace")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    storage_namespace: str
    default_branch_id: str
    client_namespace: str
    def __init__(self, repository_id: _Optional[str] = ..., storage_namespace: _Optional[str] = ..., default_branch_id: _Optional[str] = ..., client_namespace: _Optional[str] = ...) -> None: ...

class CreateRepositoryResponse(_message.Message):
    __slots__ = ("repository",)
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ...) -> None: ...

class GetRepositoryRequest(_message.Message):
    __slots__ = ("repository_id",)
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    def __init__(self, repository_id: _Optional[str] = ...) -> None: ...

class GetRepositoryResponse(_message.Message):
    __slots__ = ("repository",)
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    repository: Repository
    def __init__(self, repository: _Optional[_Union[Repository, _Mapping]] = ...) -> None: ...

class ListRepositoriesRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix", "after")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    after: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ListRepositoriesResponse(_message.Message):
    __slots__ = ("repositories", "next_page_token")
    REPOSITORIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repositories: _containers.RepeatedCompositeFieldContainer[Repository]
    next_page_token: str
    def __init__(self, repositories: _Optional[_Iterable[_Union[Repository, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteRepositoryRequest(_message.Message):
    __slots__ = ("repository_id", "with_data", "grace")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    WITH_DATA_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    with_data: bool
    grace: _duration_pb2.Duration
    def __init__(self, repository_id: _Optional[str] = ..., with_data: _Optional[bool] = ..., grace: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class DeleteRepositoryResponse(_message.Message):
    __slots__ = ("purge_not_before_time",)
    PURGE_NOT_BEFORE_TIME_FIELD_NUMBER: _ClassVar[int]
    purge_not_before_time: _timestamp_pb2.Timestamp
    def __init__(self, purge_not_before_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
