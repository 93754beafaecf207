"""The limits of one HTTP server."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HttpLimits"]


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of one server and of each of its connections.

    Attributes:
        connections_max: open connections; further ones are answered 503 and closed.
        unidentified_max: of these, connections whose clients the handler has not identified (`Request.identified`); see
            `Admission`.
        header_count_max: header lines of a request; more is 431.
        header_bytes_max: request line and headers together; more is 431.
        url_bytes_max: request target; more is 414.
        header_timeout_s: from the first byte of a request (or from connecting) to its last header.
        idle_timeout_s: between two requests of a connection.
        idle_drain_s: how long a drain keeps idle connections: the next request is answered with `Connection: close`.
            A client whose request meets the close of its connection gets no answer (RFC 9112, section 9.5).
        body_stall_timeout_s: without one byte of a body that a handler waits for.
        write_stall_timeout_s: without the client receiving enough of an answer to continue.
        body_rate_min_bytes: bytes per second at which a client must send a body at least; see
            `BodyReader.rate_min_bytes`.
        body_buffer_bytes: size of each of the two receive buffers of a large or chunked body.
        body_buffers_max: such buffers of the whole server; further bodies get small ones.
        small_body_bytes: bodies up to this length get one buffer of exactly their size instead.
        write_buffer_bytes: unsent bytes of one connection above which its handler waits.
        unsent_bytes_max: unsent bytes of all connections together, above which those end that have waited longest.
        unsent_patience_s: without progress of its client, before an answer may be ended for that; see `give_way`.
        patient_threads_max: threads that wait at a time for a client to take more of a file.
        patience_ms: of one such wait; beyond it, the event loop waits for the client.
        drain_bytes_max: an unread rest of a body up to this size is read and discarded to keep the
            connection; with a larger rest the connection closes.
        linger_s: how long a closing connection still discards incoming bytes, so that a reset does not
            destroy the answer in transit.
        tls_handshake_timeout_s: from accepting to the end of the TLS handshake.
        tls_handshakes_max: TLS handshakes under way; beyond them the oldest one is closed.
    """

    connections_max: int = 10_000
    unidentified_max: int = 5_000
    header_count_max: int = 100
    header_bytes_max: int = 32 * 1024
    url_bytes_max: int = 16 * 1024
    header_timeout_s: float = 20.0
    idle_timeout_s: float = 120.0
    idle_drain_s: float = 1.0
    body_stall_timeout_s: float = 30.0
    write_stall_timeout_s: float = 60.0
    body_rate_min_bytes: int = 512
    body_buffer_bytes: int = 512 * 1024
    body_buffers_max: int = 512
    small_body_bytes: int = 64 * 1024
    write_buffer_bytes: int = 512 * 1024
    unsent_bytes_max: int = 256 * 1024 * 1024
    unsent_patience_s: float = 5.0
    patient_threads_max: int = 2
    patience_ms: int = 3
    drain_bytes_max: int = 256 * 1024
    linger_s: float = 2.0
    tls_handshake_timeout_s: float = 15.0
    tls_handshakes_max: int = 1024
