"""S3's errors: the table of codes, their rendering, and the mapping from `TarnError`s.

Codes and statuses are those of the S3 API reference. Clients act on them (S3A retries 5xx for minutes, and
takes 404 for "absent" and 412 for "changed"), so each failure of ours maps to the code that makes clients
react correctly. If S3 has no such failure, a comment beside the mapping explains the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.quota import is_quota_exceeded
from tarn_gateway.http import (
    BodyError,
    BodySlowError,
    BodyStalledError,
    BodyTruncatedError,
    Request,
    Response,
)
from tarn_gateway.xml_text import escape

__all__ = ["CODES", "S3Code", "S3Error", "error_response", "from_tarn_error"]

S3Code = Literal[
    "AccessControlListNotSupported",
    "AccessDenied",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "BadDigest",
    "BucketAlreadyExists",
    "BucketAlreadyOwnedByYou",
    "BucketNotEmpty",
    "ConditionalRequestConflict",
    "EntityTooLarge",
    "EntityTooSmall",
    "ExpiredCommit",
    "ExpiredToken",
    "IncompleteBody",
    "InternalError",
    "InvalidAccessKeyId",
    "InvalidArgument",
    "InvalidBucketName",
    "InvalidDigest",
    "InvalidLocationConstraint",
    "InvalidPart",
    "InvalidPartNumber",
    "InvalidPartOrder",
    "InvalidRange",
    "InvalidRequest",
    "InvalidStorageClass",
    "InvalidToken",
    "InvalidURI",
    "KeyTooLongError",
    "MalformedTrailerError",
    "MalformedXML",
    "MaxMessageLengthExceeded",
    "MetadataTooLarge",
    "MethodNotAllowed",
    "MissingContentLength",
    "MissingRequestBodyError",
    "MissingSecurityHeader",
    "NoSuchBucket",
    "NoSuchBucketPolicy",
    "NoSuchKey",
    "NoSuchLifecycleConfiguration",
    "NoSuchTagSet",
    "NoSuchUpload",
    "NoSuchVersion",
    "NoSuchWebsiteConfiguration",
    "NotImplemented",
    "ObjectErased",
    "ObjectLockConfigurationNotFoundError",
    "OperationAborted",
    "PreconditionFailed",
    "QuotaExceeded",
    "ReplicationConfigurationNotFoundError",
    "RequestTimeTooSkewed",
    "RequestTimeout",
    "ServerSideEncryptionConfigurationNotFoundError",
    "ServiceUnavailable",
    "SignatureDoesNotMatch",
    "SlowDown",
    "XAmzContentSHA256Mismatch",
]

CODES: Final[Mapping[S3Code, tuple[int, str]]] = {
    "AccessControlListNotSupported": (
        400,
        "There are no ACLs: the owner has full control, and users have the permissions of their policies. "
        "Send no ACL, or `private`.",
    ),
    "AccessDenied": (403, "Access denied."),
    "AuthorizationHeaderMalformed": (400, "The Authorization header is malformed."),
    "AuthorizationQueryParametersError": (400, "The authorization query parameters are invalid."),
    "BadDigest": (400, "A checksum that you sent does not match the body received."),
    "BucketAlreadyExists": (409, "The name belongs to another bucket; choose another name."),
    "BucketAlreadyOwnedByYou": (409, "There is a bucket of this name already, and you may use it."),
    "BucketNotEmpty": (409, "The bucket is not empty; delete its objects first."),
    "ConditionalRequestConflict": (409, "Another write of this key is in progress; try again."),
    "EntityTooLarge": (400, "The object is larger than allowed."),
    "EntityTooSmall": (400, "A part other than the last is smaller than the minimum of 5 MiB."),
    "ExpiredToken": (400, "The session key has expired."),
    "IncompleteBody": (400, "The body is shorter or longer than announced."),
    "InternalError": (500, "Internal error; please try again."),
    "InvalidAccessKeyId": (403, "There is no such access key id."),
    "InvalidArgument": (400, "An argument is invalid."),
    "InvalidBucketName": (400, "The bucket name is invalid."),
    "InvalidDigest": (400, "Content-MD5 is not the base64 form of 16 bytes."),
    "InvalidLocationConstraint": (400, "The location is not the region of this endpoint."),
    "InvalidPart": (400, "A part does not exist, or its ETag or checksum differs."),
    "InvalidPartNumber": (416, "The object has no part of this number."),
    "InvalidPartOrder": (400, "Parts must be listed by ascending part number."),
    "InvalidRange": (416, "The range begins after the end of the object."),
    "InvalidRequest": (400, "The request is invalid."),
    "InvalidStorageClass": (400, "The only storage class is STANDARD."),
    "InvalidToken": (400, "The security token is invalid."),
    "InvalidURI": (400, "The URI cannot be parsed."),
    "KeyTooLongError": (400, "The key is longer than 1024 bytes."),
    "MalformedTrailerError": (400, "The trailers are malformed or were not announced."),
    "MalformedXML": (400, "The XML is not well-formed or does not match the schema."),
    "MaxMessageLengthExceeded": (400, "The request is too large."),
    "MetadataTooLarge": (400, "User metadata is larger than 2048 bytes."),
    "MethodNotAllowed": (405, "The method is not allowed on this resource."),
    "MissingContentLength": (411, "Content-Length is required."),
    "MissingRequestBodyError": (400, "The request body is empty."),
    "MissingSecurityHeader": (400, "A required header is missing."),
    "ExpiredCommit": (
        410,
        "The commit has expired by a retention rule, and its objects are deleted.",
    ),
    "NoSuchBucket": (404, "There is no such repository or branch."),
    "NoSuchBucketPolicy": (404, "The bucket has no policy."),
    "NoSuchKey": (404, "There is no such key."),
    "NoSuchLifecycleConfiguration": (404, "The bucket has no lifecycle configuration."),
    "NoSuchTagSet": (404, "The bucket has no tags."),
    "NoSuchUpload": (404, "There is no such upload; it may be completed or aborted."),
    "NoSuchVersion": (404, "The object's data no longer exists."),
    "NoSuchWebsiteConfiguration": (404, "The bucket has no website configuration."),
    "NotImplemented": (501, "This is not implemented."),
    "ObjectErased": (410, "The object's data was erased out of all history."),
    "ObjectLockConfigurationNotFoundError": (404, "The bucket has no object lock."),
    "OperationAborted": (409, "A conflicting operation is in progress; try again."),
    "PreconditionFailed": (412, "A precondition does not hold."),
    "QuotaExceeded": (403, "A limit of the repository is reached."),
    "ReplicationConfigurationNotFoundError": (404, "The bucket is not replicated."),
    "RequestTimeTooSkewed": (403, "The request's time differs too much from the server's time."),
    "RequestTimeout": (400, "The body stopped arriving."),
    "ServerSideEncryptionConfigurationNotFoundError": (
        404,
        "The bucket has no encryption configuration.",
    ),
    "ServiceUnavailable": (503, "The service is unavailable; please try again."),
    "SignatureDoesNotMatch": (403, "The signature that we calculated differs from yours."),
    "SlowDown": (503, "Please slow down."),
    "XAmzContentSHA256Mismatch": (400, "x-amz-content-sha256 is not the hash of the body."),
}

HOST_ID: Final = "tarn"
RETRY_AFTER_S: Final = 1


class S3Error(Exception):
    """An S3 error to be sent to the client.

    Args:
        code: a key of `CODES`.
        message: a sentence for people; None takes the table's.
        headers: additional response headers, e.g. Content-Range of a 416.
        extra: further elements of the error document, e.g. `ArgumentName`.
    """

    def __init__(
        self,
        code: S3Code,
        message: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        **extra: str,
    ) -> None:
        self.code: S3Code = code
        self.status, default = CODES[code]
        self.message = default if message is None else message
        self.headers = dict(headers or {})
        self.extra = extra
        super().__init__(f"{code}: {self.message}")

    def xml(self, resource: str, request_id: str) -> bytes:
        """Renders the error document."""
        extra = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in self.extra.items())
        return (
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            f"<Error><Code>{self.code}</Code><Message>{escape(self.message)}</Message>{extra}"
            f"<Resource>{escape(resource)}</Resource><RequestId>{escape(request_id)}</RequestId>"
            f"<HostId>{HOST_ID}</HostId></Error>"
        ).encode()


def error_response(error: S3Error, request: Request) -> Response:
    """Returns the answer for an error: XML body, and Retry-After if a retry can succeed.

    The server omits the body for HEAD by itself; 304 is not an error (see `requests.conditions`).
    """
    headers = [("Content-Type", "application/xml"), *error.headers.items()]
    if error.status == 503 and "Retry-After" not in error.headers:
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    resource = request.raw_path.decode("latin-1")
    return Response(error.status, headers, error.xml(resource, request.request_id))


_REASONS: Final[Mapping[Reason, S3Code]] = {
    Reason.REPOSITORY_NOT_FOUND: "NoSuchBucket",
    Reason.REPOSITORY_DELETED: "NoSuchBucket",
    Reason.REPOSITORY_EXISTS: "BucketAlreadyExists",
    Reason.BUCKET_NOT_FOUND: "NoSuchBucket",
    Reason.BUCKET_EXISTS: "BucketAlreadyExists",
    # A tag, commit or relative ref refuses every write for ever. 405 says so without looking like a
    # missing permission (403 makes users check their policies), and no SDK retries it.
    Reason.REF_NOT_WRITABLE: "MethodNotAllowed",
    Reason.REF_AMBIGUOUS: "InvalidArgument",
    # The path had an object; a retention rule of the repository has let it go for ever. 410 is not retried.
    Reason.EXPIRED_COMMIT: "ExpiredCommit",
    Reason.ENTRY_NOT_FOUND: "NoSuchKey",
    Reason.PRECONDITION_FAILED: "PreconditionFailed",
    # The entry exists, its bytes do not: a plain NoSuchKey would hide the loss, 5xx would be
    # retried for minutes.
    Reason.BLOCK_NOT_FOUND: "NoSuchVersion",
    Reason.UPLOAD_NOT_FOUND: "NoSuchUpload",
    Reason.UPLOAD_PART_INVALID: "InvalidPart",
    Reason.UPLOAD_PART_ORDER: "InvalidPartOrder",
    Reason.UPLOAD_PART_TOO_SMALL: "EntityTooSmall",
    # Another replica is completing the same upload: SDKs retry 503 by themselves and then get that
    # replica's answer; they give up at 409. Applies to every kind of error with this reason.
    Reason.UPLOAD_BUSY: "ServiceUnavailable",
    # A body that took hours: the same request with its body, sent again, is a new block.
    Reason.ADDRESS_TOO_OLD: "ServiceUnavailable",
    # The clock of this gateway or of graveler is wrong. Another gateway, or this one later, makes a good address.
    Reason.ADDRESS_IN_FUTURE: "ServiceUnavailable",
    # Auth has another secret since a few seconds: the gateway gets a new token of its own by itself.
    Reason.ADDRESS_NOT_ISSUED: "ServiceUnavailable",
    Reason.CREDENTIAL_NOT_FOUND: "InvalidAccessKeyId",
    Reason.SESSION_TOKEN_INVALID: "InvalidToken",
    Reason.SESSION_EXPIRED: "ExpiredToken",
    Reason.SIGNATURE_MISMATCH: "SignatureDoesNotMatch",
    Reason.CALLER_TOKEN_INVALID: "AccessDenied",
    Reason.ACCESS_DENIED: "AccessDenied",
    Reason.INVALID_ARGUMENT: "InvalidArgument",
    Reason.INVALID_PAGE_TOKEN: "InvalidArgument",
    Reason.KEY_TOO_LONG: "KeyTooLongError",
    Reason.METADATA_TOO_LARGE: "MetadataTooLarge",
    # S3 has no such code. 403 ends a job with the message; 503 would have S3A try in vain for minutes.
    Reason.QUOTA_EXCEEDED: "QuotaExceeded",
    Reason.NOT_IMPLEMENTED: "NotImplemented",
    # Replicas of the last release may run; 412 would say that the condition of the request does not hold.
    Reason.FEATURE_LEVEL: "NotImplemented",
    Reason.OVERLOADED: "SlowDown",
    Reason.DATA_CORRUPT: "InternalError",
}

_REFS: Final = frozenset(
    {
        Reason.BRANCH_NOT_FOUND,
        Reason.TAG_NOT_FOUND,
        Reason.REF_NOT_FOUND,
        Reason.COMMIT_NOT_FOUND,
    }
)

_KINDS: Final[Mapping[Kind, S3Code]] = {
    Kind.NOT_FOUND: "NoSuchKey",
    Kind.ALREADY_EXISTS: "OperationAborted",
    Kind.INVALID: "InvalidArgument",
    Kind.DENIED: "AccessDenied",
    Kind.UNAUTHENTICATED: "AccessDenied",
    # Nothing was applied and a new attempt decides anew: every SDK handles 503 so.
    Kind.CONFLICT: "ServiceUnavailable",
    Kind.FAILED_PRECONDITION: "PreconditionFailed",
    Kind.EXHAUSTED: "SlowDown",
    Kind.UNAVAILABLE: "ServiceUnavailable",
    Kind.DEADLINE: "ServiceUnavailable",
    # Never 4xx (docs/design/protocol.md, rule 1): the client must try again, with the same bytes.
    Kind.UNKNOWN_OUTCOME: "ServiceUnavailable",
    Kind.UNIMPLEMENTED: "NotImplemented",
    Kind.CORRUPT: "InternalError",
    Kind.INTERNAL: "InternalError",
}

_RETRIED: Final = frozenset(
    {Kind.CONFLICT, Kind.EXHAUSTED, Kind.UNAVAILABLE, Kind.DEADLINE, Kind.UNKNOWN_OUTCOME}
)
_SECRET: Final = frozenset({Kind.CORRUPT, Kind.INTERNAL})


def from_tarn_error(error: TarnError, *, write: bool = False) -> S3Error:
    """Returns the S3 error for a `TarnError`.

    Args:
        error: the failure.
        write: whether the operation writes. A missing ref is NoSuchKey for a read (S3A then correctly takes
            the path for absent) and NoSuchBucket for a write (NoSuchKey as the answer to a PUT would not
            explain the failure).
    """
    if isinstance(error, BodyError):
        return _from_body_error(error)
    code = _KINDS[error.kind]
    if error.kind not in _RETRIED or is_quota_exceeded(error):
        code = _REASONS.get(error.reason, code)
        if error.reason in _REFS:
            code = "NoSuchBucket" if write else "NoSuchKey"
    # Internal details belong in the log, not in the answer to the client.
    return S3Error(code, None if error.kind in _SECRET else error.message)


def _from_body_error(error: BodyError) -> S3Error:
    match error:
        case BodyTruncatedError():
            return S3Error("IncompleteBody", error.message)
        case BodyStalledError() | BodySlowError():
            return S3Error("RequestTimeout", error.message)
        case _:
            return S3Error("InvalidRequest", error.message)
