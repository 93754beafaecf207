from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JournalEpochRecord(_message.Message):
    __slots__ = ("number", "folder", "has_begun", "may_follow", "is_unknown")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    HAS_BEGUN_FIELD_NUMBER: _ClassVar[int]
    MAY_FOLLOW_FIELD_NUMBER: _ClassVar[int]
    IS_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    number: int
    folder: str
    has_begun: bool
    may_follow: bool
    is_unknown: bool
    def __init__(self, number: _Optional[int] = ..., folder: _Optional[str] = ..., has_begun: _Optional[bool] = ..., may_follow: _Optional[bool] = ..., is_unknown: _Optional[bool] = ...) -> None: ...

class JournalDrainRecord(_message.Message):
    __slots__ = ("holder", "lease_until_us", "drained_until_us", "behind", "first_hour", "undrained")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    DRAINED_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    FIRST_HOUR_FIELD_NUMBER: _ClassVar[int]
    UNDRAINED_FIELD_NUMBER: _ClassVar[int]
    holder: str
    lease_until_us: int
    drained_until_us: int
    behind: _containers.RepeatedCompositeFieldContainer[JournalBehind]
    first_hour: int
    undrained: _containers.RepeatedCompositeFieldContainer[JournalUndrained]
    def __init__(self, holder: _Optional[str] = ..., lease_until_us: _Optional[int] = ..., drained_until_us: _Optional[int] = ..., behind: _Optional[_Iterable[_Union[JournalBehind, _Mapping]]] = ..., first_hour: _Optional[int] = ..., undrained: _Optional[_Iterable[_Union[JournalUndrained, _Mapping]]] = ...) -> None: ...

class JournalUndrained(_message.Message):
    __slots__ = ("holder", "size_bytes", "time_us")
    HOLDER_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    holder: str
    size_bytes: int
    time_us: int
    def __init__(self, holder: _Optional[str] = ..., size_bytes: _Optional[int] = ..., time_us: _Optional[int] = ...) -> None: ...

class JournalBehind(_message.Message):
    __slots__ = ("root", "drained_until_us")
    ROOT_FIELD_NUMBER: _ClassVar[int]
    DRAINED_UNTIL_US_FIELD_NUMBER: _ClassVar[int]
    root: str
    drained_until_us: int
    def __init__(self, root: _Optional[str] = ..., drained_until_us: _Optional[int] = ...) -> None: ...
