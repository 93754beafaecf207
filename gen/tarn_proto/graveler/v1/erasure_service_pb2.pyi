import datetime

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

class DiscardOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISCARD_OUTCOME_UNSPECIFIED: _ClassVar[DiscardOutcome]
    DISCARD_OUTCOME_DISCARDED: _ClassVar[DiscardOutcome]
    DISCARD_OUTCOME_REPLACED: _ClassVar[DiscardOutcome]
    DISCARD_OUTCOME_COMMITTED: _ClassVar[DiscardOutcome]
    DISCARD_OUTCOME_ABSENT: _ClassVar[DiscardOutcome]
DISCARD_OUTCOME_UNSPECIFIED: DiscardOutcome
DISCARD_OUTCOME_DISCARDED: DiscardOutcome
DISCARD_OUTCOME_REPLACED: DiscardOutcome
DISCARD_OUTCOME_COMMITTED: DiscardOutcome
DISCARD_OUTCOME_ABSENT: DiscardOutcome

class DoomedNamespace(_message.Message):
    __slots__ = ("storage_namespace", "repository_id", "instance_uid", "doom_time", "purge_not_before_time", "purge_begin_time", "purge_end_time", "purged_count", "purged_bytes")
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    DOOM_TIME_FIELD_NUMBER: _ClassVar[int]
    PURGE_NOT_BEFORE_TIME_FIELD_NUMBER: _ClassVar[int]
    PURGE_BEGIN_TIME_FIELD_NUMBER: _ClassVar[int]
    PURGE_END_TIME_FIELD_NUMBER: _ClassVar[int]
    PURGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PURGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    storage_namespace: str
    repository_id: str
    instance_uid: str
    doom_time: _timestamp_pb2.Timestamp
    purge_not_before_time: _timestamp_pb2.Timestamp
    purge_begin_time: _timestamp_pb2.Timestamp
    purge_end_time: _timestamp_pb2.Timestamp
    purged_count: int
    purged_bytes: int
    def __init__(self, storage_namespace: _Optional[str] = ..., repository_id: _Optional[str] = ..., instance_uid: _Optional[str] = ..., doom_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., purge_not_before_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., purge_begin_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., purge_end_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., purged_count: _Optional[int] = ..., purged_bytes: _Optional[int] = ...) -> None: ...

class ListDoomedNamespacesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDoomedNamespacesResponse(_message.Message):
    __slots__ = ("namespaces", "next_page_token")
    NAMESPACES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    namespaces: _containers.RepeatedCompositeFieldContainer[DoomedNamespace]
    next_page_token: str
    def __init__(self, namespaces: _Optional[_Iterable[_Union[DoomedNamespace, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class BeginPurgeRequest(_message.Message):
    __slots__ = ("storage_namespace", "instance_uid")
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    storage_namespace: str
    instance_uid: str
    def __init__(self, storage_namespace: _Optional[str] = ..., instance_uid: _Optional[str] = ...) -> None: ...

class BeginPurgeResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: DoomedNamespace
    def __init__(self, namespace: _Optional[_Union[DoomedNamespace, _Mapping]] = ...) -> None: ...

class EndPurgeRequest(_message.Message):
    __slots__ = ("storage_namespace", "instance_uid", "purged_count", "purged_bytes")
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_UID_FIELD_NUMBER: _ClassVar[int]
    PURGED_COUNT_FIELD_NUMBER: _ClassVar[int]
    PURGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    storage_namespace: str
    instance_uid: str
    purged_count: int
    purged_bytes: int
    def __init__(self, storage_namespace: _Optional[str] = ..., instance_uid: _Optional[str] = ..., purged_count: _Optional[int] = ..., purged_bytes: _Optional[int] = ...) -> None: ...

class EndPurgeResponse(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: DoomedNamespace
    def __init__(self, namespace: _Optional[_Union[DoomedNamespace, _Mapping]] = ...) -> None: ...

class SpareNamespaceRequest(_message.Message):
    __slots__ = ("storage_namespace",)
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    storage_namespace: str
    def __init__(self, storage_namespace: _Optional[str] = ...) -> None: ...

class SpareNamespaceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListStagedRowsRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "prefix", "page_size", "page_token")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListStagedRowsResponse(_message.Message):
    __slots__ = ("branch_id", "paths", "addresses", "sizes", "next_page_token")
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    branch_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    addresses: bytes
    sizes: _containers.RepeatedScalarFieldContainer[int]
    next_page_token: str
    def __init__(self, branch_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., addresses: _Optional[bytes] = ..., sizes: _Optional[_Iterable[int]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class EraseAddressesRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "plan_id", "addresses")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    PLAN_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    plan_id: str
    addresses: bytes
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., plan_id: _Optional[str] = ..., addresses: _Optional[bytes] = ...) -> None: ...

class EraseAddressesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DiscardErasedRequest(_message.Message):
    __slots__ = ("repository_id", "run_id", "branch_id", "paths", "addresses", "validate_only")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RUN_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    run_id: str
    branch_id: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    addresses: bytes
    validate_only: bool
    def __init__(self, repository_id: _Optional[str] = ..., run_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., addresses: _Optional[bytes] = ..., validate_only: _Optional[bool] = ...) -> None: ...

class DiscardErasedResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[DiscardOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[DiscardOutcome, str]]] = ...) -> None: ...
