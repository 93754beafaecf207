from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class CompactionPauseRecord(_message.Message):
    __slots__ = ("user_id", "time_us", "end_time_us", "is_resumed")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    TIME_US_FIELD_NUMBER: _ClassVar[int]
    END_TIME_US_FIELD_NUMBER: _ClassVar[int]
    IS_RESUMED_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    time_us: int
    end_time_us: int
    is_resumed: bool
    def __init__(self, user_id: _Optional[str] = ..., time_us: _Optional[int] = ..., end_time_us: _Optional[int] = ..., is_resumed: _Optional[bool] = ...) -> None: ...
