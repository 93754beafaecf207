from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PullRequestRecord(_message.Message):
    __slots__ = ("number", "state", "author_id", "author_uid", "source", "destination", "title", "description", "create_time_us", "update_time_us", "end_time_us", "create_id", "change_id", "reviews", "event_count", "text_bytes", "merge_id", "merge_from_commit_id", "merge_commit_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_ID_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_UID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    END_TIME_US_FIELD_NUMBER: _ClassVar[int]
    CREATE_ID_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    TEXT_BYTES_FIELD_NUMBER: _ClassVar[int]
    MERGE_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_FROM_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    state: str
    author_id: str
    author_uid: bytes
    source: PullBranchRecord
    destination: PullBranchRecord
    title: str
    description: str
    create_time_us: int
    update_time_us: int
    end_time_us: int
    create_id: bytes
    change_id: bytes
    reviews: _containers.RepeatedCompositeFieldContainer[PullReviewRecord]
    event_count: int
    text_bytes: int
    merge_id: bytes
    merge_from_commit_id: str
    merge_commit_id: str
    def __init__(self, number: _Optional[int] = ..., state: _Optional[str] = ..., author_id: _Optional[str] = ..., author_uid: _Optional[bytes] = ..., source: _Optional[_Union[PullBranchRecord, _Mapping]] = ..., destination: _Optional[_Union[PullBranchRecord, _Mapping]] = ..., title: _Optional[str] = ..., description: _Optional[str] = ..., create_time_us: _Optional[int] = ..., update_time_us: _Optional[int] = ..., end_time_us: _Optional[int] = ..., create_id: _Optional[bytes] = ..., change_id: _Optional[bytes] = ..., reviews: _Optional[_Iterable[_Union[PullReviewRecord, _Mapping]]] = ..., event_count: _Optional[int] = ..., text_bytes: _Optional[int] = ..., merge_id: _Optional[bytes] = ..., merge_from_commit_id: _Optional[str] = ..., merge_commit_id: _Optional[str] = ...) -> None: ...

class PullBranchRecord(_message.Message):
    __slots__ = ("branch_id", "incarnation", "commit_id")
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    branch_id: str
    incarnation: bytes
    commit_id: str
    def __init__(self, branch_id: _Optional[str] = ..., incarnation: _Optional[bytes] = ..., commit_id: _Optional[str] = ...) -> None: ...

class PullReviewRecord(_message.Message):
    __slots__ = ("user_id", "user_uid", "verdict", "source_commit_id", "source_sequence", "destination_commit_id", "destination_sequence", "time_us", "dismissed_by")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    DISMISSED_BY_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    user_uid: bytes
    verdict: str
    source_commit_id: str
    source_sequence: int
    destination_commit_id: str
    destination_sequence: int
    time_us: int
    dismissed_by: str
    def __init__(self, user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., verdict: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., source_sequence: _Optional[int] = ..., destination_commit_id: _Optional[str] = ..., destination_sequence: _Optional[int] = ..., time_us: _Optional[int] = ..., dismissed_by: _Optional[str] = ...) -> None: ...

class PullEventRecord(_message.Message):
    __slots__ = ("kind", "user_id", "time_us", "body", "path", "source_commit_id", "destination_commit_id")
    KIND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    kind: str
    user_id: str
    time_us: int
    body: str
    path: str
    source_commit_id: str
    destination_commit_id: str
    def __init__(self, kind: _Optional[str] = ..., user_id: _Optional[str] = ..., time_us: _Optional[int] = ..., body: _Optional[str] = ..., path: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., destination_commit_id: _Optional[str] = ...) -> None: ...

class PullIndexRecord(_message.Message):
    __slots__ = ("last_number", "open")
    LAST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    last_number: int
    open: _containers.RepeatedCompositeFieldContainer[OpenPullRecord]
    def __init__(self, last_number: _Optional[int] = ..., open: _Optional[_Iterable[_Union[OpenPullRecord, _Mapping]]] = ...) -> None: ...

class OpenPullRecord(_message.Message):
    __slots__ = ("number", "pair", "open_id")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    OPEN_ID_FIELD_NUMBER: _ClassVar[int]
    number: int
    pair: bytes
    open_id: bytes
    def __init__(self, number: _Optional[int] = ..., pair: _Optional[bytes] = ..., open_id: _Optional[bytes] = ...) -> None: ...
