"""How a key pair was used: which front its holder proved it to."""

from __future__ import annotations

import enum

__all__ = ["KeyUse", "claimed_use"]


class KeyUse(enum.StrEnum):
    """The kind of a use, as records and clients name it."""

    S3 = "s3"
    """A signed request to the gateway."""
    REST = "rest"
    """A request to the REST interface with the key pair, or with a token that it gave for it."""
    RPC = "rpc"
    """A log-in over gRPC: `tarn` and the libraries for programs."""
    WEB = "web"
    """A browser that is signed in."""


def claimed_use(name: str) -> KeyUse:
    """Returns the kind that a log-in claims to be for; `RPC` for none and for a kind that is not known.

    A claim is not verified: whoever makes it holds the secret, and it decides nothing.
    """
    return KeyUse(name) if name in set(KeyUse) else KeyUse.RPC
