import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import operation_pb2 as _operation_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import commit_service_pb2 as _commit_service_pb2
from tarn_proto.graveler.v1 import merge_service_pb2 as _merge_service_pb2
from tarn_proto.graveler.v1 import pull_request_service_pb2 as _pull_request_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TaskKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_KIND_UNSPECIFIED: _ClassVar[TaskKind]
    TASK_KIND_MERGE: _ClassVar[TaskKind]
    TASK_KIND_PREVIEW: _ClassVar[TaskKind]
    TASK_KIND_COMMIT: _ClassVar[TaskKind]
    TASK_KIND_PULL_REQUEST_MERGE: _ClassVar[TaskKind]
    TASK_KIND_REVERT: _ClassVar[TaskKind]
    TASK_KIND_CHERRY_PICK: _ClassVar[TaskKind]

class TaskState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TASK_STATE_UNSPECIFIED: _ClassVar[TaskState]
    TASK_STATE_PENDING: _ClassVar[TaskState]
    TASK_STATE_RUNNING: _ClassVar[TaskState]
    TASK_STATE_SUCCEEDED: _ClassVar[TaskState]
    TASK_STATE_FAILED: _ClassVar[TaskState]
    TASK_STATE_CANCELLED: _ClassVar[TaskState]
TASK_KIND_UNSPECIFIED: TaskKind
TASK_KIND_MERGE: TaskKind
TASK_KIND_PREVIEW: TaskKind
TASK_KIND_COMMIT: TaskKind
TASK_KIND_PULL_REQUEST_MERGE: TaskKind
TASK_KIND_REVERT: TaskKind
TASK_KIND_CHERRY_PICK: TaskKind
TASK_STATE_UNSPECIFIED: TaskState
TASK_STATE_PENDING: TaskState
TASK_STATE_RUNNING: TaskState
TASK_STATE_SUCCEEDED: TaskState
TASK_STATE_FAILED: TaskState
TASK_STATE_CANCELLED: TaskState

class Task(_message.Message):
    __slots__ = ("task_id", "repository_id", "kind", "state", "user_id", "subject", "create_time", "end_time", "done_count", "total_count", "run_count", "cancel_requested", "merge", "preview", "commit", "error")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    DONE_COUNT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    CANCEL_REQUESTED_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    repository_id: str
    kind: TaskKind
    state: TaskState
    user_id: str
    subject: str
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    done_count: int
    total_count: int
    run_count: int
    cancel_requested: bool
    merge: _merge_service_pb2.MergeResponse
    preview: _merge_service_pb2.PreviewMergeResponse
    commit: _commit_service_pb2.Commit
    error: _operation_pb2.OperationError
    def __init__(self, task_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., kind: _Optional[_Union[TaskKind, str]] = ..., state: _Optional[_Union[TaskState, str]] = ..., user_id: _Optional[str] = ..., subject: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., done_count: _Optional[int] = ..., total_count: _Optional[int] = ..., run_count: _Optional[int] = ..., cancel_requested: _Optional[bool] = ..., merge: _Optional[_Union[_merge_service_pb2.MergeResponse, _Mapping]] = ..., preview: _Optional[_Union[_merge_service_pb2.PreviewMergeResponse, _Mapping]] = ..., commit: _Optional[_Union[_commit_service_pb2.Commit, _Mapping]] = ..., error: _Optional[_Union[_operation_pb2.OperationError, _Mapping]] = ...) -> None: ...

class StartMergeRequest(_message.Message):
    __slots__ = ("task_id", "merge", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    merge: _merge_service_pb2.MergeRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., merge: _Optional[_Union[_merge_service_pb2.MergeRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartMergeResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class StartPreviewRequest(_message.Message):
    __slots__ = ("task_id", "preview", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    preview: _merge_service_pb2.PreviewMergeRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., preview: _Optional[_Union[_merge_service_pb2.PreviewMergeRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartPreviewResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class StartCommitRequest(_message.Message):
    __slots__ = ("task_id", "commit", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    COMMIT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    commit: _commit_service_pb2.CreateCommitRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., commit: _Optional[_Union[_commit_service_pb2.CreateCommitRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartCommitResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class StartPullRequestMergeRequest(_message.Message):
    __slots__ = ("task_id", "merge", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    MERGE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    merge: _pull_request_service_pb2.MergePullRequestRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., merge: _Optional[_Union[_pull_request_service_pb2.MergePullRequestRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartPullRequestMergeResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class StartRevertRequest(_message.Message):
    __slots__ = ("task_id", "revert", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    REVERT_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    revert: _merge_service_pb2.RevertRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., revert: _Optional[_Union[_merge_service_pb2.RevertRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartRevertResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class StartCherryPickRequest(_message.Message):
    __slots__ = ("task_id", "cherry_pick", "timeout_ms")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    CHERRY_PICK_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    task_id: str
    cherry_pick: _merge_service_pb2.CherryPickRequest
    timeout_ms: int
    def __init__(self, task_id: _Optional[str] = ..., cherry_pick: _Optional[_Union[_merge_service_pb2.CherryPickRequest, _Mapping]] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class StartCherryPickResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class GetTaskRequest(_message.Message):
    __slots__ = ("repository_id", "task_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    task_id: str
    def __init__(self, repository_id: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class GetTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("repository_id", "page_size", "page_token", "all_users")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ALL_USERS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    page_size: int
    page_token: str
    all_users: bool
    def __init__(self, repository_id: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., all_users: _Optional[bool] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[Task]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[Task, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelTaskRequest(_message.Message):
    __slots__ = ("repository_id", "task_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    task_id: str
    def __init__(self, repository_id: _Optional[str] = ..., task_id: _Optional[str] = ...) -> None: ...

class CancelTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...

class WaitTaskRequest(_message.Message):
    __slots__ = ("repository_id", "task_id", "timeout_ms")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    task_id: str
    timeout_ms: int
    def __init__(self, repository_id: _Optional[str] = ..., task_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class WaitTaskResponse(_message.Message):
    __slots__ = ("task",)
    TASK_FIELD_NUMBER: _ClassVar[int]
    task: Task
    def __init__(self, task: _Optional[_Union[Task, _Mapping]] = ...) -> None: ...
