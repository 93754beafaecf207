"""Operations that are not offered: each has the reason that its answer, 501, gives."""

from __future__ import annotations

from typing import Final

__all__ = ["REFUSED"]

_FOR_GC: Final = "Tarn collects garbage by itself: `tarn gc run`, or the timer of `tarn up`"
_DEPRECATED: Final = "lakeFS has replaced this operation"
_GROUPS: Final = "Tarn has roles; groups are not built yet"
_POLICIES: Final = "Tarn has roles; policies are not built yet"
_HOOKS: Final = "hooks are not built yet, so there are no runs"
_IMPORT: Final = "import is not built yet; write the objects, or ask for an address and link it"
_EXTERNAL: Final = "sign-in by another provider is not built yet; use a key pair"
_METADATA: Final = "committed metadata have a format of Tarn's own; see docs/formats"
_DUMP: Final = "dumps of repositories are made by `tarn repo dump` and `tarn repo restore`"

REFUSED: Final = {
    "setupCommPrefs": "Tarn collects no addresses of its users",
    "setup": "the first admin is made by `tarn auth setup`, with the installation's secret",
    "externalPrincipalLogin": _EXTERNAL,
    "stsLogin": _EXTERNAL,
    "createUserExternalPrincipal": _EXTERNAL,
    "deleteUserExternalPrincipal": _EXTERNAL,
    "listUserExternalPrincipals": _EXTERNAL,
    "getExternalPrincipal": _EXTERNAL,
    "oauthCallback": _EXTERNAL,
    "listGroups": _GROUPS,
    "createGroup": _GROUPS,
    "getGroup": _GROUPS,
    "deleteGroup": _GROUPS,
    "listGroupMembers": _GROUPS,
    "addGroupMembership": _GROUPS,
    "deleteGroupMembership": _GROUPS,
    "listUserGroups": _GROUPS,
    "listGroupPolicies": _GROUPS,
    "attachPolicyToGroup": _GROUPS,
    "detachPolicyFromGroup": _GROUPS,
    "setGroupACL": _GROUPS,
    "getGroupACL": _GROUPS,
    "listPolicies": _POLICIES,
    "createPolicy": _POLICIES,
    "getPolicy": _POLICIES,
    "updatePolicy": _POLICIES,
    "deletePolicy": _POLICIES,
    "listUserPolicies": _POLICIES,
    "attachPolicyToUser": _POLICIES,
    "detachPolicyFromUser": _POLICIES,
    "importStart": _IMPORT,
    "importStatus": _IMPORT,
    "importCancel": _IMPORT,
    "listRepositoryRuns": _HOOKS,
    "getRun": _HOOKS,
    "listRunHooks": _HOOKS,
    "getRunHookOutput": _HOOKS,
    "dumpRefs": _DUMP,
    "restoreRefs": _DUMP,
    "dumpSubmit": _DUMP,
    "dumpStatus": _DUMP,
    "restoreSubmit": _DUMP,
    "restoreStatus": _DUMP,
    "CreateCommitRecord": _METADATA,
    "getMetadataObject": _METADATA,
    "getMetaRange": _METADATA,
    "getRange": _METADATA,
    "prepareGarbageCollectionCommits": _FOR_GC,
    "prepareGarbageCollectionUncommitted": _FOR_GC,
    "prepareGarbageCollectionCommitsAsync": _FOR_GC,
    "prepareGarbageCollectionCommitsStatus": _FOR_GC,
    "internalGetGarbageCollectionRules": _DEPRECATED,
    "internalSetGarbageCollectionRules": _DEPRECATED,
    "internalDeleteGarbageCollectionRules": _DEPRECATED,
    "internalGetBranchProtectionRules": _DEPRECATED,
    "internalCreateBranchProtectionRule": _DEPRECATED,
    "internalDeleteBranchProtectionRule": _DEPRECATED,
}
"""Refused for a reason that stays until the part of Tarn exists which they are about."""
