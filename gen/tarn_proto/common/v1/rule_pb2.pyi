from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
RULE_FIELD_NUMBER: _ClassVar[int]
rule: _descriptor.FieldDescriptor
OPERATION_RULE_FIELD_NUMBER: _ClassVar[int]
operation_rule: _descriptor.FieldDescriptor

class Rule(_message.Message):
    __slots__ = ("action", "resource", "also", "public_because", "no_side_effects", "change", "services", "issues_credential", "decided_by_handler", "repository_may_be_missing", "through", "public_read")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_BECAUSE_FIELD_NUMBER: _ClassVar[int]
    NO_SIDE_EFFECTS_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    SERVICES_FIELD_NUMBER: _ClassVar[int]
    ISSUES_CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    DECIDED_BY_HANDLER_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_MAY_BE_MISSING_FIELD_NUMBER: _ClassVar[int]
    THROUGH_FIELD_NUMBER: _ClassVar[int]
    PUBLIC_READ_FIELD_NUMBER: _ClassVar[int]
    action: str
    resource: str
    also: _containers.RepeatedCompositeFieldContainer[Access]
    public_because: str
    no_side_effects: bool
    change: str
    services: _containers.RepeatedScalarFieldContainer[str]
    issues_credential: bool
    decided_by_handler: bool
    repository_may_be_missing: bool
    through: _containers.RepeatedScalarFieldContainer[str]
    public_read: bool
    def __init__(self, action: _Optional[str] = ..., resource: _Optional[str] = ..., also: _Optional[_Iterable[_Union[Access, _Mapping]]] = ..., public_because: _Optional[str] = ..., no_side_effects: _Optional[bool] = ..., change: _Optional[str] = ..., services: _Optional[_Iterable[str]] = ..., issues_credential: _Optional[bool] = ..., decided_by_handler: _Optional[bool] = ..., repository_may_be_missing: _Optional[bool] = ..., through: _Optional[_Iterable[str]] = ..., public_read: _Optional[bool] = ...) -> None: ...

class Access(_message.Message):
    __slots__ = ("name", "action", "resource", "when")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    WHEN_FIELD_NUMBER: _ClassVar[int]
    name: str
    action: str
    resource: str
    when: str
    def __init__(self, name: _Optional[str] = ..., action: _Optional[str] = ..., resource: _Optional[str] = ..., when: _Optional[str] = ...) -> None: ...
