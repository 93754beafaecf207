from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SettingsRecord(_message.Message):
    __slots__ = ("protections", "hidden", "is_read_only", "metadata", "change_id", "change_time_us", "retention")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROTECTIONS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    IS_READ_ONLY_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    protections: _containers.RepeatedCompositeFieldContainer[ProtectionRecord]
    hidden: _containers.RepeatedScalarFieldContainer[str]
    is_read_only: bool
    metadata: _containers.ScalarMap[str, str]
    change_id: bytes
    change_time_us: int
    retention: str
    def __init__(self, protections: _Optional[_Iterable[_Union[ProtectionRecord, _Mapping]]] = ..., hidden: _Optional[_Iterable[str]] = ..., is_read_only: _Optional[bool] = ..., metadata: _Optional[_Mapping[str, str]] = ..., change_id: _Optional[bytes] = ..., change_time_us: _Optional[int] = ..., retention: _Optional[str] = ...) -> None: ...

class ProtectionRecord(_message.Message):
    __slots__ = ("pattern", "blocked", "exempt_users", "exempt_roles", "review")
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    EXEMPT_USERS_FIELD_NUMBER: _ClassVar[int]
    EXEMPT_ROLES_FIELD_NUMBER: _ClassVar[int]
    REVIEW_FIELD_NUMBER: _ClassVar[int]
    pattern: str
    blocked: _containers.RepeatedScalarFieldContainer[str]
    exempt_users: _containers.RepeatedCompositeFieldContainer[ExemptUserRecord]
    exempt_roles: _containers.RepeatedScalarFieldContainer[str]
    review: ReviewRuleRecord
    def __init__(self, pattern: _Optional[str] = ..., blocked: _Optional[_Iterable[str]] = ..., exempt_users: _Optional[_Iterable[_Union[ExemptUserRecord, _Mapping]]] = ..., exempt_roles: _Optional[_Iterable[str]] = ..., review: _Optional[_Union[ReviewRuleRecord, _Mapping]] = ...) -> None: ...

class ReviewRuleRecord(_message.Message):
    __slots__ = ("approval_count", "author_counts", "stale", "covers_destination", "owners")
    APPROVAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_COUNTS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    COVERS_DESTINATION_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    approval_count: int
    author_counts: bool
    stale: str
    covers_destination: bool
    owners: _containers.RepeatedCompositeFieldContainer[OwnerRuleRecord]
    def __init__(self, approval_count: _Optional[int] = ..., author_counts: _Optional[bool] = ..., stale: _Optional[str] = ..., covers_destination: _Optional[bool] = ..., owners: _Optional[_Iterable[_Union[OwnerRuleRecord, _Mapping]]] = ...) -> None: ...

class OwnerRuleRecord(_message.Message):
    __slots__ = ("prefix", "users")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    USERS_FIELD_NUMBER: _ClassVar[int]
    prefix: str
    users: _containers.RepeatedCompositeFieldContainer[ExemptUserRecord]
    def __init__(self, prefix: _Optional[str] = ..., users: _Optional[_Iterable[_Union[ExemptUserRecord, _Mapping]]] = ...) -> None: ...

class ExemptUserRecord(_message.Message):
    __slots__ = ("user_id", "user_uid")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    user_uid: bytes
    def __init__(self, user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ...) -> None: ...
