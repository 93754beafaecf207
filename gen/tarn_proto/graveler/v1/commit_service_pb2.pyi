import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DiffKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DIFF_KIND_UNSPECIFIED: _ClassVar[DiffKind]
    DIFF_KIND_ADDED: _ClassVar[DiffKind]
    DIFF_KIND_CHANGED: _ClassVar[DiffKind]
    DIFF_KIND_REMOVED: _ClassVar[DiffKind]
DIFF_KIND_UNSPECIFIED: DiffKind
DIFF_KIND_ADDED: DiffKind
DIFF_KIND_CHANGED: DiffKind
DIFF_KIND_REMOVED: DiffKind

class Commit(_message.Message):
    __slots__ = ("commit_id", "parent_ids", "metarange_id", "committer", "message", "create_time", "generation", "metadata", "expired_by", "author_time")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDS_FIELD_NUMBER: _ClassVar[int]
    METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_BY_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_TIME_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    parent_ids: _containers.RepeatedScalarFieldContainer[str]
    metarange_id: str
    committer: str
    message: str
    create_time: _timestamp_pb2.Timestamp
    generation: int
    metadata: _containers.ScalarMap[str, str]
    expired_by: str
    author_time: _timestamp_pb2.Timestamp
    def __init__(self, commit_id: _Optional[str] = ..., parent_ids: _Optional[_Iterable[str]] = ..., metarange_id: _Optional[str] = ..., committer: _Optional[str] = ..., message: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., generation: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ..., expired_by: _Optional[str] = ..., author_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateCommitRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "message", "metadata", "allow_empty", "author_time")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_TIME_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    allow_empty: bool
    author_time: _timestamp_pb2.Timestamp
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., allow_empty: _Optional[bool] = ..., author_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CreateCommitResponse(_message.Message):
    __slots__ = ("commit", "added_count", "changed_count", "removed_count")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ADDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    commit: Commit
    added_count: int
    changed_count: int
    removed_count: int
    def __init__(self, commit: _Optional[_Union[Commit, _Mapping]] = ..., added_count: _Optional[int] = ..., changed_count: _Optional[int] = ..., removed_count: _Optional[int] = ...) -> None: ...

class GetCommitRequest(_message.Message):
    __slots__ = ("repository_id", "ref")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ...) -> None: ...

class GetCommitResponse(_message.Message):
    __slots__ = ("commit", "shadowed_commit_id")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    SHADOWED_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    commit: Commit
    shadowed_commit_id: str
    def __init__(self, commit: _Optional[_Union[Commit, _Mapping]] = ..., shadowed_commit_id: _Optional[str] = ...) -> None: ...

class MeasureRefRequest(_message.Message):
    __slots__ = ("repository_id", "ref")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ...) -> None: ...

class MeasureRefResponse(_message.Message):
    __slots__ = ("commit_id", "object_count", "object_bytes")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    OBJECT_COUNT_FIELD_NUMBER: _ClassVar[int]
    OBJECT_BYTES_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    object_count: int
    object_bytes: int
    def __init__(self, commit_id: _Optional[str] = ..., object_count: _Optional[int] = ..., object_bytes: _Optional[int] = ...) -> None: ...

class ListCommitsRequest(_message.Message):
    __slots__ = ("repository_id", "ref", "page_size", "page_token", "first_parent", "exclude_ref", "symmetric", "since", "until", "committer", "paths", "prefixes")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FIRST_PARENT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_REF_FIELD_NUMBER: _ClassVar[int]
    SYMMETRIC_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    COMMITTER_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    page_size: int
    page_token: str
    first_parent: bool
    exclude_ref: str
    symmetric: bool
    since: _timestamp_pb2.Timestamp
    until: _timestamp_pb2.Timestamp
    committer: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    prefixes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., first_parent: _Optional[bool] = ..., exclude_ref: _Optional[str] = ..., symmetric: _Optional[bool] = ..., since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., until: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., committer: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., prefixes: _Optional[_Iterable[str]] = ...) -> None: ...

class ListCommitsResponse(_message.Message):
    __slots__ = ("commits", "next_page_token")
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    commits: _containers.RepeatedCompositeFieldContainer[Commit]
    next_page_token: str
    def __init__(self, commits: _Optional[_Iterable[_Union[Commit, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class AnnotatePathsRequest(_message.Message):
    __slots__ = ("repository_id", "ref", "prefix", "after", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    ref: str
    prefix: str
    after: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class AnnotatePathsResponse(_message.Message):
    __slots__ = ("paths", "commit_indexes", "is_final", "commits", "next_page_token")
    PATHS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEXES_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    paths: _containers.RepeatedScalarFieldContainer[str]
    commit_indexes: _containers.RepeatedScalarFieldContainer[int]
    is_final: _containers.RepeatedScalarFieldContainer[bool]
    commits: _containers.RepeatedCompositeFieldContainer[CommitSummary]
    next_page_token: str
    def __init__(self, paths: _Optional[_Iterable[str]] = ..., commit_indexes: _Optional[_Iterable[int]] = ..., is_final: _Optional[_Iterable[bool]] = ..., commits: _Optional[_Iterable[_Union[CommitSummary, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CommitSummary(_message.Message):
    __slots__ = ("commit_id", "committer", "create_time", "subject")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTER_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    committer: str
    create_time: _timestamp_pb2.Timestamp
    subject: str
    def __init__(self, commit_id: _Optional[str] = ..., committer: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., subject: _Optional[str] = ...) -> None: ...

class DiffRefsRequest(_message.Message):
    __slots__ = ("repository_id", "left_ref", "right_ref", "prefix", "after", "page_size", "page_token", "from_merge_base", "names_only")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    LEFT_REF_FIELD_NUMBER: _ClassVar[int]
    RIGHT_REF_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FROM_MERGE_BASE_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    left_ref: str
    right_ref: str
    prefix: str
    after: str
    page_size: int
    page_token: str
    from_merge_base: bool
    names_only: bool
    def __init__(self, repository_id: _Optional[str] = ..., left_ref: _Optional[str] = ..., right_ref: _Optional[str] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., from_merge_base: _Optional[bool] = ..., names_only: _Optional[bool] = ...) -> None: ...

class DiffRefsResponse(_message.Message):
    __slots__ = ("next_page_token", "paths", "left_entries", "right_entries", "kinds", "left_commit_id", "right_commit_id", "merge_base_commit_ids")
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    LEFT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RIGHT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    LEFT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    RIGHT_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_BASE_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    left_entries: _containers.RepeatedScalarFieldContainer[bytes]
    right_entries: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: _containers.RepeatedScalarFieldContainer[DiffKind]
    left_commit_id: str
    right_commit_id: str
    merge_base_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, next_page_token: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., left_entries: _Optional[_Iterable[bytes]] = ..., right_entries: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[_Iterable[_Union[DiffKind, str]]] = ..., left_commit_id: _Optional[str] = ..., right_commit_id: _Optional[str] = ..., merge_base_commit_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class DiffUncommittedRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "prefix", "after", "page_size", "page_token", "names_only")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    NAMES_ONLY_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    prefix: str
    after: str
    page_size: int
    page_token: str
    names_only: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., prefix: _Optional[str] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., names_only: _Optional[bool] = ...) -> None: ...

class DiffUncommittedResponse(_message.Message):
    __slots__ = ("next_page_token", "paths", "left_entries", "right_entries", "kinds", "commit_id")
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    LEFT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    RIGHT_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    next_page_token: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    left_entries: _containers.RepeatedScalarFieldContainer[bytes]
    right_entries: _containers.RepeatedScalarFieldContainer[bytes]
    kinds: _containers.RepeatedScalarFieldContainer[DiffKind]
    commit_id: str
    def __init__(self, next_page_token: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., left_entries: _Optional[_Iterable[bytes]] = ..., right_entries: _Optional[_Iterable[bytes]] = ..., kinds: _Optional[_Iterable[_Union[DiffKind, str]]] = ..., commit_id: _Optional[str] = ...) -> None: ...
