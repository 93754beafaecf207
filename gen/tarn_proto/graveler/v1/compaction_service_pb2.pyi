import datetime

from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import staging_event_service_pb2 as _staging_event_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CompactionOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    COMPACTION_OUTCOME_UNSPECIFIED: _ClassVar[CompactionOutcome]
    COMPACTION_OUTCOME_COMPACTED: _ClassVar[CompactionOutcome]
    COMPACTION_OUTCOME_NOTHING_TO_DO: _ClassVar[CompactionOutcome]
    COMPACTION_OUTCOME_SUPERSEDED: _ClassVar[CompactionOutcome]
    COMPACTION_OUTCOME_RUNNING: _ClassVar[CompactionOutcome]
COMPACTION_OUTCOME_UNSPECIFIED: CompactionOutcome
COMPACTION_OUTCOME_COMPACTED: CompactionOutcome
COMPACTION_OUTCOME_NOTHING_TO_DO: CompactionOutcome
COMPACTION_OUTCOME_SUPERSEDED: CompactionOutcome
COMPACTION_OUTCOME_RUNNING: CompactionOutcome

class ListCompactorsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListCompactorsResponse(_message.Message):
    __slots__ = ("compactors",)
    COMPACTORS_FIELD_NUMBER: _ClassVar[int]
    compactors: _containers.RepeatedCompositeFieldContainer[WatchingCompactor]
    def __init__(self, compactors: _Optional[_Iterable[_Union[WatchingCompactor, _Mapping]]] = ...) -> None: ...

class WatchingCompactor(_message.Message):
    __slots__ = ("report", "report_time")
    REPORT_FIELD_NUMBER: _ClassVar[int]
    REPORT_TIME_FIELD_NUMBER: _ClassVar[int]
    report: _staging_event_service_pb2.CompactorReport
    report_time: _timestamp_pb2.Timestamp
    def __init__(self, report: _Optional[_Union[_staging_event_service_pb2.CompactorReport, _Mapping]] = ..., report_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class CompactionPause(_message.Message):
    __slots__ = ("user_id", "start_time", "end_time")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    def __init__(self, user_id: _Optional[str] = ..., start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetCompactionPauseRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCompactionPauseResponse(_message.Message):
    __slots__ = ("pause",)
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    pause: CompactionPause
    def __init__(self, pause: _Optional[_Union[CompactionPause, _Mapping]] = ...) -> None: ...

class SetCompactionPauseRequest(_message.Message):
    __slots__ = ("duration_s", "resume")
    DURATION_S_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    duration_s: int
    resume: bool
    def __init__(self, duration_s: _Optional[int] = ..., resume: _Optional[bool] = ...) -> None: ...

class SetCompactionPauseResponse(_message.Message):
    __slots__ = ("pause",)
    PAUSE_FIELD_NUMBER: _ClassVar[int]
    pause: CompactionPause
    def __init__(self, pause: _Optional[_Union[CompactionPause, _Mapping]] = ...) -> None: ...

class CompactBranchRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "force", "is_background")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    FORCE_FIELD_NUMBER: _ClassVar[int]
    IS_BACKGROUND_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    force: bool
    is_background: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., force: _Optional[bool] = ..., is_background: _Optional[bool] = ...) -> None: ...

class CompactBranchResponse(_message.Message):
    __slots__ = ("outcome", "rows_read", "rows_written", "tombstones_removed", "tokens_taken", "duration", "compacted_metarange_id", "running_since")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    ROWS_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONES_REMOVED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_TAKEN_FIELD_NUMBER: _ClassVar[int]
    DURATION_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RUNNING_SINCE_FIELD_NUMBER: _ClassVar[int]
    outcome: CompactionOutcome
    rows_read: int
    rows_written: int
    tombstones_removed: int
    tokens_taken: int
    duration: _duration_pb2.Duration
    compacted_metarange_id: str
    running_since: _timestamp_pb2.Timestamp
    def __init__(self, outcome: _Optional[_Union[CompactionOutcome, str]] = ..., rows_read: _Optional[int] = ..., rows_written: _Optional[int] = ..., tombstones_removed: _Optional[int] = ..., tokens_taken: _Optional[int] = ..., duration: _Optional[_Union[datetime.timedelta, _duration_pb2.Duration, _Mapping]] = ..., compacted_metarange_id: _Optional[str] = ..., running_since: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetStagingStatisticsRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "rows_max")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    rows_max: int
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., rows_max: _Optional[int] = ...) -> None: ...

class GetStagingStatisticsResponse(_message.Message):
    __slots__ = ("sealed_token_count", "row_count", "tombstone_count", "size_bytes", "is_truncated", "oldest_write_time", "compacted_metarange_id", "compacted_row_count", "compaction_start_time", "last_compaction_time", "commit_id", "listed_rows_read", "listed_rows_returned")
    SEALED_TOKEN_COUNT_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOMBSTONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_WRITE_TIME_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_METARANGE_ID_FIELD_NUMBER: _ClassVar[int]
    COMPACTED_ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    COMPACTION_START_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_COMPACTION_TIME_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    LISTED_ROWS_READ_FIELD_NUMBER: _ClassVar[int]
    LISTED_ROWS_RETURNED_FIELD_NUMBER: _ClassVar[int]
    sealed_token_count: int
    row_count: int
    tombstone_count: int
    size_bytes: int
    is_truncated: bool
    oldest_write_time: _timestamp_pb2.Timestamp
    compacted_metarange_id: str
    compacted_row_count: int
    compaction_start_time: _timestamp_pb2.Timestamp
    last_compaction_time: _timestamp_pb2.Timestamp
    commit_id: str
    listed_rows_read: int
    listed_rows_returned: int
    def __init__(self, sealed_token_count: _Optional[int] = ..., row_count: _Optional[int] = ..., tombstone_count: _Optional[int] = ..., size_bytes: _Optional[int] = ..., is_truncated: _Optional[bool] = ..., oldest_write_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., compacted_metarange_id: _Optional[str] = ..., compacted_row_count: _Optional[int] = ..., compaction_start_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_compaction_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., commit_id: _Optional[str] = ..., listed_rows_read: _Optional[int] = ..., listed_rows_returned: _Optional[int] = ...) -> None: ...
