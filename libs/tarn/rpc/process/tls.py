"""TLS and mutual TLS between services, from PEM files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import grpc

__all__ = ["TlsFiles", "channel_credentials", "server_credentials"]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, read once at start. New certificates need a restart; a rolling restart loses no requests.

    Attributes:
        certificate: this process's certificate with its chain; None only for a client without one.
        key: the certificate's private key.
        authority: signs the other side's certificate. A server with an authority requires a certificate
            of every client (mutual TLS). A client without one trusts the system's authorities.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Returns a server's credentials: its certificate, and its requirements on clients.

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
    """Returns a client's credentials: its certificate, and the authority that it trusts.

    Raises:
        ValueError: only one of certificate and key is given.
        OSError: a file cannot be read.
    """
    if (files.certificate is None) != (files.key is None):
        raise ValueError("a TLS certificate and its key must be given together")
    return grpc.ssl_channel_credentials(
        _read(files.authority), _read(files.key), _read(files.certificate)
    )


def _read(path: Path | None) -> bytes | None:
    return None if path is None else path.read_bytes()
