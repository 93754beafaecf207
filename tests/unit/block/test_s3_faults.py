"""Errors of servers and networks become one of a few failures."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import obstore
import pytest
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PermissionDeniedError
from obstore.store import S3Store

from tarn.block.s3.faults import Failure, fault_of, refused
from tarn.core.errors import Kind


def answer(status: int, code: str, message: str = "") -> ClientError:
    said = {"Error": {"Code": code, "Message": message}}
    return ClientError({**said, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutObject")


def text(status: int, code: str = "") -> str:
    body = f"<Error><Code>{code}</Code><Message>said</Message></Error>" if code else ""
    return f"Generic S3 error: non-2xx status code: {status} Some Reason: {body}\n\nDebug source: x"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (answer(503, "SlowDown"), Failure.BUSY),
        (answer(500, "InternalError"), Failure.BUSY),
        (
            answer(200, "InternalError"),
            Failure.BUSY,
        ),  # CompleteMultipartUpload reports errors this way
        (answer(404, "NoSuchUpload"), Failure.NO_UPLOAD),
        (answer(404, "404"), Failure.ABSENT),
        (answer(400, "InvalidPart"), Failure.BAD_PART),
        (answer(412, "PreconditionFailed"), Failure.TAKEN),
        (answer(409, "ConditionalRequestConflict"), Failure.TAKEN),
        (answer(403, "AccessDenied"), Failure.REFUSED),
        (answer(301, "PermanentRedirect"), Failure.REGION),
        (answer(501, "NotImplemented"), Failure.LACKING),
        (answer(400, "SomethingNew"), Failure.OTHER),
        (answer(599, "SomethingNew"), Failure.BUSY),
        (NoCredentialsError(), Failure.REFUSED),
        (ReadTimeoutError(endpoint_url="http://x"), Failure.BUSY),
        (FileNotFoundError(text(404, "NoSuchKey")), Failure.ABSENT),
        (FileNotFoundError(text(404, "NoSuchBucket")), Failure.NO_BUCKET),
        (FileNotFoundError(text(404)), Failure.ABSENT),
        (AlreadyExistsError(text(412, "PreconditionFailed")), Failure.TAKEN),
        (AlreadyExistsError("no text of an answer"), Failure.TAKEN),
        (PermissionDeniedError(text(403, "SignatureDoesNotMatch")), Failure.REFUSED),
        (GenericError(text(503, "SlowDown")), Failure.BUSY),
        (GenericError(text(416, "InvalidRange")), Failure.PAST_END),
        (GenericError("error sending request: connection refused"), Failure.BUSY),
        (ConnectionResetError("cut"), Failure.BUSY),
        (TimeoutError(), Failure.BUSY),
    ],
)
def test_failure_is_reported(error: Exception, failure: Failure) -> None:
    assert fault_of(error).failure is failure


def test_text_quotes_the_servers_error_and_nothing_else() -> None:
    assert fault_of(answer(503, "SlowDown", "reduce")).text == "503 SlowDown reduce"
    assert fault_of(GenericError(text(503, "SlowDown"))).text == "503 SlowDown said"
    assert len(fault_of(OSError("x" * 9000)).text) < 400


def test_missing_permissions_of_the_installation_are_an_internal_error() -> None:
    """The kind DENIED would reach the client as AccessDenied, although the client is not at fault."""
    error = refused(fault_of(answer(403, "AccessDenied")), "write s3://b/k")
    assert error.kind is Kind.INTERNAL
    assert "write s3://b/k" in error.message
    assert refused(fault_of(answer(503, "SlowDown")), "x").kind is Kind.UNAVAILABLE


async def test_a_bucket_that_ignores_ranges_is_not_called_overloaded() -> None:
    """A real answer to a real client, whose error has neither a status nor a code."""

    class Whole(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            for name, value in (
                ("Content-Length", "5"),
                ("ETag", '"x"'),
                ("Last-Modified", "Wed, 21 Oct 2015 07:28:00 GMT"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"12345")

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Whole) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        store = S3Store(
            "bucket",
            endpoint=f"http://127.0.0.1:{server.server_port}",
            access_key_id="a",
            secret_access_key="b",
            region="us-east-1",
            client_options={"allow_http": True},
        )
        with pytest.raises(BaseError) as caught:
            await obstore.get_async(store, "key", options={"range": (1, 3)})
        server.shutdown()
    fault = fault_of(caught.value)
    assert fault.failure is Failure.LACKING
    assert "reads of a range" in str(fault)
