from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import merge_service_pb2 as _merge_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FolderCounts(_message.Message):
    __slots__ = ("path", "is_prefix", "counts")
    PATH_FIELD_NUMBER: _ClassVar[int]
    IS_PREFIX_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    path: str
    is_prefix: bool
    counts: _merge_service_pb2.MergeCounts
    def __init__(self, path: _Optional[str] = ..., is_prefix: _Optional[bool] = ..., counts: _Optional[_Union[_merge_service_pb2.MergeCounts, _Mapping]] = ...) -> None: ...

class SummarizeDiffRequest(_message.Message):
    __slots__ = ("repository_id", "left_ref", "right_ref", "from_merge_base", "prefix", "delimiter", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEFT_REF_FIELD_NUMBER: _ClassVar[int]
    RIGHT_REF_FIELD_NUMBER: _ClassVar[int]
    FROM_MERGE_BASE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    DELIMITER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    left_ref: str
    right_ref: str
    from_merge_base: bool
    prefix: str
    delimiter: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., left_ref: _Optional[str] = ..., right_ref: _Optional[str] = ..., from_merge_base: _Optional[bool] = ..., prefix: _Optional[str] = ..., delimiter: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SummarizeDiffResponse(_message.Message):
    __slots__ = ("folders", "next_page_token", "counts", "left_commit_id", "right_commit_id", "merge_base_commit_ids")
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    LEFT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    RIGHT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_BASE_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    folders: _containers.RepeatedCompositeFieldContainer[FolderCounts]
    next_page_token: str
    counts: _merge_service_pb2.MergeCounts
    left_commit_id: str
    right_commit_id: str
    merge_base_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, folders: _Optional[_Iterable[_Union[FolderCounts, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., counts: _Optional[_Union[_merge_service_pb2.MergeCounts, _Mapping]] = ..., left_commit_id: _Optional[str] = ..., right_commit_id: _Optional[str] = ..., merge_base_commit_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class SummarizeUncommittedRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "prefix", "delimiter", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    DELIMITER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    prefix: str
    delimiter: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., prefix: _Optional[str] = ..., delimiter: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SummarizeUncommittedResponse(_message.Message):
    __slots__ = ("folders", "next_page_token", "counts", "commit_id")
    FOLDERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    folders: _containers.RepeatedCompositeFieldContainer[FolderCounts]
    next_page_token: str
    counts: _merge_service_pb2.MergeCounts
    commit_id: str
    def __init__(self, folders: _Optional[_Iterable[_Union[FolderCounts, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., counts: _Optional[_Union[_merge_service_pb2.MergeCounts, _Mapping]] = ..., commit_id: _Optional[str] = ...) -> None: ...
