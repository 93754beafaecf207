"""The names in a client's certificate, as mutual TLS verified them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

__all__ = ["certificate_names"]

_DNS_NAMES = "peer_dns"


def certificate_names(auth_context: Mapping[str, Iterable[bytes]]) -> frozenset[str]:
    """Returns the DNS names in the certificate of a call's client; empty without mutual TLS.

    Neither the common name is among them nor another alternative name: authorities sign certificates of users with any.

    Args:
        auth_context: of the call, as grpc tells it.
    """
    return frozenset(name.decode("utf-8", "replace") for name in auth_context.get(_DNS_NAMES, ()))
