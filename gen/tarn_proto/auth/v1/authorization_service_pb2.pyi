from tarn_proto.auth.v1 import caller_pb2 as _caller_pb2
from tarn_proto.common.v1 import bound_pb2 as _bound_pb2
from tarn_proto.common.v1 import operation_pb2 as _operation_pb2
from tarn_proto.common.v1 import rule_pb2 as _rule_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperateRequest(_message.Message):
    __slots__ = ("operations",)
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    operations: _containers.RepeatedCompositeFieldContainer[Operation]
    def __init__(self, operations: _Optional[_Iterable[_Union[Operation, _Mapping]]] = ...) -> None: ...

class OperateResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[OperationResult]
    def __init__(self, results: _Optional[_Iterable[_Union[OperationResult, _Mapping]]] = ...) -> None: ...

class Operation(_message.Message):
    __slots__ = ("header", "authorize_key", "authorize_token", "authorize_service", "authorize_signature_v2", "begin_web_session", "authorize_web_session", "end_web_session", "sign_download")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_KEY_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_SERVICE_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_SIGNATURE_V2_FIELD_NUMBER: _ClassVar[int]
    BEGIN_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    END_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    SIGN_DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    header: _operation_pb2.OperationHeader
    authorize_key: AuthorizeKey
    authorize_token: AuthorizeToken
    authorize_service: AuthorizeService
    authorize_signature_v2: AuthorizeSignatureV2
    begin_web_session: BeginWebSession
    authorize_web_session: AuthorizeWebSession
    end_web_session: EndWebSession
    sign_download: SignDownload
    def __init__(self, header: _Optional[_Union[_operation_pb2.OperationHeader, _Mapping]] = ..., authorize_key: _Optional[_Union[AuthorizeKey, _Mapping]] = ..., authorize_token: _Optional[_Union[AuthorizeToken, _Mapping]] = ..., authorize_service: _Optional[_Union[AuthorizeService, _Mapping]] = ..., authorize_signature_v2: _Optional[_Union[AuthorizeSignatureV2, _Mapping]] = ..., begin_web_session: _Optional[_Union[BeginWebSession, _Mapping]] = ..., authorize_web_session: _Optional[_Union[AuthorizeWebSession, _Mapping]] = ..., end_web_session: _Optional[_Union[EndWebSession, _Mapping]] = ..., sign_download: _Optional[_Union[SignDownload, _Mapping]] = ...) -> None: ...

class OperationResult(_message.Message):
    __slots__ = ("operation_id", "error", "authorize_key", "authorize_token", "authorize_service", "authorize_signature_v2", "begin_web_session", "authorize_web_session", "end_web_session", "sign_download")
    OPERATION_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_KEY_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_SERVICE_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_SIGNATURE_V2_FIELD_NUMBER: _ClassVar[int]
    BEGIN_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    AUTHORIZE_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    END_WEB_SESSION_FIELD_NUMBER: _ClassVar[int]
    SIGN_DOWNLOAD_FIELD_NUMBER: _ClassVar[int]
    operation_id: int
    error: _operation_pb2.OperationError
    authorize_key: AuthorizeKeyResult
    authorize_token: AuthorizeTokenResult
    authorize_service: AuthorizeServiceResult
    authorize_signature_v2: AuthorizeSignatureV2Result
    begin_web_session: BeginWebSessionResult
    authorize_web_session: AuthorizeWebSessionResult
    end_web_session: EndWebSessionResult
    sign_download: SignDownloadResult
    def __init__(self, operation_id: _Optional[int] = ..., error: _Optional[_Union[_operation_pb2.OperationError, _Mapping]] = ..., authorize_key: _Optional[_Union[AuthorizeKeyResult, _Mapping]] = ..., authorize_token: _Optional[_Union[AuthorizeTokenResult, _Mapping]] = ..., authorize_service: _Optional[_Union[AuthorizeServiceResult, _Mapping]] = ..., authorize_signature_v2: _Optional[_Union[AuthorizeSignatureV2Result, _Mapping]] = ..., begin_web_session: _Optional[_Union[BeginWebSessionResult, _Mapping]] = ..., authorize_web_session: _Optional[_Union[AuthorizeWebSessionResult, _Mapping]] = ..., end_web_session: _Optional[_Union[EndWebSessionResult, _Mapping]] = ..., sign_download: _Optional[_Union[SignDownloadResult, _Mapping]] = ...) -> None: ...

class AuthorizeKey(_message.Message):
    __slots__ = ("access_key_id", "date", "region", "service", "session_token_digest")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    DATE_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    date: str
    region: str
    service: str
    session_token_digest: bytes
    def __init__(self, access_key_id: _Optional[str] = ..., date: _Optional[str] = ..., region: _Optional[str] = ..., service: _Optional[str] = ..., session_token_digest: _Optional[bytes] = ...) -> None: ...

class AuthorizeKeyResult(_message.Message):
    __slots__ = ("signing_key", "grant")
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    GRANT_FIELD_NUMBER: _ClassVar[int]
    signing_key: bytes
    grant: _caller_pb2.Grant
    def __init__(self, signing_key: _Optional[bytes] = ..., grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ...) -> None: ...

class AuthorizeToken(_message.Message):
    __slots__ = ("caller_token",)
    CALLER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    caller_token: str
    def __init__(self, caller_token: _Optional[str] = ...) -> None: ...

class AuthorizeTokenResult(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: _caller_pb2.Grant
    def __init__(self, grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ...) -> None: ...

class AuthorizeService(_message.Message):
    __slots__ = ("service",)
    SERVICE_FIELD_NUMBER: _ClassVar[int]
    service: str
    def __init__(self, service: _Optional[str] = ...) -> None: ...

class AuthorizeServiceResult(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: _caller_pb2.Grant
    def __init__(self, grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ...) -> None: ...

class AuthorizeSignatureV2(_message.Message):
    __slots__ = ("access_key_id", "string_to_sign", "signature", "session_token_digest")
    ACCESS_KEY_ID_FIELD_NUMBER: _ClassVar[int]
    STRING_TO_SIGN_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    SESSION_TOKEN_DIGEST_FIELD_NUMBER: _ClassVar[int]
    access_key_id: str
    string_to_sign: bytes
    signature: bytes
    session_token_digest: bytes
    def __init__(self, access_key_id: _Optional[str] = ..., string_to_sign: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., session_token_digest: _Optional[bytes] = ...) -> None: ...

class AuthorizeSignatureV2Result(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: _caller_pb2.Grant
    def __init__(self, grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ...) -> None: ...

class BeginWebSession(_message.Message):
    __slots__ = ("caller_token",)
    CALLER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    caller_token: str
    def __init__(self, caller_token: _Optional[str] = ...) -> None: ...

class BeginWebSessionResult(_message.Message):
    __slots__ = ("secret",)
    SECRET_FIELD_NUMBER: _ClassVar[int]
    secret: str
    def __init__(self, secret: _Optional[str] = ...) -> None: ...

class AuthorizeWebSession(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class AuthorizeWebSessionResult(_message.Message):
    __slots__ = ("grant",)
    GRANT_FIELD_NUMBER: _ClassVar[int]
    grant: _caller_pb2.Grant
    def __init__(self, grant: _Optional[_Union[_caller_pb2.Grant, _Mapping]] = ...) -> None: ...

class EndWebSession(_message.Message):
    __slots__ = ("digest",)
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    digest: bytes
    def __init__(self, digest: _Optional[bytes] = ...) -> None: ...

class EndWebSessionResult(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class SignDownload(_message.Message):
    __slots__ = ("caller_token", "host", "region", "repository", "ref", "path", "file_name")
    CALLER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    REGION_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    REF_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    FILE_NAME_FIELD_NUMBER: _ClassVar[int]
    caller_token: str
    host: str
    region: str
    repository: str
    ref: str
    path: str
    file_name: str
    def __init__(self, caller_token: _Optional[str] = ..., host: _Optional[str] = ..., region: _Optional[str] = ..., repository: _Optional[str] = ..., ref: _Optional[str] = ..., path: _Optional[str] = ..., file_name: _Optional[str] = ...) -> None: ...

class SignDownloadResult(_message.Message):
    __slots__ = ("target",)
    TARGET_FIELD_NUMBER: _ClassVar[int]
    target: str
    def __init__(self, target: _Optional[str] = ...) -> None: ...
