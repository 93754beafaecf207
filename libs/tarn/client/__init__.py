"""The client of Tarn, a library for programs of users (docs/user/grpc.md) and the base of Tarn's own.

`AsyncClient` and `Client` are for users: they log in, repeat what may be repeated, and return plain values.
`tarn.client.errors` has their exceptions. The gateway and the other services use the clients that these two are
made of: `tarn.client.graveler`, `tarn.client.auth` and `tarn.gate.access`.

The names below are imported when they are first used, because gRPC takes a third of a second to import and
`tarn --help` does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarn.client.async_client import AsyncClient
    from tarn.client.failures import TarnCallError
    from tarn.client.paging import Listing
    from tarn.client.sync_client import Client
    from tarn.client.values import (
        Annotation,
        Branch,
        BucketView,
        Change,
        ChangeSummary,
        Commit,
        CommonPrefix,
        Compaction,
        CompactionOutcome,
        Conflict,
        DeletedBranch,
        HeadChange,
        HeadOperation,
        MergePreview,
        NewCommit,
        ObjectVersion,
        PathChange,
        Protection,
        Repository,
        RepositorySettings,
        RevertedRange,
        ReviewRule,
        Side,
        StagingStatistics,
        StaleApprovals,
        Tag,
        Task,
        TaskState,
        User,
    )
    from tarn.core.change_kind import ChangeKind
    from tarn.rpc.process.tls import TlsFiles

__all__ = [
    "AsyncClient",
    "Client",
    "Annotation",
    "Branch",
    "BucketView",
    "Change",
    "ChangeKind",
    "ChangeSummary",
    "Commit",
    "CommonPrefix",
    "Compaction",
    "CompactionOutcome",
    "Conflict",
    "DeletedBranch",
    "HeadChange",
    "HeadOperation",
    "Listing",
    "MergePreview",
    "NewCommit",
    "ObjectVersion",
    "PathChange",
    "Protection",
    "ReviewRule",
    "StaleApprovals",
    "Repository",
    "RepositorySettings",
    "RevertedRange",
    "Side",
    "StagingStatistics",
    "Tag",
    "TarnCallError",
    "Task",
    "TaskState",
    "TlsFiles",
    "User",
]

_MODULES = {
    "AsyncClient": "tarn.client.async_client",
    "ChangeKind": "tarn.core.change_kind",
    "Client": "tarn.client.sync_client",
    "Listing": "tarn.client.paging",
    "TarnCallError": "tarn.client.failures",
    "TlsFiles": "tarn.rpc.process.tls",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "tarn.client.values")), name)
