from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QuotaLimits(_message.Message):
    __slots__ = ("staged_objects", "staged_bytes", "branches", "uploads", "requests_per_second", "bytes_per_second")
    STAGED_OBJECTS_FIELD_NUMBER: _ClassVar[int]
    STAGED_BYTES_FIELD_NUMBER: _ClassVar[int]
    BRANCHES_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    REQUESTS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    staged_objects: int
    staged_bytes: int
    branches: int
    uploads: int
    requests_per_second: int
    bytes_per_second: int
    def __init__(self, staged_objects: _Optional[int] = ..., staged_bytes: _Optional[int] = ..., branches: _Optional[int] = ..., uploads: _Optional[int] = ..., requests_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("kind", "name", "limits")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    limits: QuotaLimits
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[QuotaLimits, _Mapping]] = ...) -> None: ...

class SetQuotaRequest(_message.Message):
    __slots__ = ("kind", "name", "limits")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    limits: QuotaLimits
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[QuotaLimits, _Mapping]] = ...) -> None: ...

class SetQuotaResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetQuotaRequest(_message.Message):
    __slots__ = ("kind", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class GetQuotaResponse(_message.Message):
    __slots__ = ("limits", "is_set", "used")
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    IS_SET_FIELD_NUMBER: _ClassVar[int]
    USED_FIELD_NUMBER: _ClassVar[int]
    limits: QuotaLimits
    is_set: bool
    used: QuotaLimits
    def __init__(self, limits: _Optional[_Union[QuotaLimits, _Mapping]] = ..., is_set: _Optional[bool] = ..., used: _Optional[_Union[QuotaLimits, _Mapping]] = ...) -> None: ...

class ListQuotasRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListQuotasResponse(_message.Message):
    __slots__ = ("quotas", "next_page_token", "repository_default", "user_default")
    QUOTAS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    USER_DEFAULT_FIELD_NUMBER: _ClassVar[int]
    quotas: _containers.RepeatedCompositeFieldContainer[Quota]
    next_page_token: str
    repository_default: QuotaLimits
    user_default: QuotaLimits
    def __init__(self, quotas: _Optional[_Iterable[_Union[Quota, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., repository_default: _Optional[_Union[QuotaLimits, _Mapping]] = ..., user_default: _Optional[_Union[QuotaLimits, _Mapping]] = ...) -> None: ...

class ReportRequestsRequest(_message.Message):
    __slots__ = ("month", "source", "total")
    MONTH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    month: str
    source: str
    total: int
    def __init__(self, month: _Optional[str] = ..., source: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class ReportRequestsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRequestCountsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetRequestCountsResponse(_message.Message):
    __slots__ = ("installation_id", "months")
    INSTALLATION_ID_FIELD_NUMBER: _ClassVar[int]
    MONTHS_FIELD_NUMBER: _ClassVar[int]
    installation_id: str
    months: _containers.RepeatedCompositeFieldContainer[MonthlyRequests]
    def __init__(self, installation_id: _Optional[str] = ..., months: _Optional[_Iterable[_Union[MonthlyRequests, _Mapping]]] = ...) -> None: ...

class MonthlyRequests(_message.Message):
    __slots__ = ("month", "count")
    MONTH_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    month: str
    count: int
    def __init__(self, month: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...
