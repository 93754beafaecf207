"""What an S3 store is opened with."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = ["PART_BYTES_MAX", "PART_BYTES_MIN", "S3Limits", "S3Settings"]

PART_BYTES_MIN: Final = 5 << 20
"""S3's smallest part but the last."""
PART_BYTES_MAX: Final = 1 << 30
"""A part of ours is held in memory."""


@dataclass(frozen=True, slots=True)
class S3Limits:
    """What one process asks of the server, and how long it tries.

    Attributes:
        part_bytes: bodies up to this size are put in one request, larger ones in parts of it.
        requests: requests at one time.
        large_writes: bodies larger than a chunk that may be written at one time, each of which holds a
            part in memory.
        attempts: of one request, the first one included.
        attempt_seconds: of one attempt.
        deadline_seconds: of all attempts, the pauses between them included.
        connect_seconds: of a new connection.
        pause_seconds: upper end of the first pause; each next one may be twice as long.
        pause_seconds_max: upper end of every pause.
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
    """Which server, and as whom. Its repr holds no secret.

    Attributes:
        namespace: of the repositories that name none, `s3://bucket/prefix`; the server is checked there.
        region: that requests are signed for.
        endpoint: URL of the server; None: AWS.
        path_style: whether the bucket is in the path, not in the host name.
        ca: certificates that the server's may descend from beside those of the system, PEM.
        access_key_id: static credentials; None: profile, environment, container or instance, as in
            every AWS SDK.
        secret_access_key: set with it.
        session_token: of temporary static credentials.
        profile: named profile of the credentials file.
        credentials_file: instead of `~/.aws/credentials`.
        spool: folder where large parts of uploads are kept until they are complete; None: the system's.
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
