"""The typed client of graveler: every operation on versioned metadata, over any transport.

One module per noun defines the methods; this module combines them, so that a service needs one client. Hot
operations (`lookup`, `stage`, `unstage`) use the coalesced stream; the others are unary rpcs. Rarely used calls
return the protobuf message if it has the right shape already.
"""

from __future__ import annotations

from tarn.client.commits import CommitClient
from tarn.client.compactions import CompactionClient
from tarn.client.diffs import DiffClient
from tarn.client.dumps import DumpClient
from tarn.client.entries import EntryClient, ListingPage, Located
from tarn.client.links import LinkClient
from tarn.client.merges import MergeClient
from tarn.client.pull_requests import PullRequestClient
from tarn.client.quotas import QuotaClient
from tarn.client.reflogs import ReflogClient
from tarn.client.refs import RefClient
from tarn.client.repositories import RepositoryClient
from tarn.client.settings import SettingsClient
from tarn.client.tasks import TaskClient
from tarn.client.uploads import UploadClient
from tarn.rpc.client.transport import Transport

__all__ = ["GravelerClient", "ListingPage", "Located"]


class GravelerClient(
    RepositoryClient,
    DumpClient,
    SettingsClient,
    QuotaClient,
    RefClient,
    ReflogClient,
    CommitClient,
    CompactionClient,
    DiffClient,
    MergeClient,
    PullRequestClient,
    TaskClient,
    EntryClient,
    UploadClient,
    LinkClient,
):
    """Every operation of graveler. The caller closes the transport."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
