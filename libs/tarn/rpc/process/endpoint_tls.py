"""The certificate of an endpoint for other systems' clients (S3, REST), which follows its files."""

from __future__ import annotations

import asyncio
import ssl

from tarn.config import ConfigError, SecretChanges, certificates_of_endpoint, contents_of
from tarn.config.certificate_change import CertificateChange
from tarn.config.sections import EndpointTls

__all__ = ["endpoint_tls"]


def endpoint_tls(
    name: str, tls: EndpointTls, secrets: SecretChanges | None = None
) -> ssl.SSLContext | None:
    """Returns an endpoint's certificate; None for http.

    Args:
        name: the section of the configuration that names the files, such as `gateways.s3`.
        tls: its part about TLS.
        secrets: tells of new contents of the files, which new connections then get; connections that exist go on. None:
            the certificate stays that of the start.

    Raises:
        ConfigError: the files cannot be read or do not match.
    """
    files = certificates_of_endpoint(tls)
    if not files:
        return None
    contents = contents_of(files)
    first = newest = _context(name, tls)
    if secrets is None:
        return first

    async def reload() -> None:
        nonlocal newest
        newest = await asyncio.to_thread(_context, name, tls)

    def choose(connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = newest

    # The listener keeps its context; each handshake passes here, also that of a client that names no server.
    first.sni_callback = choose
    secrets.subscribe(CertificateChange(f"{name} endpoint", files, contents, reload).use)
    return first


def _context(name: str, tls: EndpointTls) -> ssl.SSLContext:
    assert tls.cert is not None, "asked only for https"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:
        text = f"{name}.tls: {tls.cert} and {tls.key}: {error.strerror or error}"
        raise ConfigError([text]) from error
    return context
