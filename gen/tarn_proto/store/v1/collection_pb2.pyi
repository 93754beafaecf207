from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CollectionRecord(_message.Message):
    __slots__ = ("phase", "run_id", "begin_us", "lease_until_us", "cutoff_us", "mark_run_id", "mark_end_us", "mark_cutoff_us", "hold_until_us", "fence_count", "batch_until_us", "batch", "last_mark", "last_sweep", "sweep_count", "erase_run_id")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    CUTOFF_US_FIELD_NUMBER: _ClassVar[int]
    MARK_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    MARK_END_US_FIELD_NUMBER: _ClassVar[int]
    MARK_CUTOFF_US_FIELD_NUMBER: _ClassVar[int]
    HOLD_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    FENCE_COUNT_FIELD_NUMBER: _ClassVar[int]
    BATCH_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    LAST_MARK_FIELD_NUMBER: _ClassVar[int]
    LAST_SWEEP_FIELD_NUMBER: _ClassVar[int]
    SWEEP_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERASE_RUN_ID_FIELD_NUMBER: _ClassVar[int]
    phase: str
    run_id: str
    begin_us: int
    lease_until_us: int
    cutoff_us: int
    mark_run_id: str
    mark_end_us: int
    mark_cutoff_us: int
    hold_until_us: int
    fence_count: int
    batch_until_us: int
    batch: bytes
    last_mark: CollectionTotalsRecord
    last_sweep: CollectionTotalsRecord
    sweep_count: int
    erase_run_id: str
    def __init__(self, phase: _Optional[str] = ..., run_id: _Optional[str] = ..., begin_us: _Optional[int] = ..., lease_until_us: _Optional[int] = ..., cutoff_us: _Optional[int] = ..., mark_run_id: _Optional[str] = ..., mark_end_us: _Optional[int] = ..., mark_cutoff_us: _Optional[int] = ..., hold_until_us: _Optional[int] = ..., fence_count: _Optional[int] = ..., batch_until_us: _Optional[int] = ..., batch: _Optional[bytes] = ..., last_mark: _Optional[_Union[CollectionTotalsRecord, _Mapping]] = ..., last_sweep: _Optional[_Union[CollectionTotalsRecord, _Mapping]] = ..., sweep_count: _Optional[int] = ..., erase_run_id: _Optional[str] = ...) -> None: ...

class CollectionTotalsRecord(_message.Message):
    __slots__ = ("run_id", "begin_us", "end_us", "live_count", "live_bytes", "candidate_count", "candidate_bytes", "deleted_count", "deleted_bytes", "failed_count", "note")
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BEGIN_US_FIELD_NUMBER: _ClassVar[int]
    END_US_FIELD_NUMBER: _ClassVar[int]
    LIVE_COUNT_FIELD_NUMBER: _ClassVar[int]
    LIVE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELETED_COUNT_FIELD_NUMBER: _ClassVar[int]
    DELETED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILED_COUNT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    run_id: str
    begin_us: int
    end_us: int
    live_count: int
    live_bytes: int
    candidate_count: int
    candidate_bytes: int
    deleted_count: int
    deleted_bytes: int
    failed_count: int
    note: str
    def __init__(self, run_id: _Optional[str] = ..., begin_us: _Optional[int] = ..., end_us: _Optional[int] = ..., live_count: _Optional[int] = ..., live_bytes: _Optional[int] = ..., candidate_count: _Optional[int] = ..., candidate_bytes: _Optional[int] = ..., deleted_count: _Optional[int] = ..., deleted_bytes: _Optional[int] = ..., failed_count: _Optional[int] = ..., note: _Optional[str] = ...) -> None: ...

class ExpiredCommitRecord(_message.Message):
    __slots__ = ("expire_time_us", "rule")
    EXPIRE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    expire_time_us: int
    rule: str
    def __init__(self, expire_time_us: _Optional[int] = ..., rule: _Optional[str] = ...) -> None: ...

class ErasedAddressRecord(_message.Message):
    __slots__ = ("plan_id", "erase_time_us")
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    ERASE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    plan_id: str
    erase_time_us: int
    def __init__(self, plan_id: _Optional[str] = ..., erase_time_us: _Optional[int] = ...) -> None: ...
