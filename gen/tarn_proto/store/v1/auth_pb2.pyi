from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserRecord(_message.Message):
    __slots__ = ("user_id", "user_uid", "roles", "create_time_us", "change_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    CHANGE_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    user_uid: bytes
    roles: _containers.RepeatedScalarFieldContainer[str]
    create_time_us: int
    change_id: bytes
    def __init__(self, user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., roles: _Optional[_Iterable[str]] = ..., create_time_us: _Optional[int] = ..., change_id: _Optional[bytes] = ...) -> None: ...

class CredentialRecord(_message.Message):
    __slots__ = ("access_key_id", "user_id", "user_uid", "description", "create_time_us", "sealed_secret", "encryption_key_id", "use_time_us", "use_kind")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    SEALED_SECRET_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    USE_KIND_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    user_id: str
    user_uid: bytes
    description: str
    create_time_us: int
    sealed_secret: bytes
    encryption_key_id: str
    use_time_us: int
    use_kind: str
    def __init__(self, access_key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., description: _Optional[str] = ..., create_time_us: _Optional[int] = ..., sealed_secret: _Optional[bytes] = ..., encryption_key_id: _Optional[str] = ..., use_time_us: _Optional[int] = ..., use_kind: _Optional[str] = ...) -> None: ...

class SessionKeyRecord(_message.Message):
    __slots__ = ("access_key_id", "user_id", "user_uid", "issuer_access_key_id", "description", "create_time_us", "expire_time_us", "sealed_secret", "encryption_key_id", "token_digest", "permissions", "bindings")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    ISSUER_ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    SEALED_SECRET_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTION_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    PERMISSIONS_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    user_id: str
    user_uid: bytes
    issuer_access_key_id: str
    description: str
    create_time_us: int
    expire_time_us: int
    sealed_secret: bytes
    encryption_key_id: str
    token_digest: bytes
    permissions: _containers.RepeatedCompositeFieldContainer[SessionPermission]
    bindings: _containers.RepeatedCompositeFieldContainer[SessionBinding]
    def __init__(self, access_key_id: _Optional[str] = ..., user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., issuer_access_key_id: _Optional[str] = ..., description: _Optional[str] = ..., create_time_us: _Optional[int] = ..., expire_time_us: _Optional[int] = ..., sealed_secret: _Optional[bytes] = ..., encryption_key_id: _Optional[str] = ..., token_digest: _Optional[bytes] = ..., permissions: _Optional[_Iterable[_Union[SessionPermission, _Mapping]]] = ..., bindings: _Optional[_Iterable[_Union[SessionBinding, _Mapping]]] = ...) -> None: ...

class SessionPermission(_message.Message):
    __slots__ = ("actions", "resources")
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    actions: _containers.RepeatedScalarFieldContainer[str]
    resources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, actions: _Optional[_Iterable[str]] = ..., resources: _Optional[_Iterable[str]] = ...) -> None: ...

class SessionBinding(_message.Message):
    __slots__ = ("bucket_id", "repository_id", "ref")
    BUCKET_ID_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_ID_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    bucket_id: str
    repository_id: str
    ref: str
    def __init__(self, bucket_id: _Optional[str] = ..., repository_id: _Optional[str] = ..., ref: _Optional[str] = ...) -> None: ...

class WebSessionRecord(_message.Message):
    __slots__ = ("user_id", "user_uid", "access_key_id", "create_time_us", "use_time_us")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    USER_UID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_US_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    user_uid: bytes
    access_key_id: str
    create_time_us: int
    use_time_us: int
    def __init__(self, user_id: _Optional[str] = ..., user_uid: _Optional[bytes] = ..., access_key_id: _Optional[str] = ..., create_time_us: _Optional[int] = ..., use_time_us: _Optional[int] = ...) -> None: ...

class SetupRecord(_message.Message):
    __slots__ = ("setup_time_us", "user_id")
    SETUP_TIME_US_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    setup_time_us: int
    user_id: str
    def __init__(self, setup_time_us: _Optional[int] = ..., user_id: _Optional[str] = ...) -> None: ...
