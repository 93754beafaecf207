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

class Upload(_message.Message):
    __slots__ = ("upload_id", "branch_id", "path", "address", "template", "create_time", "user_id", "checksum_algorithm", "is_full_object_checksum", "storage_namespace")
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    STORAGE_NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    upload_id: str
    branch_id: str
    path: str
    address: bytes
    template: bytes
    create_time: _timestamp_pb2.Timestamp
    user_id: str
    checksum_algorithm: str
    is_full_object_checksum: bool
    storage_namespace: str
    def __init__(self, upload_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., address: _Optional[bytes] = ..., template: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., user_id: _Optional[str] = ..., checksum_algorithm: _Optional[str] = ..., is_full_object_checksum: _Optional[bool] = ..., storage_namespace: _Optional[str] = ...) -> None: ...

class UploadPart(_message.Message):
    __slots__ = ("part_number", "attempt", "size_bytes", "md5", "create_time", "checksum")
    PART_NUMBER_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MD5_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    part_number: int
    attempt: str
    size_bytes: int
    md5: bytes
    create_time: _timestamp_pb2.Timestamp
    checksum: str
    def __init__(self, part_number: _Optional[int] = ..., attempt: _Optional[str] = ..., size_bytes: _Optional[int] = ..., md5: _Optional[bytes] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., checksum: _Optional[str] = ...) -> None: ...

class CreateUploadRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "path", "template", "checksum_algorithm", "is_full_object_checksum")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    IS_FULL_OBJECT_CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    path: str
    template: bytes
    checksum_algorithm: str
    is_full_object_checksum: bool
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., template: _Optional[bytes] = ..., checksum_algorithm: _Optional[str] = ..., is_full_object_checksum: _Optional[bool] = ...) -> None: ...

class CreateUploadResponse(_message.Message):
    __slots__ = ("upload",)
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    upload: Upload
    def __init__(self, upload: _Optional[_Union[Upload, _Mapping]] = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "path", "upload_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    path: str
    upload_id: str
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., path: _Optional[str] = ..., upload_id: _Optional[str] = ...) -> None: ...

class GetUploadResponse(_message.Message):
    __slots__ = ("upload",)
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    upload: Upload
    def __init__(self, upload: _Optional[_Union[Upload, _Mapping]] = ...) -> None: ...

class RecordUploadPartRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id", "part")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    part: UploadPart
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., part: _Optional[_Union[UploadPart, _Mapping]] = ...) -> None: ...

class RecordUploadPartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUploadPartsRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id", "after_part_number", "page_size")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_PART_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    after_part_number: int
    page_size: int
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., after_part_number: _Optional[int] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListUploadPartsResponse(_message.Message):
    __slots__ = ("parts", "is_truncated")
    PARTS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    parts: _containers.RepeatedCompositeFieldContainer[UploadPart]
    is_truncated: bool
    def __init__(self, parts: _Optional[_Iterable[_Union[UploadPart, _Mapping]]] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class ListUploadsRequest(_message.Message):
    __slots__ = ("repository_id", "branch_id", "prefix", "after_path", "after_upload_id", "page_size")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    BRANCH_ID_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    AFTER_PATH_FIELD_NUMBER: _ClassVar[int]
    AFTER_UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    branch_id: str
    prefix: str
    after_path: str
    after_upload_id: str
    page_size: int
    def __init__(self, repository_id: _Optional[str] = ..., branch_id: _Optional[str] = ..., prefix: _Optional[str] = ..., after_path: _Optional[str] = ..., after_upload_id: _Optional[str] = ..., page_size: _Optional[int] = ...) -> None: ...

class ListUploadsResponse(_message.Message):
    __slots__ = ("uploads", "is_truncated")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    IS_TRUNCATED_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    is_truncated: bool
    def __init__(self, uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., is_truncated: _Optional[bool] = ...) -> None: ...

class BeginCompleteUploadRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id", "manifest_hash", "claim")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_HASH_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    manifest_hash: bytes
    claim: bytes
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., manifest_hash: _Optional[bytes] = ..., claim: _Optional[bytes] = ...) -> None: ...

class BeginCompleteUploadResponse(_message.Message):
    __slots__ = ("claim", "completed_entry")
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    COMPLETED_ENTRY_FIELD_NUMBER: _ClassVar[int]
    claim: bytes
    completed_entry: bytes
    def __init__(self, claim: _Optional[bytes] = ..., completed_entry: _Optional[bytes] = ...) -> None: ...

class FinishCompleteUploadRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id", "claim", "entry", "condition", "parts")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    claim: bytes
    entry: bytes
    condition: _entry_service_pb2.WriteCondition
    parts: bytes
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., claim: _Optional[bytes] = ..., entry: _Optional[bytes] = ..., condition: _Optional[_Union[_entry_service_pb2.WriteCondition, _Mapping]] = ..., parts: _Optional[bytes] = ...) -> None: ...

class FinishCompleteUploadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReopenUploadRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id", "claim", "may_be_staged")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    CLAIM_FIELD_NUMBER: _ClassVar[int]
    MAY_BE_STAGED_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    claim: bytes
    may_be_staged: bool
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ..., claim: _Optional[bytes] = ..., may_be_staged: _Optional[bool] = ...) -> None: ...

class ReopenUploadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AbortUploadRequest(_message.Message):
    __slots__ = ("repository_id", "upload_id")
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_ID_FIELD_NUMBER: _ClassVar[int]
    repository_id: str
    upload_id: str
    def __init__(self, repository_id: _Optional[str] = ..., upload_id: _Optional[str] = ...) -> None: ...

class AbortUploadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
