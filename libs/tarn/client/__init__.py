"""The client of Tarn, a library for programs of users (docs/user/grpc.md) and the base of Tarn's own.

`AsyncClient` and `Client` are for users: they log in, repeat what may be repeated, and return plain values.
`tarn.client.errors` has their exceptions. The gateway and the other services use the clients that these two are
made of: `tarn.client.graveler`, `tarn.client.auth` and `tarn.client.access`.

The names below are imported when they are first used, because gRPC takes a third of a second to import and
`tarn --help` does without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tarn.client.async_client import AsyncClient
    from tarn.client.compaction_operations import (
        Compaction,
        CompactionOutcome,
        StagingStatistics,
    )
    from tarn.client.failures import TarnCallError
    from tarn.client.history_values import (
        Annotation,
        ChangeSummary,
        DeletedBranch,
        HeadChange,
        HeadOperation,
        PathChange,
        RevertedRange,
    )
    from tarn.client.paging import Listing
    from tarn.client.settings_values import Protection, RepositorySettings
    from tarn.client.sync_client import Client
    from tarn.client.task_operations import Task, TaskState
    from tarn.client.values import (
        Branch,
        Change,
        Commit,
        CommonPrefix,
        Conflict,
        MergePreview,
        NewCommit,
        ObjectVersion,
        Repository,
        Side,
        Tag,
        User,
    )
    from tarn.core.change_kind import ChangeKind
    from tarn.rpc.process.tls import TlsFiles

__all__ = [
    "AsyncClient",
    "Client",
    "Annotation",
    "Branch",
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
    "Compaction": "tarn.client.compaction_operations",
    "CompactionOutcome": "tarn.client.compaction_operations",
    "StagingStatistics": "tarn.client.compaction_operations",
    "Annotation": "tarn.client.history_values",
    "ChangeSummary": "tarn.client.history_values",
    "DeletedBranch": "tarn.client.history_values",
    "HeadChange": "tarn.client.history_values",
    "HeadOperation": "tarn.client.history_values",
    "PathChange": "tarn.client.history_values",
    "RevertedRange": "tarn.client.history_values",
    "Listing": "tarn.client.paging",
    "Protection": "tarn.client.settings_values",
    "RepositorySettings": "tarn.client.settings_values",
    "TarnCallError": "tarn.client.failures",
    "Task": "tarn.client.task_operations",
    "TaskState": "tarn.client.task_operations",
    "TlsFiles": "tarn.rpc.process.tls",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES.get(name, "tarn.client.values")), name)
