"""The message and the exit code for the errors of an S3 client.

boto3 wraps some of its errors in others (`S3UploadFailedError`), and puts the wrapped one's text inside its own. The
innermost one knows the status and the code of the answer, so it decides; the exit code is the one that the same
refusal has over rpc.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import botocore.exceptions

from tarn_cli.exits import CliError, Exit, Failure

__all__ = ["about", "exit_of_code", "s3_failure_of"]

_LIBRARIES = frozenset({"boto3", "botocore", "s3transfer", "urllib3"})
_DEPTH_MAX = 8

_STATUS_EXITS = {
    400: Exit.USAGE,
    401: Exit.DENIED,
    403: Exit.DENIED,
    404: Exit.NOT_FOUND,
    405: Exit.USAGE,
    409: Exit.CONFLICT,
    410: Exit.NOT_FOUND,
    411: Exit.USAGE,
    412: Exit.CONFLICT,
    416: Exit.USAGE,
    503: Exit.UNAVAILABLE,
}

# Codes whose status means something else in other answers, and those that stand alone in the answer of DeleteObjects.
_CODE_EXITS = {
    "AccessDenied": Exit.DENIED,
    "MethodNotAllowed": Exit.USAGE,
    "NoSuchBucket": Exit.NOT_FOUND,
    "QuotaExceeded": Exit.UNAVAILABLE,
    "RequestTimeout": Exit.UNAVAILABLE,
    "ServiceUnavailable": Exit.UNAVAILABLE,
    "SlowDown": Exit.UNAVAILABLE,
}

_HEAD_TEXTS = {
    400: "the request is invalid",
    403: "access denied",
    404: "no such object",
    503: "the service is unavailable",
}

_DOWN_HINT = "`tarn status` shows whether Tarn runs, `tarn context` which endpoint is used"
_REFS_HINT = "`tarn refs list REPOSITORY` shows the refs"

_HINTS = {
    "NoSuchBucket": "`tarn repo list` shows the repositories, `tarn branch list REPOSITORY` the branches",
    "NoSuchKey": "`tarn fs ls` lists the objects",
    "QuotaExceeded": "`tarn quota show REPOSITORY` shows the limits",
    "ServiceUnavailable": "`tarn status` shows whether Tarn runs",
    "InvalidAccessKeyId": "check the access key id, or run `tarn auth login`",
    "SignatureDoesNotMatch": "check the secret access key, or run `tarn auth login`",
    "AccessDenied": "`tarn auth whoami` shows your roles",
}


def exit_of_code(code: str) -> Exit:
    """The exit code for an error code of S3 without a status."""
    return _CODE_EXITS.get(code, Exit.FAILURE)


@contextmanager
def about(subject: object) -> Iterator[None]:
    """Within the block, an error of the S3 client becomes a `CliError` that begins with the subject.

    Raises:
        CliError: a call failed.
    """
    try:
        yield
    except Exception as error:
        failure = s3_failure_of(error)
        if failure is None:
            raise
        text = f"{subject}: {failure.message}"
        raise CliError(failure.exit_code, text, failure.hint, reason=failure.reason) from error


def s3_failure_of(error: BaseException) -> Failure | None:
    """The message for an error of an S3 client; None for any other error."""
    if not _is_of_client(error):
        return None
    match inner := _innermost(error):
        case botocore.exceptions.ClientError():
            return _of_answer(inner)
        case botocore.exceptions.SSLError():
            text = f"no trusted connection to the S3 endpoint: {inner}"
            hint = "TARN_ENDPOINT_CA names a file with the authority of a private certificate"
            return Failure(Exit.UNAVAILABLE, "UNAVAILABLE", text, hint)
        case (
            botocore.exceptions.HTTPClientError()
            | botocore.exceptions.ConnectionError()
            | botocore.exceptions.IncompleteReadError()
            | OSError()
        ):
            text = f"no answer of the S3 endpoint: {inner}"
            return Failure(Exit.UNAVAILABLE, "UNAVAILABLE", text, _DOWN_HINT)
        case _ if type(inner).__name__ == "ResponseParserError":
            text = "the endpoint does not answer as S3 does; is it the address of another service?"
            return Failure(Exit.FAILURE, "NOT_S3", text, "`tarn context` shows the endpoint")
        case _:
            return Failure(Exit.FAILURE, "S3_CLIENT", f"{inner}")


def _is_of_client(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _LIBRARIES


def _innermost(error: BaseException) -> BaseException:
    """The error that a library has wrapped."""
    seen = error
    for _ in range(_DEPTH_MAX):
        if isinstance(seen, botocore.exceptions.BotoCoreError | botocore.exceptions.ClientError):
            break
        inner: object = getattr(seen, "last_exception", None)
        inner = inner or seen.__cause__ or seen.__context__
        if not isinstance(inner, BaseException):
            break
        seen = inner
    return seen


def _of_answer(error: botocore.exceptions.ClientError) -> Failure:
    told = error.response.get("Error", {})
    code = str(told.get("Code", "Unknown"))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    message = str(told.get("Message") or code)
    exit_code = _CODE_EXITS.get(code, _STATUS_EXITS.get(status, Exit.FAILURE))
    hint = _HINTS.get(code, "")
    if code == "NoSuchKey" and error.operation_name.startswith("List"):
        hint = _REFS_HINT  # a listing misses no object, but the ref
    if code.isdigit():  # a HEAD has no body, hence no error code
        code = message = _HEAD_TEXTS.get(status, f"HTTP {code}")
    return Failure(exit_code, code, message, hint)
