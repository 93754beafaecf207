import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BucketView(_message.Message):
    __slots__ = ("bucket_id", "repository_id", "ref", "etag", "create_time", "public_read")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_READ_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    repository_id: str
    ref: str
    etag: str
    create_time: _timestamp_pb2.Timestamp
    public_read: bool
    def __init__(self, bucket_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., etag: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., public_read: _Optional[bool] = ...) -> None: ...

class CreateBucketViewRequest(_message.Message):
    __slots__ = ("bucket_id", "repository_id", "ref", "public_read")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_READ_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    repository_id: str
    ref: str
    public_read: bool
    def __init__(self, bucket_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., public_read: _Optional[bool] = ...) -> None: ...

class CreateBucketViewResponse(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: BucketView
    def __init__(self, view: _Optional[_Union[BucketView, _Mapping]] = ...) -> None: ...

class GetBucketViewRequest(_message.Message):
    __slots__ = ("bucket_id",)
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    def __init__(self, bucket_id: _Optional[str] = ...) -> None: ...

class GetBucketViewResponse(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: BucketView
    def __init__(self, view: _Optional[_Union[BucketView, _Mapping]] = ...) -> None: ...

class Bucket(_message.Message):
    __slots__ = ("bucket_id", "create_time", "view")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    VIEW_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    create_time: _timestamp_pb2.Timestamp
    view: BucketView
    def __init__(self, bucket_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., view: _Optional[_Union[BucketView, _Mapping]] = ...) -> None: ...

class ListBucketsRequest(_message.Message):
    __slots__ = ("page_size", "page_token", "prefix", "views_only")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    VIEWS_ONLY_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    prefix: str
    views_only: bool
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., prefix: _Optional[str] = ..., views_only: _Optional[bool] = ...) -> None: ...

class ListBucketsResponse(_message.Message):
    __slots__ = ("buckets", "next_page_token")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    buckets: _containers.RepeatedCompositeFieldContainer[Bucket]
    next_page_token: str
    def __init__(self, buckets: _Optional[_Iterable[_Union[Bucket, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class PointBucketViewRequest(_message.Message):
    __slots__ = ("bucket_id", "repository_id", "ref", "etag")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    repository_id: str
    ref: str
    etag: str
    def __init__(self, bucket_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., ref: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class PointBucketViewResponse(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: BucketView
    def __init__(self, view: _Optional[_Union[BucketView, _Mapping]] = ...) -> None: ...

class SetBucketViewPublicReadRequest(_message.Message):
    __slots__ = ("bucket_id", "public_read", "etag")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_READ_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    public_read: bool
    etag: str
    def __init__(self, bucket_id: _Optional[str] = ..., public_read: _Optional[bool] = ..., etag: _Optional[str] = ...) -> None: ...

class SetBucketViewPublicReadResponse(_message.Message):
    __slots__ = ("view",)
    VIEW_FIELD_NUMBER: _ClassVar[int]
    view: BucketView
    def __init__(self, view: _Optional[_Union[BucketView, _Mapping]] = ...) -> None: ...

class DeleteBucketViewRequest(_message.Message):
    __slots__ = ("bucket_id", "etag")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    etag: str
    def __init__(self, bucket_id: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteBucketViewResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetBucketCorsRequest(_message.Message):
    __slots__ = ("bucket_id",)
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    def __init__(self, bucket_id: _Optional[str] = ...) -> None: ...

class GetBucketCorsResponse(_message.Message):
    __slots__ = ("rules_json", "is_view")
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    IS_VIEW_FIELD_NUMBER: _ClassVar[int]
    rules_json: str
    is_view: bool
    def __init__(self, rules_json: _Optional[str] = ..., is_view: _Optional[bool] = ...) -> None: ...

class SetBucketViewCorsRequest(_message.Message):
    __slots__ = ("bucket_id", "rules_json")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    rules_json: str
    def __init__(self, bucket_id: _Optional[str] = ..., rules_json: _Optional[str] = ...) -> None: ...

class SetBucketViewCorsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SetRepositoryCorsRequest(_message.Message):
    __slots__ = ("repository_id", "rules_json")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    RULES_JSON_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    rules_json: str
    def __init__(self, repository_id: _Optional[str] = ..., rules_json: _Optional[str] = ...) -> None: ...

class SetRepositoryCorsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
