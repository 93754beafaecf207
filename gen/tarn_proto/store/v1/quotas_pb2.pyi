from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class QuotaRecord(_message.Message):
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
