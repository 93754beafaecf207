from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ChangeKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_KIND_UNSPECIFIED: _ClassVar[ChangeKind]
    CHANGE_KIND_WRITE: _ClassVar[ChangeKind]
    CHANGE_KIND_COMMIT: _ClassVar[ChangeKind]
    CHANGE_KIND_MERGE: _ClassVar[ChangeKind]
    CHANGE_KIND_DELETE: _ClassVar[ChangeKind]
    CHANGE_KIND_FORCE: _ClassVar[ChangeKind]

class StaleApprovals(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    STALE_APPROVALS_UNSPECIFIED: _ClassVar[StaleApprovals]
    STALE_APPROVALS_KEEP: _ClassVar[StaleApprovals]
    STALE_APPROVALS_IGNORE: _ClassVar[StaleApprovals]
    STALE_APPROVALS_DISMISS: _ClassVar[StaleApprovals]
CHANGE_KIND_UNSPECIFIED: ChangeKind
CHANGE_KIND_WRITE: ChangeKind
CHANGE_KIND_COMMIT: ChangeKind
CHANGE_KIND_MERGE: ChangeKind
CHANGE_KIND_DELETE: ChangeKind
CHANGE_KIND_FORCE: ChangeKind
STALE_APPROVALS_UNSPECIFIED: StaleApprovals
STALE_APPROVALS_KEEP: StaleApprovals
STALE_APPROVALS_IGNORE: StaleApprovals
STALE_APPROVALS_DISMISS: StaleApprovals

class Protection(_message.Message):
    __slots__ = ("pattern", "blocked", "exempt_user_ids", "exempt_roles", "review")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    EXEMPT_USER_IDS_FIELD_NUMBER: _ClassVar[int]
    EXEMPT_ROLES_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    blocked: _containers.RepeatedScalarFieldContainer[ChangeKind]
    exempt_user_ids: _containers.RepeatedScalarFieldContainer[str]
    exempt_roles: _containers.RepeatedScalarFieldContainer[str]
    review: ReviewRule
    def __init__(self, pattern: _Optional[str] = ..., blocked: _Optional[_Iterable[_Union[ChangeKind, str]]] = ..., exempt_user_ids: _Optional[_Iterable[str]] = ..., exempt_roles: _Optional[_Iterable[str]] = ..., review: _Optional[_Union[ReviewRule, _Mapping]] = ...) -> None: ...

class ReviewRule(_message.Message):
    __slots__ = ("approval_count", "author_counts", "stale", "covers_destination", "owners")
    APPROVAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_COUNTS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    COVERS_DESTINATION_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    approval_count: int
    author_counts: bool
    stale: StaleApprovals
    covers_destination: bool
    owners: _containers.RepeatedCompositeFieldContainer[OwnerRule]
    def __init__(self, approval_count: _Optional[int] = ..., author_counts: _Optional[bool] = ..., stale: _Optional[_Union[StaleApprovals, str]] = ..., covers_destination: _Optional[bool] = ..., owners: _Optional[_Iterable[_Union[OwnerRule, _Mapping]]] = ...) -> None: ...

class OwnerRule(_message.Message):
    __slots__ = ("prefix", "user_ids")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    USER_IDS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    user_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, prefix: _Optional[str] = ..., user_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class GetSettingsRequest(_message.Message):
    __slots__ = ("repository_id",)
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    def __init__(self, repository_id: _Optional[str] = ...) -> None: ...

class GetSettingsResponse(_message.Message):
    __slots__ = ("protections", "hidden_patterns", "read_only", "metadata", "etag", "default_branch_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTECTIONS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    protections: _containers.RepeatedCompositeFieldContainer[Protection]
    hidden_patterns: _containers.RepeatedScalarFieldContainer[str]
    read_only: bool
    metadata: _containers.ScalarMap[str, str]
    etag: str
    default_branch_id: str
    def __init__(self, protections: _Optional[_Iterable[_Union[Protection, _Mapping]]] = ..., hidden_patterns: _Optional[_Iterable[str]] = ..., read_only: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., etag: _Optional[str] = ..., default_branch_id: _Optional[str] = ...) -> None: ...

class SetRulesRequest(_message.Message):
    __slots__ = ("repository_id", "protections", "hidden_patterns", "if_match")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PROTECTIONS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_PATTERNS_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    protections: _containers.RepeatedCompositeFieldContainer[Protection]
    hidden_patterns: _containers.RepeatedScalarFieldContainer[str]
    if_match: str
    def __init__(self, repository_id: _Optional[str] = ..., protections: _Optional[_Iterable[_Union[Protection, _Mapping]]] = ..., hidden_patterns: _Optional[_Iterable[str]] = ..., if_match: _Optional[str] = ...) -> None: ...

class SetRulesResponse(_message.Message):
    __slots__ = ("etag",)
    ETAG_FIELD_NUMBER: _ClassVar[int]
    etag: str
    def __init__(self, etag: _Optional[str] = ...) -> None: ...

class SetReadOnlyRequest(_message.Message):
    __slots__ = ("repository_id", "read_only", "if_match")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    read_only: bool
    if_match: str
    def __init__(self, repository_id: _Optional[str] = ..., read_only: _Optional[bool] = ..., if_match: _Optional[str] = ...) -> None: ...

class SetReadOnlyResponse(_message.Message):
    __slots__ = ("etag",)
    ETAG_FIELD_NUMBER: _ClassVar[int]
    etag: str
    def __init__(self, etag: _Optional[str] = ...) -> None: ...

class SetMetadataRequest(_message.Message):
    __slots__ = ("repository_id", "metadata", "if_match")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    metadata: _containers.ScalarMap[str, str]
    if_match: str
    def __init__(self, repository_id: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., if_match: _Optional[str] = ...) -> None: ...

class SetMetadataResponse(_message.Message):
    __slots__ = ("etag",)
    ETAG_FIELD_NUMBER: _ClassVar[int]
    etag: str
    def __init__(self, etag: _Optional[str] = ...) -> None: ...

class SetDefaultBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "expected_branch_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    expected_branch_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., expected_branch_id: _Optional[str] = ...) -> None: ...

class SetDefaultBranchResponse(_message.Message):
    __slots__ = ("former_branch_id",)
    FORMER_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    former_branch_id: str
    def __init__(self, former_branch_id: _Optional[str] = ...) -> None: ...

class GetRetentionRequest(_message.Message):
    __slots__ = ("repository_id",)
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    def __init__(self, repository_id: _Optional[str] = ...) -> None: ...

class GetRetentionResponse(_message.Message):
    __slots__ = ("rules_json", "etag")
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    rules_json: str
    etag: str
    def __init__(self, rules_json: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class SetRetentionRequest(_message.Message):
    __slots__ = ("repository_id", "rules_json", "if_match")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    IF_MATCH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    rules_json: str
    if_match: str
    def __init__(self, repository_id: _Optional[str] = ..., rules_json: _Optional[str] = ..., if_match: _Optional[str] = ...) -> None: ...

class SetRetentionResponse(_message.Message):
    __slots__ = ("etag",)
    ETAG_FIELD_NUMBER: _ClassVar[int]
    etag: str
    def __init__(self, etag: _Optional[str] = ...) -> None: ...
