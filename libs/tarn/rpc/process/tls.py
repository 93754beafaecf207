"""TLS and mutual TLS between services, from PEM files that may be replaced while the process runs.

New connections use the present contents of the files; existing connections go on. A server reads the files before each
handshake, a client looks at them from time to time and connects again. Files that do not fit together are not taken
into use.
"""

from __future__ import annotations

import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog

__all__ = ["ChannelTls", "TlsFiles", "server_credentials"]

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, which may be replaced at any time.

    Attributes:
        certificate: this process's certificate with its chain; None only for a client without one.
        key: the certificate's private key, not encrypted.
        authority: signs the other side's certificate; may hold several, while one replaces another. A server with an
            authority requires a certificate of every client (mutual TLS). A client without one trusts the system's.
    """

    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None


@dataclass(frozen=True, slots=True)
class _Pems:
    """The contents of `TlsFiles`; the key stays out of `repr`."""

    certificate: bytes | None
    key: bytes | None
    authority: bytes | None

    def __repr__(self) -> str:
        return "_Pems(…)"


class _Watch:
    """The newest contents of files that could be used. May be asked by any thread."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._failure = ""
        self._pems = _read(files)

    def newest(self) -> _Pems:
        """Reads the files; returns the last contents that could be used."""
        with self._lock:
            try:
                if (found := _read(self._files)) != self._pems:
                    self._pems = found
                    _log.info("certificates renewed", certificate=str(self._files.certificate))
                self._failure = ""
            except (OSError, ValueError) as error:
                if (text := str(error)) != self._failure:
                    self._failure = text
                    _log.warning("the new certificates are not used", error=text)
            return self._pems


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """Returns a server's credentials: its certificate, and its requirements on clients. Each handshake reads the files.

    Raises:
        ValueError: certificate or key is missing, or the files do not fit together.
        OSError: a file cannot be read.
    """
    if files.certificate is None or files.key is None:
        raise ValueError("a TLS server needs a certificate and its key")
    watch = _Watch(files)

    def configuration() -> grpc.ServerCertificateConfiguration:
        # Always a configuration, never "no change": each port of the server asks, and has a state of its own.
        pems = watch.newest()
        assert pems.key is not None
        assert pems.certificate is not None
        pair = (pems.key, pems.certificate)
        return grpc.ssl_server_certificate_configuration([pair], pems.authority)

    return grpc.dynamic_ssl_server_credentials(
        configuration(), configuration, files.authority is not None
    )


class ChannelTls:
    """A client's certificate, and the authority that it trusts.

    Raises:
        ValueError: only one of certificate and key is given, or the files do not fit together.
        OSError: a file cannot be read.
    """

    def __init__(self, files: TlsFiles) -> None:
        if (files.certificate is None) != (files.key is None):
            raise ValueError("a TLS certificate and its key must be given together")
        self._watch = _Watch(files)
        self._used: _Pems | None = None
        self._credentials: grpc.ChannelCredentials | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files; returns the same object until their contents change."""
        pems = self._watch.newest()
        if self._credentials is None or pems != self._used:
            self._credentials = grpc.ssl_channel_credentials(
                pems.authority, pems.key, pems.certificate
            )
            self._used = pems
        return self._credentials


def _read(files: TlsFiles) -> _Pems:
    """Returns the contents of the files.

    Raises:
        ValueError: they cannot be used, or are being replaced.
        OSError: a file cannot be read.
    """
    pems = _contents(files)
    try:
        # Only checks that certificates are certificates, and that the key is that of the certificate. Whether they are
        # strong enough is for gRPC to say.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_ciphers("ALL:@SECLEVEL=0")
        if files.certificate is not None:
            context.load_cert_chain(files.certificate, files.key, password=lambda: "")
        if files.authority is not None:
            context.load_verify_locations(cafile=files.authority)
    except (ssl.SSLError, ValueError) as error:
        names = [str(path) for path in (files.certificate, files.key, files.authority) if path]
        raise ValueError(f"{', '.join(names)}: not usable for TLS: {error}") from error
    if _contents(files) != pems:
        raise ValueError(f"{files.certificate}: is being replaced")
    return pems


def _contents(files: TlsFiles) -> _Pems:
    paths = (files.certificate, files.key, files.authority)
    return _Pems(*(None if path is None else path.read_bytes() for path in paths))
