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
    addresses,
    branches,
    commits,
    diffs,
    feed,
    merges,
    objects,
    pulls,
    reading,
    repositories,
    sessions,
    settings,
    symlinks,
    tags,
    users,
    writing,
)
from tarn_api.operations.refused import REFUSED

__all__ = [
    "HANDLERS",
    "OWN_HANDLERS",
    "PUBLIC",
    "STREAMS",
    "TABLE",
    "TRANSFERS",
    "Handler",
    "Refusal",
]

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
        "getUsageReportSummary": about.get_usage_report_summary,
        "login": sessions.login,
        "getCurrentUser": sessions.get_current_user,
        "listUsers": users.list_users,
        "createUser": users.create_user,
        "getUser": users.get_user,
        "deleteUser": users.delete_user,
        "listUserCredentials": users.list_user_credentials,
        "createCredentials": users.create_credentials,
        "getCredentials": users.get_credentials,
        "deleteCredentials": users.delete_credentials,
        "listRepositories": repositories.list_repositories,
        "createRepository": repositories.create_repository,
        "getRepository": repositories.get_repository,
        "deleteRepository": repositories.delete_repository,
        "getRepositoryMetadata": settings.get_repository_metadata,
        "setRepositoryMetadata": settings.set_repository_metadata,
        "deleteRepositoryMetadata": settings.delete_repository_metadata,
        "getBranchProtectionRules": settings.get_branch_protection_rules,
        "setBranchProtectionRules": settings.set_branch_protection_rules,
        "createBranchProtectionRulePreflight": settings.create_branch_protection_rule_preflight,
        "getGCRules": settings.get_gc_rules,
        "setGCRules": settings.set_gc_rules,
        "deleteGCRules": settings.delete_gc_rules,
        "setGarbageCollectionRulesPreflight": settings.set_garbage_collection_rules_preflight,
        "getGarbageCollectionConfig": settings.get_garbage_collection_config,
        "listBranches": branches.list_branches,
        "createBranch": branches.create_branch,
        "getBranch": branches.get_branch,
        "deleteBranch": branches.delete_branch,
        "resetBranch": branches.reset_branch,
        "hardResetBranch": branches.hard_reset_branch,
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
        "listPullRequests": pulls.list_pull_requests,
        "createPullRequest": pulls.create_pull_request,
        "getPullRequest": pulls.get_pull_request,
        "updatePullRequest": pulls.update_pull_request,
        "mergePullRequest": pulls.merge_pull_request,
        "statObject": objects.stat_object,
        "headObject": reading.head_object,
        "getObject": reading.get_object,
        "getUnderlyingProperties": objects.get_underlying_properties,
        "uploadObject": writing.upload_object,
        "uploadObjectPreflight": writing.upload_object_preflight,
        "copyObject": writing.copy_object,
        "updateObjectUserMetadata": writing.update_object_user_metadata,
        "stageObject": addresses.stage_object,
        "getPhysicalAddress": addresses.get_physical_address,
        "linkPhysicalAddress": addresses.link_physical_address,
        "createPresignMultipartUpload": addresses.create_presign_multipart_upload,
        "completePresignMultipartUpload": addresses.complete_presign_multipart_upload,
        "abortPresignMultipartUpload": addresses.abort_presign_multipart_upload,
        "uploadPart": addresses.upload_part,
        "uploadPartCopy": addresses.upload_part_copy,
        "listObjects": objects.list_objects,
        "deleteObject": objects.delete_object,
        "deleteObjects": objects.delete_objects,
        "createSymlinkFile": symlinks.create_symlink_file,
    }
)

OWN_HANDLERS: Final[Mapping[str, Handler]] = MappingProxyType(
    {
        "signOut": sessions.sign_out,
        "listWebSessions": sessions.list_web_sessions,
        "endWebSessions": sessions.end_web_sessions,
        "endWebSession": sessions.end_web_session,
        "watchBranch": feed.watch_branch,
    }
)
"""Tarn's own operations, below `/api/tarn/v1` (`protos/tarn_rest/tarn.yaml`)."""

TABLE: Final[Mapping[str, Handler | Refusal]] = MappingProxyType(
    {
        **HANDLERS,
        **OWN_HANDLERS,
        **{name: Refusal(f"{name} is not offered: {reason}") for name, reason in REFUSED.items()},
    }
)

PUBLIC: Final = frozenset({"healthCheck", "getSetupState", "getAuthCapabilities", "login"})
"""Operations without a caller; all others need one."""

TRANSFERS: Final = frozenset(
    {
        "getObject",
        "uploadObject",
        "copyObject",
        "uploadPartCopy",
        "linkPhysicalAddress",
        "stageObject",
        "updateObjectUserMetadata",
        "createSymlinkFile",
    }
)
"""Operations that move bytes, or have the bucket move them. They may take long, so they have places of their own."""

STREAMS: Final = frozenset({"watchBranch"})
"""Operations whose answers go on: once they have begun, `tarn_api.feed` bounds them."""
