from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import repository_service_pb2 as _repository_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ReadDumpRequest(_message.Message):
    __slots__ = ("repository_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ReadDumpResponse(_message.Message):
    __slots__ = ("lines", "next_page_token", "repository")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    repository: _repository_service_pb2.Repository
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., repository: _Optional[_Union[_repository_service_pb2.Repository, _Mapping]] = ...) -> None: ...

class BeginRestoreRequest(_message.Message):
    __slots__ = ("repository_id", "storage_namespace", "default_branch_id", "restore_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    storage_namespace: str
    default_branch_id: str
    restore_id: str
    def __init__(self, repository_id: _Optional[str] = ..., storage_namespace: _Optional[str] = ..., default_branch_id: _Optional[str] = ..., restore_id: _Optional[str] = ...) -> None: ...

class BeginRestoreResponse(_message.Message):
    __slots__ = ("repository",)
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    repository: _repository_service_pb2.Repository
    def __init__(self, repository: _Optional[_Union[_repository_service_pb2.Repository, _Mapping]] = ...) -> None: ...

class ReadNamespaceRequest(_message.Message):
    __slots__ = ("repository_id", "restore_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    restore_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., restore_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ReadNamespaceResponse(_message.Message):
    __slots__ = ("lines", "next_page_token", "damaged_paths")
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_PATHS_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    damaged_paths: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lines: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., damaged_paths: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreRecordsRequest(_message.Message):
    __slots__ = ("repository_id", "restore_id", "lines")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    restore_id: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repository_id: _Optional[str] = ..., restore_id: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ...) -> None: ...

class RestoreRecordsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishRestoreRequest(_message.Message):
    __slots__ = ("repository_id", "restore_id", "instance_uid")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    restore_id: str
    instance_uid: str
    def __init__(self, repository_id: _Optional[str] = ..., restore_id: _Optional[str] = ..., instance_uid: _Optional[str] = ...) -> None: ...

class FinishRestoreResponse(_message.Message):
    __slots__ = ("repository",)
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    repository: _repository_service_pb2.Repository
    def __init__(self, repository: _Optional[_Union[_repository_service_pb2.Repository, _Mapping]] = ...) -> None: ...
