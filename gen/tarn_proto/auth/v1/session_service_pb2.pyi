import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from tarn_proto.auth.v1 import caller_pb2 as _caller_pb2
from tarn_proto.auth.v1 import user_pb2 as _user_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetSetupStateRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetSetupStateResponse(_message.Message):
    __slots__ = ("is_set_up", "installation_id")
    IS_SET_UP_FIELD_NUMBER: _ClassVar[int]
    INSTALLATION_ID_FIELD_NUMBER: _ClassVar[int]
    is_set_up: bool
    installation_id: str
    def __init__(self, is_set_up: _Optional[bool] = ..., installation_id: _Optional[str] = ...) -> None: ...

class SetUpRequest(_message.Message):
    __slots__ = ("setup_proof", "user_id", "access_key_id", "secret_access_key")
    SETUP_PROOF_FIELD_NUMBER: _ClassVar[int]
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SECRET_ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    setup_proof: str
    user_id: str
    access_key_id: str
    secret_access_key: str
    def __init__(self, setup_proof: _Optional[str] = ..., user_id: _Optional[str] = ..., access_key_id: _Optional[str] = ..., secret_access_key: _Optional[str] = ...) -> None: ...

class SetUpResponse(_message.Message):
    __slots__ = ("credential", "secret_access_key")
    CREDENTIAL_FIELD_NUMBER: _ClassVar[int]
    SECRET_ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    credential: _user_pb2.Credential
    secret_access_key: str
    def __init__(self, credential: _Optional[_Union[_user_pb2.Credential, _Mapping]] = ..., secret_access_key: _Optional[str] = ...) -> None: ...

class LogInRequest(_message.Message):
    __slots__ = ("access_key_id", "sign_time", "nonce", "signature", "session_token", "use")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    SIGN_TIME_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_FIELD_NUMBER: _ClassVar[int]
    USE_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    sign_time: _timestamp_pb2.Timestamp
    nonce: str
    signature: str
    session_token: str
    use: str
    def __init__(self, access_key_id: _Optional[str] = ..., sign_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., nonce: _Optional[str] = ..., signature: _Optional[str] = ..., session_token: _Optional[str] = ..., use: _Optional[str] = ...) -> None: ...

class LogInResponse(_message.Message):
    __slots__ = ("grant", "expire_time")
    GRANT_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    grant: _caller_pb2.Grant
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ..., expire_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class GetCallerRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCallerResponse(_message.Message):
    __slots__ = ("user", "statements")
    USER_FIELD_NUMBER: _ClassVar[int]
    STATEMENTS_FIELD_NUMBER: _ClassVar[int]
    user: _user_pb2.User
    statements: _containers.RepeatedCompositeFieldContainer[_caller_pb2.Statement]
    def __init__(self, user: _Optional[_Union[_user_pb2.User, _Mapping]] = ..., statements: _Optional[_Iterable[_Union[_caller_pb2.Statement, _Mapping]]] = ...) -> None: ...

class WebSession(_message.Message):
    __slots__ = ("web_session_id", "access_key_id", "create_time", "use_time")
    WEB_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    USE_TIME_FIELD_NUMBER: _ClassVar[int]
    web_session_id: str
    access_key_id: str
    create_time: _timestamp_pb2.Timestamp
    use_time: _timestamp_pb2.Timestamp
    def __init__(self, web_session_id: _Optional[str] = ..., access_key_id: _Optional[str] = ..., create_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., use_time: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ListWebSessionsRequest(_message.Message):
    __slots__ = ("user_id",)
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    def __init__(self, user_id: _Optional[str] = ...) -> None: ...

class ListWebSessionsResponse(_message.Message):
    __slots__ = ("web_sessions",)
    WEB_SESSIONS_FIELD_NUMBER: _ClassVar[int]
    web_sessions: _containers.RepeatedCompositeFieldContainer[WebSession]
    def __init__(self, web_sessions: _Optional[_Iterable[_Union[WebSession, _Mapping]]] = ...) -> None: ...

class EndWebSessionsRequest(_message.Message):
    __slots__ = ("user_id", "web_session_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    WEB_SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    web_session_id: str
    def __init__(self, user_id: _Optional[str] = ..., web_session_id: _Optional[str] = ...) -> None: ...

class EndWebSessionsResponse(_message.Message):
    __slots__ = ("ended_count",)
    ENDED_COUNT_FIELD_NUMBER: _ClassVar[int]
    ended_count: int
    def __init__(self, ended_count: _Optional[int] = ...) -> None: ...
