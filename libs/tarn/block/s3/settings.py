"""The settings and limits with which an S3 store is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["PART_BYTES_MAX", "PART_BYTES_MIN", "S3Limits", "S3Settings"]

PART_BYTES_MIN: Final = 5 << 20
"""S3's minimum size of a part other than the last."""
PART_BYTES_MAX: Final = 1 << 30
"""Maximum size of our own parts, which are held in memory."""


@dataclass(frozen=True, slots=True)
class S3Limits:
    """Limits on the requests of one process and on their retries.

    Attributes:
        part_bytes: bodies up to this size are put in one request; larger ones in parts of this size.
        requests: maximum number of concurrent requests.
        large_writes: maximum number of concurrent writes of bodies larger than a chunk, and of the parts that they
            all hold in memory; each holds one to three.
        attempts: attempts of one request, including the first.
        attempt_seconds: time limit of one attempt.
        deadline_seconds: time limit of all attempts, including the pauses between them.
        connect_seconds: time limit of opening a connection.
        pause_seconds: upper bound of the first pause; each next bound may be twice as long.
        pause_seconds_max: upper bound of every pause.
    """

    part_bytes: int = 8 << 20
    requests: int = 64
    large_writes: int = 32
    attempts: int = 6
    attempt_seconds: float = 30.0
    deadline_seconds: float = 60.0
    connect_seconds: float = 5.0
    pause_seconds: float = 0.2
    pause_seconds_max: float = 5.0

    def __post_init__(self) -> None:
        if not PART_BYTES_MIN <= self.part_bytes <= PART_BYTES_MAX:
            text = f"parts must have 5 MiB to 1 GiB, not {self.part_bytes} bytes"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text)


@dataclass(frozen=True, slots=True)
class S3Settings:
    """The server and its credentials. Its repr contains no secret.

    Attributes:
        namespace: the default for repositories, `s3://bucket/prefix`; the server is checked there.
        region: the region that requests are signed for.
        endpoint: URL of the server; None: AWS.
        path_style: whether the bucket is in the path instead of the host name.
        ca: PEM file of authorities that may have signed the server's certificate, in addition to the system's.
        access_key_id: static credentials; None: profile, environment, container or instance, as in
            every AWS SDK.
        secret_access_key: set together with `access_key_id`.
        session_token: set for temporary static credentials.
        profile: named profile of the credentials file.
        credentials_file: replaces `~/.aws/credentials`.
        spool: folder for large parts of uploads that are not complete yet; None: the system's.
    """

    namespace: str
    region: str = "us-east-1"
    endpoint: str | None = None
    path_style: bool = False
    ca: Path | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    credentials_file: Path | None = None
    spool: Path | None = None
