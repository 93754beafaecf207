"""The base of a client's calls: the clients of the services, and a context for each call."""

from __future__ import annotations

from collections.abc import Iterable

from tarn.client.auth import AuthClient
from tarn.client.graveler import GravelerClient
from tarn.rpc.wire.call import Call

__all__ = ["PAGE_SIZE", "Calls", "several"]

PAGE_SIZE = 1000
"""Items of a page of a listing, unless the caller says otherwise."""


class Calls:
    """The base of `tarn.client.operations.Operations`.

    Attributes:
        graveler: all rpcs of graveler, with messages of the wire; each takes a `call()`.
        auth: all rpcs of auth, likewise.
    """

    graveler: GravelerClient
    auth: AuthClient

    def call(self) -> Call:
        """Returns the context of a new call: request id and deadline."""
        raise NotImplementedError


def several(values: Iterable[str], name: str) -> list[str]:
    """Returns the items of the argument `name`.

    Raises:
        TypeError: it is one text, whose characters would be taken for the items.
    """
    if isinstance(values, str):
        raise TypeError(
            f"{name} takes several texts, such as [{values!r}], not the text {values!r}"
        )
    return list(values)
