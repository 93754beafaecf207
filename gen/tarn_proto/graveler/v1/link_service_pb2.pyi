import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from tarn_proto.graveler.v1 import entry_service_pb2 as _entry_service_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetPhysicalAddressRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "path", "template", "part_count", "rewritable")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    PART_COUNT_FIELD_NUMBER: _ClassVar[int]
    REWRITABLE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    path: str
    template: bytes
    part_count: int
    rewritable: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., template: _Optional[bytes] = ..., part_count: _Optional[int] = ..., rewritable: _Optional[bool] = ...) -> None: ...

class GetPhysicalAddressResponse(_message.Message):
    __slots__ = ("physical_address", "token", "expire_time", "put_url", "headers", "part_urls", "complete_url", "bucket_upload_id")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PHYSICAL_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    PUT_URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PART_URLS_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_URL_FIELD_NUMBER: _ClassVar[int]
    BUCKET_UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    physical_address: str
    token: str
    expire_time: _timestamp_pb2.Timestamp
    put_url: str
    headers: _containers.ScalarMap[str, str]
    part_urls: _containers.RepeatedScalarFieldContainer[str]
    complete_url: str
    bucket_upload_id: str
    def __init__(self, physical_address: _Optional[str] = ..., token: _Optional[str] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., put_url: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., part_urls: _Optional[_Iterable[str]] = ..., complete_url: _Optional[str] = ..., bucket_upload_id: _Optional[str] = ...) -> None: ...

class LinkPhysicalAddressRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "path", "token", "size_bytes", "etag", "condition", "template", "modify_time")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    MODIFY_TIME_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    path: str
    token: str
    size_bytes: int
    etag: str
    condition: _entry_service_pb2.WriteCondition
    template: bytes
    modify_time: _timestamp_pb2.Timestamp
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., token: _Optional[str] = ..., size_bytes: _Optional[int] = ..., etag: _Optional[str] = ..., condition: _Optional[_Union[_entry_service_pb2.WriteCondition, _Mapping]] = ..., template: _Optional[bytes] = ..., modify_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class LinkPhysicalAddressResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    def __init__(self, entry: _Optional[bytes] = ...) -> None: ...
