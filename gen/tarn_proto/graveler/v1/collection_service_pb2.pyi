import datetime

from google.protobuf import duration_pb2 as _duration_pb2
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

class CollectionPhase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COLLECTION_PHASE_UNSPECIFIED: _ClassVar[CollectionPhase]
    COLLECTION_PHASE_IDLE: _ClassVar[CollectionPhase]
    COLLECTION_PHASE_MARK: _ClassVar[CollectionPhase]
    COLLECTION_PHASE_SWEEP: _ClassVar[CollectionPhase]
COLLECTION_PHASE_UNSPECIFIED: CollectionPhase
COLLECTION_PHASE_IDLE: CollectionPhase
COLLECTION_PHASE_MARK: CollectionPhase
COLLECTION_PHASE_SWEEP: CollectionPhase

class Collection(_message.Message):
    __slots__ = ("repository_id", "phase", "run_id", "lease_end_time", "cutoff_time", "mark_run_id", "sweep_not_before_time", "hold_end_time", "fence_count", "is_batch_open", "last_mark", "last_sweep", "storage_namespace", "lease_ms", "is_erasure")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_TIME_FIELD_NUMBER: _ClassVar[int]
    CUTOFF_TIME_FIELD_NUMBER: _ClassVar[int]
    MARK_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    SWEEP_NOT_BEFORE_TIME_FIELD_NUMBER: _ClassVar[int]
    HOLD_END_TIME_FIELD_NUMBER: _ClassVar[int]
    FENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    IS_BATCH_OPEN_FIELD_NUMBER: _ClassVar[int]
    LAST_MARK_FIELD_NUMBER: _ClassVar[int]
    LAST_SWEEP_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    IS_ERASURE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    phase: CollectionPhase
    run_id: str
    lease_end_time: _timestamp_pb2.Timestamp
    cutoff_time: _timestamp_pb2.Timestamp
    mark_run_id: str
    sweep_not_before_time: _timestamp_pb2.Timestamp
    hold_end_time: _timestamp_pb2.Timestamp
    fence_count: int
    is_batch_open: bool
    last_mark: CollectionTotals
    last_sweep: CollectionTotals
    storage_namespace: str
    lease_ms: int
    is_erasure: bool
    def __init__(self, repository_id: _Optional[str] = ..., phase: _Optional[_Union[CollectionPhase, str]] = ..., run_id: _Optional[str] = ..., lease_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., cutoff_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., mark_run_id: _Optional[str] = ..., sweep_not_before_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., hold_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., fence_count: _Optional[int] = ..., is_batch_open: _Optional[bool] = ..., last_mark: _Optional[_Union[CollectionTotals, _Mapping]] = ..., last_sweep: _Optional[_Union[CollectionTotals, _Mapping]] = ..., storage_namespace: _Optional[str] = ..., lease_ms: _Optional[int] = ..., is_erasure: _Optional[bool] = ...) -> None: ...

class CollectionTotals(_message.Message):
    __slots__ = ("run_id", "begin_time", "end_time", "live_count", "live_bytes", "candidate_count", "candidate_bytes", "deleted_count", "deleted_bytes", "failed_count", "note")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELETED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    begin_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    live_count: int
    live_bytes: int
    candidate_count: int
    candidate_bytes: int
    deleted_count: int
    deleted_bytes: int
    failed_count: int
    note: str
    def __init__(self, run_id: _Optional[str] = ..., begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., live_count: _Optional[int] = ..., live_bytes: _Optional[int] = ..., candidate_count: _Optional[int] = ..., candidate_bytes: _Optional[int] = ..., deleted_count: _Optional[int] = ..., deleted_bytes: _Optional[int] = ..., failed_count: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class GetCollectionRequest(_message.Message):
    __slots__ = ("repository_id",)
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    def __init__(self, repository_id: _Optional[str] = ...) -> None: ...

class GetCollectionResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class BeginCollectionRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "phase", "mark_run_id", "is_erasure")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    MARK_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    IS_ERASURE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    phase: CollectionPhase
    mark_run_id: str
    is_erasure: bool
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., phase: _Optional[_Union[CollectionPhase, str]] = ..., mark_run_id: _Optional[str] = ..., is_erasure: _Optional[bool] = ...) -> None: ...

class BeginCollectionResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class RenewCollectionRequest(_message.Message):
    __slots__ = ("repository_id", "run_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class RenewCollectionResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class ListRootsRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListRootsResponse(_message.Message):
    __slots__ = ("addresses", "metarange_ids", "next_page_token", "stage", "emptied_metarange_ids", "keeping_metarange_ids", "keep_written_since_us", "read_addresses", "keeps_all_objects")
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    METARANGE_IDS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    EMPTIED_METARANGE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEEPING_METARANGE_IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_WRITTEN_SINCE_US_FIELD_NUMBER: _ClassVar[int]
    READ_ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    KEEPS_ALL_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    addresses: bytes
    metarange_ids: _containers.RepeatedScalarFieldContainer[str]
    next_page_token: str
    stage: str
    emptied_metarange_ids: _containers.RepeatedScalarFieldContainer[str]
    keeping_metarange_ids: _containers.RepeatedScalarFieldContainer[str]
    keep_written_since_us: int
    read_addresses: bytes
    keeps_all_objects: bool
    def __init__(self, addresses: _Optional[bytes] = ..., metarange_ids: _Optional[_Iterable[str]] = ..., next_page_token: _Optional[str] = ..., stage: _Optional[str] = ..., emptied_metarange_ids: _Optional[_Iterable[str]] = ..., keeping_metarange_ids: _Optional[_Iterable[str]] = ..., keep_written_since_us: _Optional[int] = ..., read_addresses: _Optional[bytes] = ..., keeps_all_objects: _Optional[bool] = ...) -> None: ...

class FindListingsInUseRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "metarange_ids")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    METARANGE_IDS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    metarange_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., metarange_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class FindListingsInUseResponse(_message.Message):
    __slots__ = ("metarange_ids",)
    METARANGE_IDS_FIELD_NUMBER: _ClassVar[int]
    metarange_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, metarange_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ListHistoryRequest(_message.Message):
    __slots__ = ("repository_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListHistoryResponse(_message.Message):
    __slots__ = ("heads", "protected_commit_ids", "commits", "next_page_token", "retention_json", "tags", "reads_known_since_us")
    HEADS_FIELD_NUMBER: _ClassVar[int]
    PROTECTED_COMMIT_IDS_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RETENTION_JSON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    READS_KNOWN_SINCE_US_FIELD_NUMBER: _ClassVar[int]
    heads: _containers.RepeatedCompositeFieldContainer[HistoryHead]
    protected_commit_ids: _containers.RepeatedScalarFieldContainer[str]
    commits: _containers.RepeatedCompositeFieldContainer[HistoryCommit]
    next_page_token: str
    retention_json: str
    tags: _containers.RepeatedCompositeFieldContainer[HistoryTag]
    reads_known_since_us: int
    def __init__(self, heads: _Optional[_Iterable[_Union[HistoryHead, _Mapping]]] = ..., protected_commit_ids: _Optional[_Iterable[str]] = ..., commits: _Optional[_Iterable[_Union[HistoryCommit, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., retention_json: _Optional[str] = ..., tags: _Optional[_Iterable[_Union[HistoryTag, _Mapping]]] = ..., reads_known_since_us: _Optional[int] = ...) -> None: ...

class HistoryTag(_message.Message):
    __slots__ = ("tag_id", "commit_id", "create_time_us", "nonce")
    TAG_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    tag_id: str
    commit_id: str
    create_time_us: int
    nonce: bytes
    def __init__(self, tag_id: _Optional[str] = ..., commit_id: _Optional[str] = ..., create_time_us: _Optional[int] = ..., nonce: _Optional[bytes] = ...) -> None: ...

class HistoryHead(_message.Message):
    __slots__ = ("branch_id", "commit_id", "compacted_metarange_id")
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    branch_id: str
    commit_id: str
    compacted_metarange_id: str
    def __init__(self, branch_id: _Optional[str] = ..., commit_id: _Optional[str] = ..., compacted_metarange_id: _Optional[str] = ...) -> None: ...

class HistoryCommit(_message.Message):
    __slots__ = ("commit_id", "parent_ids", "create_time_us", "generation", "metarange_id", "is_expired")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    PARENT_IDS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    IS_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    parent_ids: _containers.RepeatedScalarFieldContainer[str]
    create_time_us: int
    generation: int
    metarange_id: str
    is_expired: bool
    def __init__(self, commit_id: _Optional[str] = ..., parent_ids: _Optional[_Iterable[str]] = ..., create_time_us: _Optional[int] = ..., generation: _Optional[int] = ..., metarange_id: _Optional[str] = ..., is_expired: _Optional[bool] = ...) -> None: ...

class ExpireCommitsRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "commits")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    commits: _containers.RepeatedCompositeFieldContainer[ExpiringCommit]
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., commits: _Optional[_Iterable[_Union[ExpiringCommit, _Mapping]]] = ...) -> None: ...

class ExpiringCommit(_message.Message):
    __slots__ = ("commit_id", "rule")
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    commit_id: str
    rule: str
    def __init__(self, commit_id: _Optional[str] = ..., rule: _Optional[str] = ...) -> None: ...

class ExpireCommitsResponse(_message.Message):
    __slots__ = ("expired_count",)
    EXPIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    expired_count: int
    def __init__(self, expired_count: _Optional[int] = ...) -> None: ...

class ExpireTagsRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "tags")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    tags: _containers.RepeatedCompositeFieldContainer[ExpiringTag]
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., tags: _Optional[_Iterable[_Union[ExpiringTag, _Mapping]]] = ...) -> None: ...

class ExpiringTag(_message.Message):
    __slots__ = ("tag", "rule")
    TAG_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    tag: HistoryTag
    rule: str
    def __init__(self, tag: _Optional[_Union[HistoryTag, _Mapping]] = ..., rule: _Optional[str] = ...) -> None: ...

class ExpireTagsResponse(_message.Message):
    __slots__ = ("expired_count",)
    EXPIRED_COUNT_FIELD_NUMBER: _ClassVar[int]
    expired_count: int
    def __init__(self, expired_count: _Optional[int] = ...) -> None: ...

class BeginBatchRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "block_ids")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    block_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., block_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class BeginBatchResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class EndBatchRequest(_message.Message):
    __slots__ = ("repository_id", "run_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ...) -> None: ...

class EndBatchResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class EndCollectionRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "is_complete", "totals")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    IS_COMPLETE_FIELD_NUMBER: _ClassVar[int]
    TOTALS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    is_complete: bool
    totals: CollectionTotals
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., is_complete: _Optional[bool] = ..., totals: _Optional[_Union[CollectionTotals, _Mapping]] = ...) -> None: ...

class EndCollectionResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...

class HoldCollectionRequest(_message.Message):
    __slots__ = ("repository_id", "hold")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    HOLD_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    hold: _duration_pb2.Duration
    def __init__(self, repository_id: _Optional[str] = ..., hold: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class HoldCollectionResponse(_message.Message):
    __slots__ = ("collection",)
    COLLECTION_FIELD_NUMBER: _ClassVar[int]
    collection: Collection
    def __init__(self, collection: _Optional[_Union[Collection, _Mapping]] = ...) -> None: ...
