"""Classifies the failure of one attempt at one call, in the same way for both client libraries.

`obstore` gives status and code of the answer only in its message, boto3 in a dict. All other modules
use `CallError` and never see either.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    PartialCredentialsError,
)
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["CallError", "Failure", "RAISED", "fault_of", "refused"]

RAISED: Final = (BaseError, BotoCoreError, ClientError, OSError, TimeoutError)
"""The exceptions that the libraries raise for a failed call; obstore's `FileNotFoundError` is an `OSError`."""


class Failure(enum.Enum):
    """The ways in which a call fails."""

    ABSENT = "there is no such object"
    NO_BUCKET = "there is no such bucket"
    NO_UPLOAD = "there is no such multipart upload"
    TAKEN = "an object of this name exists or is being written"
    BAD_PART = "a part was replaced by a later upload of the same part"
    TOO_SMALL = "a part other than the last has less than 5 MiB"
    PAST_END = "the range begins after the object's end"
    BUSY = "the server is overloaded or could not be reached"
    REGION = "the bucket is in another region"
    REFUSED = "the server does not let these credentials do this"
    LACKING = "the server does not support this"
    OTHER = "the server refused the request"


class CallError(Exception):
    """One failed attempt.

    Args:
        failure: the kind of failure.
        text: the message of the server or the network; contains no credentials.
    """

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(f"{failure.value} ({text})")
        self.failure = failure
        self.text = text


_CODES: Final = {
    "NoSuchKey": Failure.ABSENT,
    "NoSuchBucket": Failure.NO_BUCKET,
    "NoSuchUpload": Failure.NO_UPLOAD,
    "PreconditionFailed": Failure.TAKEN,
    "ConditionalRequestConflict": Failure.TAKEN,
    "InvalidPart": Failure.BAD_PART,
    "InvalidPartOrder": Failure.BAD_PART,
    "EntityTooSmall": Failure.TOO_SMALL,
    "InvalidRange": Failure.PAST_END,
    "SlowDown": Failure.BUSY,
    "RequestTimeout": Failure.BUSY,
    "InternalError": Failure.BUSY,
    "ServiceUnavailable": Failure.BUSY,
    "OperationAborted": Failure.BUSY,
    "IncompleteBody": Failure.BUSY,
    "BadDigest": Failure.BUSY,
    "XAmzContentSHA256Mismatch": Failure.BUSY,
    "PermanentRedirect": Failure.REGION,
    "TemporaryRedirect": Failure.REGION,
    "AuthorizationHeaderMalformed": Failure.REGION,
    "IllegalLocationConstraintException": Failure.REGION,
    "NotImplemented": Failure.LACKING,
}
_STATUSES: Final = {
    301: Failure.REGION,
    307: Failure.REGION,
    401: Failure.REFUSED,
    403: Failure.REFUSED,
    404: Failure.ABSENT,
    408: Failure.BUSY,
    409: Failure.TAKEN,
    412: Failure.TAKEN,
    416: Failure.PAST_END,
    429: Failure.BUSY,
    501: Failure.LACKING,
}
_WHOLE: Final = "non-partial response"
"""In the text of an error of obstore: the answer to a read of a range was no part of the object."""
_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_MESSAGE: Final = re.compile(r"<Message>([^<]{1,300})</Message>")


def fault_of(error: BaseException) -> CallError:
    """Returns the fault for an exception of `RAISED`."""
    if isinstance(error, ClientError):
        said = error.response.get("Error", {})
        code = str(said.get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code.isdigit():  # an answer without a body: HEAD
            code, status = "", int(code)
        return _fault(status, code, str(said.get("Message", ""))[:300])
    if isinstance(error, BaseError | FileNotFoundError):
        return _of_obstore(error)
    if isinstance(error, NoCredentialsError | PartialCredentialsError):
        return CallError(Failure.REFUSED, str(error)[:300])
    return CallError(Failure.BUSY, f"{type(error).__name__}: {str(error)[:300]}".rstrip(": "))


def _of_obstore(error: BaseException) -> CallError:
    text = str(error)
    status, code, said = _STATUS.search(text), _CODE.search(text), _MESSAGE.search(text)
    if status is not None or code is not None:
        fault = _fault(
            int(status[1]) if status else 0, code[1] if code else "", said[1] if said else ""
        )
        if fault.failure is not Failure.OTHER:
            return fault
    if isinstance(error, AlreadyExistsError | PreconditionError):
        return CallError(Failure.TAKEN, "412")
    if isinstance(error, FileNotFoundError):
        return CallError(Failure.ABSENT, "404")
    first = text.partition("\n")[0][:300]
    if _WHOLE in text:  # with 200 instead of 206
        return CallError(Failure.LACKING, "reads of a range: it sent the whole object")
    # No status means no answer: the connection was refused, cut or timed out.
    return CallError(Failure.BUSY if status is None else Failure.OTHER, first)


def _fault(status: int, code: str, message: str) -> CallError:
    shown = " ".join(part for part in (str(status or ""), code, message) if part)
    failure = _CODES.get(code) or _STATUSES.get(status)
    if failure is None:
        failure = Failure.BUSY if status >= 500 else Failure.OTHER
    return CallError(failure, shown)


def refused(fault: CallError, doing: str) -> TarnError:
    """Returns the error for a fault that the store does not handle; `doing` completes "cannot ..."."""
    text = f"cannot {doing}: {fault}"
    if fault.failure is Failure.BUSY:
        return TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)
    if fault.failure is Failure.NO_BUCKET:
        return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)
    # Not DENIED or INVALID: the server refused the installation, not its client.
    return TarnError(Kind.INTERNAL, Reason.INTERNAL, text)
