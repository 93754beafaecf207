"""Who talks to whom: TLS and mutual TLS between services, from files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

__all__ = ["TlsFiles", "channel_credentials", "server_credentials"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. Read once, at start: new certificates need a restart, which rolls without loss.

    Attributes:
        certificate: of this process, with its chain; None only for a client without one.
        key: of the certificate.
        authority: signs the other side's certificate; a server that has one asks every client for a
            certificate (mutual TLS). A client without one trusts the system's authorities.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """What a server shows, and asks of its clients.

    Raises:
        ValueError: certificate or key is missing.
        OSError: a file cannot be read.
    """
    if files.certificate is None or files.key is None:
        raise ValueError("a TLS server needs a certificate and its key")
    pair = (files.key.read_bytes(), files.certificate.read_bytes())
    authority = _read(files.authority)
    return grpc.ssl_server_credentials([pair], authority, authority is not None)


def channel_credentials(files: TlsFiles) -> grpc.ChannelCredentials:
    """What a client shows, and asks of its servers.

    Raises:
        ValueError: one of certificate and key is missing.
        OSError: a file cannot be read.
    """
    if (files.certificate is None) != (files.key is None):
        raise ValueError("a TLS certificate and its key come together")
    return grpc.ssl_channel_credentials(
        _read(files.authority), _read(files.key), _read(files.certificate)
    )


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
