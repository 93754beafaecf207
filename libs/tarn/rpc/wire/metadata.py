"""Constants that both ends of a gRPC connection share: metadata names, sizes, keepalive."""

from __future__ import annotations

__all__ = [
    "AUTHORIZATION",
    "BEARER",
    "BUCKET_HEADER",
    "CHANNEL_OPTIONS",
    "REQUEST_ID_HEADER",
    "SERVICE_HEADER",
    "SERVER_OPTIONS",
    "TRACEPARENT_HEADER",
]

REQUEST_ID_HEADER = "x-request-id"
SERVICE_HEADER = "tarn-service"
"""Header with the proof of the service that makes a user's call (`Call.service_token`)."""
BUCKET_HEADER = "tarn-bucket"
"""Header with the bucket view through which a call was made (`Call.bucket`)."""
AUTHORIZATION = "authorization"
BEARER = "Bearer "
TRACEPARENT_HEADER = "traceparent"

_REQUEST_BYTES_MAX = 4 * 1024 * 1024
# A page of 1,000 entries with paths up to 1 KiB and entries up to 12 KiB has 13 MiB, and a page of
# differences ends at 4 MiB. Requests have no such pages.
_RESPONSE_BYTES_MAX = 16 * 1024 * 1024

_PING_EVERY_MS = 20_000
_PING_TIMEOUT_MS = 10_000

_STREAMS_PER_CONNECTION_MAX = 1024
"""Clients that keep to HTTP/2 wait above it; of others, the streams are reset before any of our code runs."""

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _REQUEST_BYTES_MAX),
    ("grpc.max_send_message_length", _RESPONSE_BYTES_MAX),
    ("grpc.max_concurrent_streams", _STREAMS_PER_CONNECTION_MAX),
    ("grpc.keepalive_time_ms", _PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    # A quiet coalesced stream is pinged more often than gRPC allows by default.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_EVERY_MS // 2),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", _RESPONSE_BYTES_MAX),
    ("grpc.max_send_message_length", _REQUEST_BYTES_MAX),
    ("grpc.keepalive_time_ms", _PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # Despite its name, this limits one attempt, TLS handshake included: 100 ms were too short on a busy machine.
    ("grpc.min_reconnect_backoff_ms", 2000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # One connection per channel: two transports of one process do not share a broken one.
    ("grpc.use_local_subchannel_pool", 1),
)
