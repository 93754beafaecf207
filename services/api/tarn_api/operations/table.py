"""The one table of operations: `operationId` → its handler, or the reason of its refusal.

Methods, paths, parameters, bodies and statuses come from the document (`tarn_rest.operations`). A test walks the
document: each operation is here, each row is in the document, and each handler takes and returns its types.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tarn_api.operations import (
    about,
    branches,
    commits,
    diffs,
    merges,
    objects,
    repositories,
    sessions,
    tags,
)
from tarn_api.operations.refused import NOT_YET, REFUSED

__all__ = ["HANDLERS", "PUBLIC", "TABLE", "Handler", "Refusal"]

Handler = Callable[..., Awaitable[object]]
"""See `tarn_api.operations`."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answers 501.

    Attributes:
        reason: what the caller is told.
    """

    reason: str


HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "healthCheck": about.health_check,
        "getConfig": about.get_config,
        "getLakeFSVersion": about.get_version,
        "getStorageConfig": about.get_storage_config,
        "getSetupState": about.get_setup_state,
        "getAuthCapabilities": about.get_auth_capabilities,
        "postStatsEvents": about.post_stats_events,
        "login": sessions.login,
        "getCurrentUser": sessions.get_current_user,
        "listRepositories": repositories.list_repositories,
        "createRepository": repositories.create_repository,
        "getRepository": repositories.get_repository,
        "deleteRepository": repositories.delete_repository,
        "getRepositoryMetadata": repositories.get_repository_metadata,
        "listBranches": branches.list_branches,
        "createBranch": branches.create_branch,
        "getBranch": branches.get_branch,
        "deleteBranch": branches.delete_branch,
        "resetBranch": branches.reset_branch,
        "revertBranch": branches.revert_branch,
        "cherryPick": branches.cherry_pick,
        "listTags": tags.list_tags,
        "createTag": tags.create_tag,
        "getTag": tags.get_tag,
        "deleteTag": tags.delete_tag,
        "commit": commits.commit,
        "getCommit": commits.get_commit,
        "logCommits": commits.log_commits,
        "diffRefs": diffs.diff_refs,
        "diffBranch": diffs.diff_branch,
        "mergeIntoBranch": merges.merge_into_branch,
        "findMergeBase": merges.find_merge_base,
        "statObject": objects.stat_object,
        "headObject": objects.head_object,
        "listObjects": objects.list_objects,
        "deleteObject": objects.delete_object,
        "deleteObjects": objects.delete_objects,
    }
)

TABLE: Final[Mapping[str, Handler | Refusal]] = MappingProxyType(
    {
        **HANDLERS,
        **{name: Refusal(f"{name} is not offered: {reason}") for name, reason in REFUSED.items()},
        **{name: Refusal(f"{name} is not built yet") for name in NOT_YET},
    }
)

PUBLIC: Final = frozenset({"healthCheck", "getSetupState", "getAuthCapabilities", "login"})
"""Operations without a caller; all others need one."""
