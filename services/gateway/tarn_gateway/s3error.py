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
from tarn.objects.bodies import LostBytesError
from tarn.objects.copying import SourceTooLargeError
from tarn.objects.erased import ErasedObjectError
from tarn_gateway.http import (
    BodyError,
    BodySlowError,
    BodyStalledError,
    BodyTruncatedError,
    Request,
    Response,
)
from tarn_gateway.xml_text import escape

__all__ = [
    "CODES",
    "S3Code",
    "S3Error",
    "broken_chunks",
    "error_response",
    "from_tarn_error",
    "head_refusal",
]

S3Code = Literal[
    "AccessControlListNotSupported",
    "AccessDenied",
    "AccessForbidden",
    "AuthorizationHeaderMalformed",
    "AuthorizationQueryParametersError",
    "BadDigest",
    "BadRequest",
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
    "InvalidPolicyDocument",
    "InvalidRange",
    "InvalidRequest",
    "InvalidStorageClass",
    "InvalidTag",
    "InvalidToken",
    "InvalidURI",
    "KeyTooLongError",
    "MalformedPOSTRequest",
    "MalformedTrailerError",
    "MalformedXML",
    "MaxMessageLengthExceeded",
    "MaxPostPreDataLengthExceededError",
    "MetadataTooLarge",
    "MethodNotAllowed",
    "MissingContentLength",
    "MissingRequestBodyError",
    "MissingSecurityHeader",
    "NoSuchBucket",
    "NoSuchBucketPolicy",
    "NoSuchCORSConfiguration",
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
    "AccessControlListNotSupported": (400, "The bucket does not allow ACLs"),
    "AccessDenied": (403, "Access Denied"),
    "AccessForbidden": (
        403,
        "CORSResponse: This CORS request is not allowed. This is usually because the evalution "
        "of Origin, request method / Access-Control-Request-Method or "
        "Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
    ),
    "AuthorizationHeaderMalformed": (400, "The authorization header is malformed"),
    "AuthorizationQueryParametersError": (400, "The authorization query parameters are invalid."),
    "BadDigest": (400, "The Content-MD5 you specified did not match what we received."),
    "BadRequest": (400, "An error occurred when parsing the HTTP request."),
    "BucketAlreadyExists": (
        409,
        "The requested bucket name is not available. The bucket namespace is shared by all users "
        "of the system. Please select a different name and try again.",
    ),
    "BucketAlreadyOwnedByYou": (
        409,
        "Your previous request to create the named bucket succeeded and you already own it.",
    ),
    "BucketNotEmpty": (409, "The bucket you tried to delete is not empty"),
    "ConditionalRequestConflict": (
        409,
        "The conditional request cannot succeed due to a conflicting operation against this "
        "resource.",
    ),
    "EntityTooLarge": (400, "Your proposed upload exceeds the maximum allowed size"),
    "EntityTooSmall": (400, "Your proposed upload is smaller than the minimum allowed size"),
    "ExpiredToken": (400, "The provided token has expired."),
    "IncompleteBody": (
        400,
        "You did not provide the number of bytes specified by the Content-Length HTTP header",
    ),
    "InternalError": (500, "We encountered an internal error. Please try again."),
    "InvalidAccessKeyId": (
        403,
        "The AWS Access Key Id you provided does not exist in our records.",
    ),
    "InvalidArgument": (400, "Invalid Argument"),
    "InvalidBucketName": (400, "The specified bucket is not valid."),
    "InvalidDigest": (400, "The Content-MD5 you specified was invalid."),
    "InvalidLocationConstraint": (400, "The specified location-constraint is not valid"),
    "InvalidPart": (
        400,
        "One or more of the specified parts could not be found.  The part may not have been "
        "uploaded, or the specified entity tag may not match the part's entity tag.",
    ),
    "InvalidPartNumber": (416, "The requested partnumber is not satisfiable"),
    "InvalidPartOrder": (
        400,
        "The list of parts was not in ascending order. Parts must be ordered by part number.",
    ),
    "InvalidPolicyDocument": (400, "The policy document of the form cannot be read."),
    "InvalidRange": (416, "The requested range is not satisfiable"),
    "InvalidRequest": (400, "The request is invalid."),
    "InvalidStorageClass": (400, "The storage class you specified is not valid"),
    "InvalidTag": (
        400,
        "The tag provided was not a valid tag. This error can occur if the tag did not pass input validation.",
    ),
    "InvalidToken": (400, "The provided token is malformed or otherwise invalid."),
    "InvalidURI": (400, "Couldn't parse the specified URI."),
    "KeyTooLongError": (400, "Your key is too long"),
    "MalformedPOSTRequest": (
        400,
        "The body of your POST request is not well-formed multipart/form-data.",
    ),
    "MalformedTrailerError": (
        400,
        "The request contained trailing data that was not well-formed or did not conform to our "
        "published schema.",
    ),
    "MalformedXML": (
        400,
        "The XML you provided was not well-formed or did not validate against our published schema",
    ),
    "MaxMessageLengthExceeded": (400, "Your request was too big."),
    "MaxPostPreDataLengthExceededError": (
        400,
        "Your POST request fields preceding the upload file were too large.",
    ),
    "MetadataTooLarge": (400, "Your metadata headers exceed the maximum allowed metadata size"),
    "MethodNotAllowed": (405, "The specified method is not allowed against this resource."),
    "MissingContentLength": (411, "You must provide the Content-Length HTTP header."),
    "MissingRequestBodyError": (400, "Request Body is empty"),
    "MissingSecurityHeader": (400, "Your request was missing a required header"),
    "ExpiredCommit": (
        410,
        "The commit has expired by a retention rule, and its objects are deleted.",
    ),
    "NoSuchBucket": (404, "The specified bucket does not exist"),
    "NoSuchBucketPolicy": (404, "The bucket policy does not exist"),
    "NoSuchCORSConfiguration": (404, "The CORS configuration does not exist"),
    "NoSuchKey": (404, "The specified key does not exist."),
    "NoSuchLifecycleConfiguration": (404, "The lifecycle configuration does not exist"),
    "NoSuchTagSet": (404, "The TagSet does not exist"),
    "NoSuchUpload": (
        404,
        "The specified upload does not exist. The upload ID may be invalid, or the upload may "
        "have been aborted or completed.",
    ),
    "NoSuchVersion": (404, "The specified version does not exist."),
    "NoSuchWebsiteConfiguration": (
        404,
        "The specified bucket does not have a website configuration",
    ),
    "NotImplemented": (501, "A header you provided implies functionality that is not implemented"),
    "ObjectErased": (410, "The object's data was erased out of all history."),
    "ObjectLockConfigurationNotFoundError": (
        404,
        "Object Lock configuration does not exist for this bucket",
    ),
    "OperationAborted": (
        409,
        "A conflicting conditional operation is currently in progress against this resource. "
        "Please try again.",
    ),
    "PreconditionFailed": (412, "At least one of the pre-conditions you specified did not hold"),
    "QuotaExceeded": (403, "A limit of the repository is reached."),
    "ReplicationConfigurationNotFoundError": (404, "The replication configuration was not found"),
    "RequestTimeTooSkewed": (
        403,
        "The difference between the request time and the current time is too large.",
    ),
    "RequestTimeout": (
        400,
        "Your socket connection to the server was not read from or written to within the timeout "
        "period. Idle connections will be closed.",
    ),
    "ServerSideEncryptionConfigurationNotFoundError": (
        404,
        "The server side encryption configuration was not found",
    ),
    "ServiceUnavailable": (503, "Service is unable to handle request."),
    "SignatureDoesNotMatch": (
        403,
        "The request signature we calculated does not match the signature you provided. Check "
        "your key and signing method.",
    ),
    "SlowDown": (503, "Please reduce your request rate."),
    "XAmzContentSHA256Mismatch": (
        400,
        "The provided 'x-amz-content-sha256' header does not match what was computed.",
    ),
}
"""Status and sentence of each code. The sentences are S3's, because people search for them; ExpiredCommit, ObjectErased
and QuotaExceeded are Tarn's own."""

_VARIOUS: Final = frozenset(
    {
        "AuthorizationQueryParametersError",
        "BadRequest",
        "ExpiredCommit",
        "InvalidArgument",
        "InvalidPolicyDocument",
        "InvalidRequest",
        "InvalidTag",
        "ObjectErased",
        "QuotaExceeded",
    }
)
"""Codes whose sentence differs from case to case: the message of an error replaces that of the table."""
_BODY_ENDED: Final = "The request body terminated unexpectedly"
_SENTENCES: Final = (
    _BODY_ENDED,
    "AWS authentication requires a valid Date or x-amz-date header",
    "Invalid according to Policy:",
    "Request has expired",
    "Request is not valid yet",
    "The CRC",
    "The SHA",
    "The crc",
    "The sha",
    "There were headers present in the request which were not signed",
)
"""Beginnings of S3's other sentences of codes, which replace that of the table, too."""

_RESTATED: Final = frozenset(
    {
        "InvalidAccessKeyId",
        "InvalidPart",
        "InvalidPartOrder",
        "MalformedXML",
        "NoSuchUpload",
    }
)
"""Codes whose sentence says all that a program compares; some test suites do. What Tarn adds is an element of its own,
`Detail`."""

HOST_ID: Final = "tarn"
RETRY_AFTER_S: Final = 1


def _told(code: S3Code, sentence: str, message: str) -> str:
    if code in _VARIOUS or message.startswith((sentence, *_SENTENCES)):
        return message
    return f"{sentence.rstrip('.')}. {message}"


class S3Error(Exception):
    """An S3 error to be sent to the client.

    Args:
        code: a key of `CODES`.
        message: what S3's sentence does not say, for people. It follows that sentence, or replaces it where S3 has
            another one for the case, or is an element of its own (`_RESTATED`). None: nothing.
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
        self.status, sentence = CODES[code]
        if message is not None and code in _RESTATED:
            extra, message = {**extra, "Detail": message}, None
        self.message = sentence if message is None else _told(code, sentence, message)
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


def broken_chunks(detail: str) -> S3Error:
    """Returns the error of an aws-chunked body with broken framing or without an end: S3 calls both IncompleteBody."""
    return S3Error("IncompleteBody", f"{_BODY_ENDED}. aws-chunked: {detail}.")


def error_response(error: S3Error, request: Request) -> Response:
    """Returns the answer for an error: XML body, and Retry-After if a retry can succeed.

    The server omits the body for HEAD by itself; 304 is not an error (see `requests.conditions`).
    """
    headers = [("Content-Type", "application/xml"), *error.headers.items()]
    if error.status == 503 and "Retry-After" not in error.headers:
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    resource = request.raw_path.decode("latin-1")
    return Response(error.status, headers, error.xml(resource, request.request_id))


_HEAD_CODES: Final[Mapping[int, S3Code]] = {
    405: "MethodNotAllowed",
    503: "SlowDown",
    408: "RequestTimeout",
    501: "NotImplemented",
}


def head_refusal(status: int, detail: str, request_id: str) -> Response:
    """Returns the answer to a head that cannot be parsed: HTTP's status, and S3's code for it."""
    code = _HEAD_CODES.get(status, "BadRequest")
    error = S3Error(code, f"{CODES[code][1].rstrip('.')}. {detail}")
    headers = [("Content-Type", "application/xml")]
    if status == 503:
        headers.append(("Retry-After", str(RETRY_AFTER_S)))
    return Response(status, headers, error.xml("", request_id))


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
    if isinstance(error, _BY_CLASS):
        return _from_class(error)
    code = _KINDS[error.kind]
    if error.kind not in _RETRIED or is_quota_exceeded(error):
        code = _REASONS.get(error.reason, code)
        if error.reason in _REFS:
            code = "NoSuchBucket" if write else "NoSuchKey"
    # Internal details belong in the log, not in the answer to the client.
    shown = S3Error(code, None if error.kind in _SECRET else error.message)
    if code == "InvalidPart" and (number := error.metadata.get("part_number")):
        shown.extra["PartNumber"] = number
    return shown


_BY_CLASS: Final = (BodyError, LostBytesError, ErasedObjectError, SourceTooLargeError)
"""Classes of errors whose text is S3's or for clients."""


def _from_class(error: TarnError) -> S3Error:
    match error:
        case LostBytesError():
            return S3Error("InternalError", error.message)
        case ErasedObjectError():
            return S3Error("ObjectErased", error.message, ErasurePlan=error.plan_id)
        case SourceTooLargeError():
            return S3Error("InvalidRequest", error.message)
        case BodyTruncatedError():
            return S3Error("IncompleteBody", error.message)
        case BodyStalledError() | BodySlowError():
            return S3Error("RequestTimeout", error.message)
        case _:
            return S3Error("InvalidRequest", error.message)
