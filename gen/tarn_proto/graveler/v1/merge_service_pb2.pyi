from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import commit_service_pb2 as _commit_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MergeSide(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MERGE_SIDE_UNSPECIFIED: _ClassVar[MergeSide]
    MERGE_SIDE_SOURCE: _ClassVar[MergeSide]
    MERGE_SIDE_DESTINATION: _ClassVar[MergeSide]
MERGE_SIDE_UNSPECIFIED: MergeSide
MERGE_SIDE_SOURCE: MergeSide
MERGE_SIDE_DESTINATION: MergeSide

class ConflictChoice(_message.Message):
    __slots__ = ("pattern", "side")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    SIDE_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    side: MergeSide
    def __init__(self, pattern: _Optional[str] = ..., side: _Optional[_Union[MergeSide, str]] = ...) -> None: ...

class MergeCounts(_message.Message):
    __slots__ = ("added_count", "changed_count", "removed_count", "added_bytes", "removed_bytes")
    ADDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    REMOVED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ADDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    REMOVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    added_count: int
    changed_count: int
    removed_count: int
    added_bytes: int
    removed_bytes: int
    def __init__(self, added_count: _Optional[int] = ..., changed_count: _Optional[int] = ..., removed_count: _Optional[int] = ..., added_bytes: _Optional[int] = ..., removed_bytes: _Optional[int] = ...) -> None: ...

class MergeRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "source_ref", "message", "metadata", "choices", "default_side", "squash", "allow_empty", "fast_forward_only", "expected_commit_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REF_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SIDE_FIELD_NUMBER: _ClassVar[int]
    SQUASH_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    FAST_FORWARD_ONLY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    source_ref: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    choices: _containers.RepeatedCompositeFieldContainer[ConflictChoice]
    default_side: MergeSide
    squash: bool
    allow_empty: bool
    fast_forward_only: bool
    expected_commit_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., source_ref: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choices: _Optional[_Iterable[_Union[ConflictChoice, _Mapping]]] = ..., default_side: _Optional[_Union[MergeSide, str]] = ..., squash: _Optional[bool] = ..., allow_empty: _Optional[bool] = ..., fast_forward_only: _Optional[bool] = ..., expected_commit_id: _Optional[str] = ...) -> None: ...

class MergeResponse(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: _commit_service_pb2.Commit
    def __init__(self, commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ...) -> None: ...

class CreateMergeBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "destination_ref", "source_ref", "message", "metadata", "choices", "default_side", "allow_empty")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_REF_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REF_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SIDE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    destination_ref: str
    source_ref: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    choices: _containers.RepeatedCompositeFieldContainer[ConflictChoice]
    default_side: MergeSide
    allow_empty: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., destination_ref: _Optional[str] = ..., source_ref: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choices: _Optional[_Iterable[_Union[ConflictChoice, _Mapping]]] = ..., default_side: _Optional[_Union[MergeSide, str]] = ..., allow_empty: _Optional[bool] = ...) -> None: ...

class CreateMergeBranchResponse(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: _commit_service_pb2.Commit
    def __init__(self, commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ...) -> None: ...

class PreviewMergeRequest(_message.Message):
    __slots__ = ("repository_id", "destination_ref", "source_ref", "choices", "default_side", "after", "page_size")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_REF_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REF_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SIDE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    destination_ref: str
    source_ref: str
    choices: _containers.RepeatedCompositeFieldContainer[ConflictChoice]
    default_side: MergeSide
    after: str
    page_size: int
    def __init__(self, repository_id: _Optional[str] = ..., destination_ref: _Optional[str] = ..., source_ref: _Optional[str] = ..., choices: _Optional[_Iterable[_Union[ConflictChoice, _Mapping]]] = ..., default_side: _Optional[_Union[MergeSide, str]] = ..., after: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class MergeConflict(_message.Message):
    __slots__ = ("path", "base_entry", "source_entry", "destination_entry", "is_base_undecided")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BASE_ENTRY_FIELD_NUMBER: _ClassVar[int]
    SOURCE_ENTRY_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_ENTRY_FIELD_NUMBER: _ClassVar[int]
    IS_BASE_UNDECIDED_FIELD_NUMBER: _ClassVar[int]
    path: str
    base_entry: bytes
    source_entry: bytes
    destination_entry: bytes
    is_base_undecided: bool
    def __init__(self, path: _Optional[str] = ..., base_entry: _Optional[bytes] = ..., source_entry: _Optional[bytes] = ..., destination_entry: _Optional[bytes] = ..., is_base_undecided: _Optional[bool] = ...) -> None: ...

class PrefixCounts(_message.Message):
    __slots__ = ("prefix", "counts")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    counts: MergeCounts
    def __init__(self, prefix: _Optional[str] = ..., counts: _Optional[_Union[MergeCounts, _Mapping]] = ...) -> None: ...

class PreviewMergeResponse(_message.Message):
    __slots__ = ("destination_commit_id", "source_commit_id", "base_commit_id", "counts", "conflict_count", "conflicts", "next_after", "prefixes", "base_commit_ids")
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_COUNT_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_AFTER_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    BASE_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    destination_commit_id: str
    source_commit_id: str
    base_commit_id: str
    counts: MergeCounts
    conflict_count: int
    conflicts: _containers.RepeatedCompositeFieldContainer[MergeConflict]
    next_after: str
    prefixes: _containers.RepeatedCompositeFieldContainer[PrefixCounts]
    base_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, destination_commit_id: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., base_commit_id: _Optional[str] = ..., counts: _Optional[_Union[MergeCounts, _Mapping]] = ..., conflict_count: _Optional[int] = ..., conflicts: _Optional[_Iterable[_Union[MergeConflict, _Mapping]]] = ..., next_after: _Optional[str] = ..., prefixes: _Optional[_Iterable[_Union[PrefixCounts, _Mapping]]] = ..., base_commit_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class PreviewPickRequest(_message.Message):
    __slots__ = ("repository_id", "destination_ref", "ref", "is_revert", "parent_number", "page_size")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_REF_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    IS_REVERT_FIELD_NUMBER: _ClassVar[int]
    PARENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    destination_ref: str
    ref: str
    is_revert: bool
    parent_number: int
    page_size: int
    def __init__(self, repository_id: _Optional[str] = ..., destination_ref: _Optional[str] = ..., ref: _Optional[str] = ..., is_revert: _Optional[bool] = ..., parent_number: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class PreviewPickResponse(_message.Message):
    __slots__ = ("preview",)
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    preview: PreviewMergeResponse
    def __init__(self, preview: _Optional[_Union[PreviewMergeResponse, _Mapping]] = ...) -> None: ...

class FindMergeBaseRequest(_message.Message):
    __slots__ = ("repository_id", "destination_ref", "source_ref")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_REF_FIELD_NUMBER: _ClassVar[int]
    SOURCE_REF_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    destination_ref: str
    source_ref: str
    def __init__(self, repository_id: _Optional[str] = ..., destination_ref: _Optional[str] = ..., source_ref: _Optional[str] = ...) -> None: ...

class FindMergeBaseResponse(_message.Message):
    __slots__ = ("destination_commit_id", "source_commit_id", "base_commit_ids")
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    BASE_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    destination_commit_id: str
    source_commit_id: str
    base_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, destination_commit_id: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., base_commit_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class RevertRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "ref", "parent_number", "message", "metadata", "choices", "default_side", "allow_empty", "since_ref", "squash", "expected_commit_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PARENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SIDE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    SINCE_REF_FIELD_NUMBER: _ClassVar[int]
    SQUASH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    ref: str
    parent_number: int
    message: str
    metadata: _containers.ScalarMap[str, str]
    choices: _containers.RepeatedCompositeFieldContainer[ConflictChoice]
    default_side: MergeSide
    allow_empty: bool
    since_ref: str
    squash: bool
    expected_commit_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., ref: _Optional[str] = ..., parent_number: _Optional[int] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choices: _Optional[_Iterable[_Union[ConflictChoice, _Mapping]]] = ..., default_side: _Optional[_Union[MergeSide, str]] = ..., allow_empty: _Optional[bool] = ..., since_ref: _Optional[str] = ..., squash: _Optional[bool] = ..., expected_commit_id: _Optional[str] = ...) -> None: ...

class RevertResponse(_message.Message):
    __slots__ = ("commit", "reverted_commit_ids")
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    REVERTED_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    commit: _commit_service_pb2.Commit
    reverted_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ..., reverted_commit_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class CherryPickRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "ref", "parent_number", "message", "metadata", "choices", "default_side", "allow_empty", "expected_commit_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PARENT_NUMBER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHOICES_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_SIDE_FIELD_NUMBER: _ClassVar[int]
    ALLOW_EMPTY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    ref: str
    parent_number: int
    message: str
    metadata: _containers.ScalarMap[str, str]
    choices: _containers.RepeatedCompositeFieldContainer[ConflictChoice]
    default_side: MergeSide
    allow_empty: bool
    expected_commit_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., ref: _Optional[str] = ..., parent_number: _Optional[int] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., choices: _Optional[_Iterable[_Union[ConflictChoice, _Mapping]]] = ..., default_side: _Optional[_Union[MergeSide, str]] = ..., allow_empty: _Optional[bool] = ..., expected_commit_id: _Optional[str] = ...) -> None: ...

class CherryPickResponse(_message.Message):
    __slots__ = ("commit",)
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    commit: _commit_service_pb2.Commit
    def __init__(self, commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ...) -> None: ...
