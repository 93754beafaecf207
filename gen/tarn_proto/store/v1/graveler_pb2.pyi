from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RefKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REF_KIND_UNSPECIFIED: _ClassVar[RefKind]
    REF_KIND_BRANCH: _ClassVar[RefKind]
    REF_KIND_TAG: _ClassVar[RefKind]

class UploadState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UPLOAD_STATE_UNSPECIFIED: _ClassVar[UploadState]
    UPLOAD_STATE_OPEN: _ClassVar[UploadState]
    UPLOAD_STATE_COMPLETING: _ClassVar[UploadState]
    UPLOAD_STATE_COMPLETED: _ClassVar[UploadState]
    UPLOAD_STATE_ABORTED: _ClassVar[UploadState]
REF_KIND_UNSPECIFIED: RefKind
REF_KIND_BRANCH: RefKind
REF_KIND_TAG: RefKind
UPLOAD_STATE_UNSPECIFIED: UploadState
UPLOAD_STATE_OPEN: UploadState
UPLOAD_STATE_COMPLETING: UploadState
UPLOAD_STATE_COMPLETED: UploadState
UPLOAD_STATE_ABORTED: UploadState

class RepositoryRecord(_message.Message):
    __slots__ = ("repository_id", "instance_uid", "storage_namespace", "default_branch", "create_time_us", "is_deleted", "is_pending", "restore_id", "view_repository_id", "view_instance_uid", "view_ref", "view_generation", "view_change_id", "cors_json", "view_is_public_read", "client_namespace")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_BRANCH_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESTORE_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    VIEW_INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    VIEW_REF_FIELD_NUMBER: _ClassVar[int]
    VIEW_GENERATION_FIELD_NUMBER: _ClassVar[int]
    VIEW_CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    CORS_JSON_FIELD_NUMBER: _ClassVar[int]
    VIEW_IS_PUBLIC_READ_FIELD_NUMBER: _ClassVar[int]
    CLIENT_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    instance_uid: str
    storage_namespace: str
    default_branch: str
    create_time_us: int
    is_deleted: bool
    is_pending: bool
    restore_id: str
    view_repository_id: str
    view_instance_uid: str
    view_ref: str
    view_generation: int
    view_change_id: bytes
    cors_json: str
    view_is_public_read: bool
    client_namespace: str
    def __init__(self, repository_id: _Optional[str] = ..., instance_uid: _Optional[str] = ..., storage_namespace: _Optional[str] = ..., default_branch: _Optional[str] = ..., create_time_us: _Optional[int] = ..., is_deleted: _Optional[bool] = ..., is_pending: _Optional[bool] = ..., restore_id: _Optional[str] = ..., view_repository_id: _Optional[str] = ..., view_instance_uid: _Optional[str] = ..., view_ref: _Optional[str] = ..., view_generation: _Optional[int] = ..., view_change_id: _Optional[bytes] = ..., cors_json: _Optional[str] = ..., view_is_public_read: _Optional[bool] = ..., client_namespace: _Optional[str] = ...) -> None: ...

class NamespaceRecord(_message.Message):
    __slots__ = ("instance_uid", "repository_id", "is_final", "doom_time_us", "purge_after_us", "purge_begin_us", "purge_end_us", "purged_count", "purged_bytes")
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    IS_FINAL_FIELD_NUMBER: _ClassVar[int]
    DOOM_TIME_US_FIELD_NUMBER: _ClassVar[int]
    PURGE_AFTER_US_FIELD_NUMBER: _ClassVar[int]
    PURGE_BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    PURGE_END_US_FIELD_NUMBER: _ClassVar[int]
    PURGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PURGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    instance_uid: str
    repository_id: str
    is_final: bool
    doom_time_us: int
    purge_after_us: int
    purge_begin_us: int
    purge_end_us: int
    purged_count: int
    purged_bytes: int
    def __init__(self, instance_uid: _Optional[str] = ..., repository_id: _Optional[str] = ..., is_final: _Optional[bool] = ..., doom_time_us: _Optional[int] = ..., purge_after_us: _Optional[int] = ..., purge_begin_us: _Optional[int] = ..., purge_end_us: _Optional[int] = ..., purged_count: _Optional[int] = ..., purged_bytes: _Optional[int] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("token_id", "is_conditional", "buckets", "create_time_us")
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    IS_CONDITIONAL_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    token_id: str
    is_conditional: bool
    buckets: int
    create_time_us: int
    def __init__(self, token_id: _Optional[str] = ..., is_conditional: _Optional[bool] = ..., buckets: _Optional[int] = ..., create_time_us: _Optional[int] = ...) -> None: ...

class BranchRecord(_message.Message):
    __slots__ = ("incarnation", "staging", "sealed", "commit_id", "compacted_metarange_id", "compaction_start_time_us", "recent_op_ids", "outbox", "is_deleted", "create_time_us", "is_pending", "reset_count", "move_time_us", "head_sequence", "head_time_us", "compaction_end_time_us", "pins", "expiry")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    STAGING_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_START_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RECENT_OP_IDS_FIELD_NUMBER: _ClassVar[int]
    OUTBOX_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    RESET_COUNT_FIELD_NUMBER: _ClassVar[int]
    MOVE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    HEAD_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HEAD_TIME_US_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_END_TIME_US_FIELD_NUMBER: _ClassVar[int]
    PINS_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_FIELD_NUMBER: _ClassVar[int]
    incarnation: bytes
    staging: Token
    sealed: _containers.RepeatedCompositeFieldContainer[Token]
    commit_id: str
    compacted_metarange_id: str
    compaction_start_time_us: int
    recent_op_ids: _containers.RepeatedScalarFieldContainer[bytes]
    outbox: _containers.RepeatedScalarFieldContainer[bytes]
    is_deleted: bool
    create_time_us: int
    is_pending: bool
    reset_count: int
    move_time_us: int
    head_sequence: int
    head_time_us: int
    compaction_end_time_us: int
    pins: _containers.RepeatedCompositeFieldContainer[PinRecord]
    expiry: BranchExpiryRecord
    def __init__(self, incarnation: _Optional[bytes] = ..., staging: _Optional[_Union[Token, _Mapping]] = ..., sealed: _Optional[_Iterable[_Union[Token, _Mapping]]] = ..., commit_id: _Optional[str] = ..., compacted_metarange_id: _Optional[str] = ..., compaction_start_time_us: _Optional[int] = ..., recent_op_ids: _Optional[_Iterable[bytes]] = ..., outbox: _Optional[_Iterable[bytes]] = ..., is_deleted: _Optional[bool] = ..., create_time_us: _Optional[int] = ..., is_pending: _Optional[bool] = ..., reset_count: _Optional[int] = ..., move_time_us: _Optional[int] = ..., head_sequence: _Optional[int] = ..., head_time_us: _Optional[int] = ..., compaction_end_time_us: _Optional[int] = ..., pins: _Optional[_Iterable[_Union[PinRecord, _Mapping]]] = ..., expiry: _Optional[_Union[BranchExpiryRecord, _Mapping]] = ...) -> None: ...

class BranchExpiryRecord(_message.Message):
    __slots__ = ("set_time_us", "expire_time_us", "delete_time_us")
    SET_TIME_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    DELETE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    set_time_us: int
    expire_time_us: int
    delete_time_us: int
    def __init__(self, set_time_us: _Optional[int] = ..., expire_time_us: _Optional[int] = ..., delete_time_us: _Optional[int] = ...) -> None: ...

class PinRecord(_message.Message):
    __slots__ = ("pin_id", "metarange_id")
    PIN_ID_FIELD_NUMBER: _ClassVar[int]
    METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    pin_id: bytes
    metarange_id: str
    def __init__(self, pin_id: _Optional[bytes] = ..., metarange_id: _Optional[str] = ...) -> None: ...

class HeadChangeRecord(_message.Message):
    __slots__ = ("entry_id", "sequence", "time_us", "operation", "user_id", "incarnation", "old_commit_id", "new_commit_id", "old_since_us")
    ENTRY_ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    OLD_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    NEW_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    OLD_SINCE_US_FIELD_NUMBER: _ClassVar[int]
    entry_id: bytes
    sequence: int
    time_us: int
    operation: str
    user_id: str
    incarnation: bytes
    old_commit_id: str
    new_commit_id: str
    old_since_us: int
    def __init__(self, entry_id: _Optional[bytes] = ..., sequence: _Optional[int] = ..., time_us: _Optional[int] = ..., operation: _Optional[str] = ..., user_id: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., old_commit_id: _Optional[str] = ..., new_commit_id: _Optional[str] = ..., old_since_us: _Optional[int] = ...) -> None: ...

class TagRecord(_message.Message):
    __slots__ = ("commit_id", "create_time_us", "nonce", "is_pending")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    IS_PENDING_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    create_time_us: int
    nonce: bytes
    is_pending: bool
    def __init__(self, commit_id: _Optional[str] = ..., create_time_us: _Optional[int] = ..., nonce: _Optional[bytes] = ..., is_pending: _Optional[bool] = ...) -> None: ...

class RefNameRecord(_message.Message):
    __slots__ = ("kind", "nonce", "create_time_us")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    kind: RefKind
    nonce: bytes
    create_time_us: int
    def __init__(self, kind: _Optional[_Union[RefKind, str]] = ..., nonce: _Optional[bytes] = ..., create_time_us: _Optional[int] = ...) -> None: ...

class CommitRecord(_message.Message):
    __slots__ = ("version", "parents", "metarange_id", "committer", "message", "create_time_us", "generation", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PARENTS_FIELD_NUMBER: _ClassVar[int]
    METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITTER_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    version: int
    parents: _containers.RepeatedScalarFieldContainer[str]
    metarange_id: str
    committer: str
    message: str
    create_time_us: int
    generation: int
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, version: _Optional[int] = ..., parents: _Optional[_Iterable[str]] = ..., metarange_id: _Optional[str] = ..., committer: _Optional[str] = ..., message: _Optional[str] = ..., create_time_us: _Optional[int] = ..., generation: _Optional[int] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UploadRecord(_message.Message):
    __slots__ = ("path", "branch_id", "address", "template", "create_time_us", "user_id", "state", "completing_op_id", "completing_time_us", "manifest_hash", "completed_entry", "checksum_algorithm", "is_full_object_checksum", "attempts", "link_until_us", "branch_incarnation", "linked_address")
    PATH_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    COMPLETING_OP_ID_FIELD_NUMBER: _ClassVar[int]
    COMPLETING_TIME_US_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_HASH_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_ENTRY_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    LINK_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    BRANCH_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LINKED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    path: str
    branch_id: str
    address: bytes
    template: bytes
    create_time_us: int
    user_id: str
    state: UploadState
    completing_op_id: bytes
    completing_time_us: int
    manifest_hash: bytes
    completed_entry: bytes
    checksum_algorithm: str
    is_full_object_checksum: bool
    attempts: _containers.RepeatedCompositeFieldContainer[StagingAttempt]
    link_until_us: int
    branch_incarnation: bytes
    linked_address: bytes
    def __init__(self, path: _Optional[str] = ..., branch_id: _Optional[str] = ..., address: _Optional[bytes] = ..., template: _Optional[bytes] = ..., create_time_us: _Optional[int] = ..., user_id: _Optional[str] = ..., state: _Optional[_Union[UploadState, str]] = ..., completing_op_id: _Optional[bytes] = ..., completing_time_us: _Optional[int] = ..., manifest_hash: _Optional[bytes] = ..., completed_entry: _Optional[bytes] = ..., checksum_algorithm: _Optional[str] = ..., is_full_object_checksum: _Optional[bool] = ..., attempts: _Optional[_Iterable[_Union[StagingAttempt, _Mapping]]] = ..., link_until_us: _Optional[int] = ..., branch_incarnation: _Optional[bytes] = ..., linked_address: _Optional[bytes] = ...) -> None: ...

class StagingAttempt(_message.Message):
    __slots__ = ("token", "is_comparison")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    IS_COMPARISON_FIELD_NUMBER: _ClassVar[int]
    token: Token
    is_comparison: bool
    def __init__(self, token: _Optional[_Union[Token, _Mapping]] = ..., is_comparison: _Optional[bool] = ...) -> None: ...

class UploadPartRecord(_message.Message):
    __slots__ = ("part_number", "attempt", "size_bytes", "md5", "create_time_us", "checksum")
    PART_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MD5_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    part_number: int
    attempt: str
    size_bytes: int
    md5: bytes
    create_time_us: int
    checksum: str
    def __init__(self, part_number: _Optional[int] = ..., attempt: _Optional[str] = ..., size_bytes: _Optional[int] = ..., md5: _Optional[bytes] = ..., create_time_us: _Optional[int] = ..., checksum: _Optional[str] = ...) -> None: ...

class CleanupRecord(_message.Message):
    __slots__ = ("partition", "is_register", "buckets", "drop_time_us", "drop_count", "owner", "reflog", "task", "branch", "journal")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    IS_REGISTER_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    DROP_TIME_US_FIELD_NUMBER: _ClassVar[int]
    DROP_COUNT_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    REFLOG_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    BRANCH_FIELD_NUMBER: _ClassVar[int]
    JOURNAL_FIELD_NUMBER: _ClassVar[int]
    partition: str
    is_register: bool
    buckets: int
    drop_time_us: int
    drop_count: int
    owner: TokenOwner
    reflog: ReflogOwner
    task: TaskOwner
    branch: BranchOwner
    journal: TokenOwner
    def __init__(self, partition: _Optional[str] = ..., is_register: _Optional[bool] = ..., buckets: _Optional[int] = ..., drop_time_us: _Optional[int] = ..., drop_count: _Optional[int] = ..., owner: _Optional[_Union[TokenOwner, _Mapping]] = ..., reflog: _Optional[_Union[ReflogOwner, _Mapping]] = ..., task: _Optional[_Union[TaskOwner, _Mapping]] = ..., branch: _Optional[_Union[BranchOwner, _Mapping]] = ..., journal: _Optional[_Union[TokenOwner, _Mapping]] = ...) -> None: ...

class BranchOwner(_message.Message):
    __slots__ = ("root", "branch_id", "repository_id")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    root: str
    branch_id: str
    repository_id: str
    def __init__(self, root: _Optional[str] = ..., branch_id: _Optional[str] = ..., repository_id: _Optional[str] = ...) -> None: ...

class TaskOwner(_message.Message):
    __slots__ = ("root", "task_id")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    root: str
    task_id: str
    def __init__(self, root: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class ReflogOwner(_message.Message):
    __slots__ = ("root", "branch_id")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    root: str
    branch_id: str
    def __init__(self, root: _Optional[str] = ..., branch_id: _Optional[str] = ...) -> None: ...

class TokenOwner(_message.Message):
    __slots__ = ("root", "branch_id", "token_id", "look_count", "storage_namespace")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    LOOK_COUNT_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    root: str
    branch_id: str
    token_id: str
    look_count: int
    storage_namespace: str
    def __init__(self, root: _Optional[str] = ..., branch_id: _Optional[str] = ..., token_id: _Optional[str] = ..., look_count: _Optional[int] = ..., storage_namespace: _Optional[str] = ...) -> None: ...
