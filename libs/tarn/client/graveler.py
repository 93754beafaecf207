"""The typed client of graveler: every operation on versioned metadata, over any transport.

One module per noun holds the methods; this unites them, so that a service takes one client. Hot
operations (`lookup`, `stage`, `unstage`) travel on the coalesced stream, the others are unary.
Rare calls return the protobuf message where that is already the right shape.
"""

from __future__ import annotations

from tarn.client.commits import CommitClient
from tarn.client.entries import EntryClient, ListingPage, Located
from tarn.client.refs import RefClient
from tarn.client.repositories import RepositoryClient
from tarn.client.uploads import UploadClient
from tarn.rpc.client.transport import Transport

__all__ = ["GravelerClient", "ListingPage", "Located"]


class GravelerClient(RepositoryClient, RefClient, CommitClient, EntryClient, UploadClient):
    """Everything that graveler does. The transport stays the caller's to close."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
