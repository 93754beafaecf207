"""A request whose head was received; `Request.body` reads its body."""

from __future__ import annotations

from tarn_gateway.http.body import BodyReader
from tarn_gateway.http.headers import Headers

__all__ = ["Request"]


class Request:
    """One request.

    Attributes:
        method: upper case, e.g. `PUT`.
        raw_path: the path as received, percent-encoded, beginning with `/`.
        raw_query: the bytes after the first `?`; empty if there is none.
        headers: see `Headers`.
        body: reads the body; `body.length` is its Content-Length, None if it is chunked.
        remote_addr: the peer's address, `host:port`.
        request_id: 20 upper-case hex digits, unique; also sent as `x-amz-request-id`.
        secure: whether the connection is TLS.
        http_1_0: whether the client speaks HTTP/1.0.
        identified: the handler sets it once it knows who sent the request; see `Admission`.
        client: the user whom the handler has identified; before that, the last one on the same connection. Empty: none.
        is_queued: whether the handler has not begun to work on it; see `Admission`.
        timing: phases for the `Server-Timing` of the answer, each followed by a comma; the server adds the total. The
            handler sets it, for identified clients only.

    What is not known yet is an attribute of the class, as in `Trace`.
    """

    identified = False
    is_queued = False
    timing = ""

    def __init__(
        self,
        method: str,
        raw_path: bytes,
        raw_query: bytes,
        headers: Headers,
        body: BodyReader,
        remote_addr: str = "",
        request_id: str = "",
        secure: bool = False,
        keep_alive: bool = True,
        http_1_0: bool = False,
        client: str = "",
    ) -> None:
        self.method = method
        self.raw_path = raw_path
        self.raw_query = raw_query
        self.headers = headers
        self.body = body
        self.remote_addr = remote_addr
        self.request_id = request_id
        self.secure = secure
        self.keep_alive = keep_alive
        self.http_1_0 = http_1_0
        self.client = client

    def __repr__(self) -> str:
        # Never the query or the headers: presigned URLs are secrets (docs/design/security.md, "Secrets").
        return f"<Request {self.request_id} {self.method} {self.raw_path!r}>"
