import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
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

class PullRequestState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_REQUEST_STATE_UNSPECIFIED: _ClassVar[PullRequestState]
    PULL_REQUEST_STATE_OPEN: _ClassVar[PullRequestState]
    PULL_REQUEST_STATE_CLOSED: _ClassVar[PullRequestState]
    PULL_REQUEST_STATE_MERGED: _ClassVar[PullRequestState]

class ReviewVerdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REVIEW_VERDICT_UNSPECIFIED: _ClassVar[ReviewVerdict]
    REVIEW_VERDICT_APPROVE: _ClassVar[ReviewVerdict]
    REVIEW_VERDICT_REQUEST_CHANGES: _ClassVar[ReviewVerdict]

class PullRequestEventKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_REQUEST_EVENT_KIND_UNSPECIFIED: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_COMMENT: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_APPROVE: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_REQUEST_CHANGES: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_DISMISS: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_UPDATE: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_CLOSE: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_REOPEN: _ClassVar[PullRequestEventKind]
    PULL_REQUEST_EVENT_KIND_MERGE: _ClassVar[PullRequestEventKind]
PULL_REQUEST_STATE_UNSPECIFIED: PullRequestState
PULL_REQUEST_STATE_OPEN: PullRequestState
PULL_REQUEST_STATE_CLOSED: PullRequestState
PULL_REQUEST_STATE_MERGED: PullRequestState
REVIEW_VERDICT_UNSPECIFIED: ReviewVerdict
REVIEW_VERDICT_APPROVE: ReviewVerdict
REVIEW_VERDICT_REQUEST_CHANGES: ReviewVerdict
PULL_REQUEST_EVENT_KIND_UNSPECIFIED: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_COMMENT: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_APPROVE: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_REQUEST_CHANGES: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_DISMISS: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_UPDATE: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_CLOSE: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_REOPEN: PullRequestEventKind
PULL_REQUEST_EVENT_KIND_MERGE: PullRequestEventKind

class PullRequestReview(_message.Message):
    __slots__ = ("user_id", "verdict", "source_commit_id", "destination_commit_id", "time", "dismissed_by")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    DISMISSED_BY_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    verdict: ReviewVerdict
    source_commit_id: str
    destination_commit_id: str
    time: _timestamp_pb2.Timestamp
    dismissed_by: str
    def __init__(self, user_id: _Optional[str] = ..., verdict: _Optional[_Union[ReviewVerdict, str]] = ..., source_commit_id: _Optional[str] = ..., destination_commit_id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., dismissed_by: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("pull_request_id", "state", "source_branch_id", "destination_branch_id", "title", "description", "author", "create_time", "update_time", "end_time", "merge_commit_id", "source_commit_id", "destination_commit_id", "reviews", "event_count")
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    MERGE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    REVIEWS_FIELD_NUMBER: _ClassVar[int]
    EVENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    pull_request_id: str
    state: PullRequestState
    source_branch_id: str
    destination_branch_id: str
    title: str
    description: str
    author: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    merge_commit_id: str
    source_commit_id: str
    destination_commit_id: str
    reviews: _containers.RepeatedCompositeFieldContainer[PullRequestReview]
    event_count: int
    def __init__(self, pull_request_id: _Optional[str] = ..., state: _Optional[_Union[PullRequestState, str]] = ..., source_branch_id: _Optional[str] = ..., destination_branch_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ..., author: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., merge_commit_id: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., destination_commit_id: _Optional[str] = ..., reviews: _Optional[_Iterable[_Union[PullRequestReview, _Mapping]]] = ..., event_count: _Optional[int] = ...) -> None: ...

class PullRequestEvent(_message.Message):
    __slots__ = ("sequence", "kind", "user_id", "time", "body", "path", "source_commit_id", "destination_commit_id")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    kind: PullRequestEventKind
    user_id: str
    time: _timestamp_pb2.Timestamp
    body: str
    path: str
    source_commit_id: str
    destination_commit_id: str
    def __init__(self, sequence: _Optional[int] = ..., kind: _Optional[_Union[PullRequestEventKind, str]] = ..., user_id: _Optional[str] = ..., time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., body: _Optional[str] = ..., path: _Optional[str] = ..., source_commit_id: _Optional[str] = ..., destination_commit_id: _Optional[str] = ...) -> None: ...

class CreatePullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "source_branch_id", "destination_branch_id", "title", "description")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    SOURCE_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    source_branch_id: str
    destination_branch_id: str
    title: str
    description: str
    def __init__(self, repository_id: _Optional[str] = ..., source_branch_id: _Optional[str] = ..., destination_branch_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class CreatePullRequestResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class GetPullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ...) -> None: ...

class GetPullRequestResponse(_message.Message):
    __slots__ = ("pull_request", "blockers")
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    BLOCKERS_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    blockers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ..., blockers: _Optional[_Iterable[str]] = ...) -> None: ...

class ListPullRequestsRequest(_message.Message):
    __slots__ = ("repository_id", "states", "author", "from_branch", "into_branch", "page_size", "page_token", "after")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    AUTHOR_FIELD_NUMBER: _ClassVar[int]
    FROM_BRANCH_FIELD_NUMBER: _ClassVar[int]
    INTO_BRANCH_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    states: _containers.RepeatedScalarFieldContainer[PullRequestState]
    author: str
    from_branch: str
    into_branch: str
    page_size: int
    page_token: str
    after: str
    def __init__(self, repository_id: _Optional[str] = ..., states: _Optional[_Iterable[_Union[PullRequestState, str]]] = ..., author: _Optional[str] = ..., from_branch: _Optional[str] = ..., into_branch: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ListPullRequestsResponse(_message.Message):
    __slots__ = ("pull_requests", "next_page_token")
    PULL_REQUESTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    pull_requests: _containers.RepeatedCompositeFieldContainer[PullRequest]
    next_page_token: str
    def __init__(self, pull_requests: _Optional[_Iterable[_Union[PullRequest, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdatePullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "title", "description")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TITLE_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    title: str
    description: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., title: _Optional[str] = ..., description: _Optional[str] = ...) -> None: ...

class UpdatePullRequestResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class CommentPullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "body", "path")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    body: str
    path: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., body: _Optional[str] = ..., path: _Optional[str] = ...) -> None: ...

class CommentPullRequestResponse(_message.Message):
    __slots__ = ("event",)
    EVENT_FIELD_NUMBER: _ClassVar[int]
    event: PullRequestEvent
    def __init__(self, event: _Optional[_Union[PullRequestEvent, _Mapping]] = ...) -> None: ...

class ListPullRequestEventsRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListPullRequestEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[PullRequestEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[PullRequestEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ReviewPullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "verdict", "expected_source_commit_id", "expected_destination_commit_id", "body")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    verdict: ReviewVerdict
    expected_source_commit_id: str
    expected_destination_commit_id: str
    body: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., verdict: _Optional[_Union[ReviewVerdict, str]] = ..., expected_source_commit_id: _Optional[str] = ..., expected_destination_commit_id: _Optional[str] = ..., body: _Optional[str] = ...) -> None: ...

class ReviewPullRequestResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class DismissPullRequestReviewRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "reviewer")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    REVIEWER_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    reviewer: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., reviewer: _Optional[str] = ...) -> None: ...

class DismissPullRequestReviewResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class ClosePullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ...) -> None: ...

class ClosePullRequestResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class ReopenPullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ...) -> None: ...

class ReopenPullRequestResponse(_message.Message):
    __slots__ = ("pull_request",)
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ...) -> None: ...

class MergePullRequestRequest(_message.Message):
    __slots__ = ("repository_id", "pull_request_id", "message", "metadata", "squash", "expected_source_commit_id", "expected_destination_commit_id")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PULL_REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SQUASH_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SOURCE_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_DESTINATION_COMMIT_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    pull_request_id: str
    message: str
    metadata: _containers.ScalarMap[str, str]
    squash: bool
    expected_source_commit_id: str
    expected_destination_commit_id: str
    def __init__(self, repository_id: _Optional[str] = ..., pull_request_id: _Optional[str] = ..., message: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ..., squash: _Optional[bool] = ..., expected_source_commit_id: _Optional[str] = ..., expected_destination_commit_id: _Optional[str] = ...) -> None: ...

class MergePullRequestResponse(_message.Message):
    __slots__ = ("pull_request", "commit")
    PULL_REQUEST_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    pull_request: PullRequest
    commit: _commit_service_pb2.Commit
    def __init__(self, pull_request: _Optional[_Union[PullRequest, _Mapping]] = ..., commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ...) -> None: ...
