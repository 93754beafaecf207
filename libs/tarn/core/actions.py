"""What can be done, to what: actions, the one table from operations to actions, resource names.

Rule of residence: an operation that a client can ask for as an rpc has a line here or it is denied; those of S3
are in `tarn_gateway.operations.table`. The table is data, so that one test can walk every rpc of the
descriptors (OWASP API5; lakeFS GHSA-h238-5mwf-8xw8 was a route that nobody had listed).

Resources are paths of names:

    repository/*                                     all repositories, as the thing that is listed
    repository/<repository>
    repository/<repository>/branch/<branch>[/object/<path>]
    repository/<repository>/ref/<ref>[/object/<path>]
    repository/<repository>/tag/<tag>
    user/*                                           all users, as the thing that is listed
    user/<user>

A write names a branch, a read names the ref as the client spelled it. A commit can be reached by many
spellings (`main`, `main~0`, its id), so a *deny* of one ref hides nothing: reads are limited by what
is allowed, down to a repository or a ref, and denied by repository.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "ACTIONS",
    "REPOSITORIES",
    "USERS",
    "Action",
    "action_of",
    "branch_resource",
    "object_resource",
    "ref_object_resource",
    "ref_resource",
    "repository_resource",
    "tag_resource",
    "user_resource",
]


class Action(enum.StrEnum):
    """What a statement allows or denies. The first names are a draft's (docs/design/departures.md)."""

    CREATE_REPO = "CreateRepo"
    DELETE_REPO = "DeleteRepo"
    LIST_REPOS = "ListRepos"
    READ_REPO = "ReadRepo"
    """Objects, listings, commits, branches and tags of a repository."""
    WRITE_REPO = "WriteRepo"
    """Objects and uploads of a branch; branches, tags and commits themselves."""
    READ_USERS = "ReadUsers"
    WRITE_USERS = "WriteUsers"
    MANAGE_CREDENTIALS = "ManageCredentials"
    """Key pairs of the user that is the resource; the built-in roles allow it for oneself."""


_GRAVELER: dict[str, Action | None] = {
    "RepositoryService.CreateRepository": Action.CREATE_REPO,
    "RepositoryService.GetRepository": Action.READ_REPO,
    "RepositoryService.ListRepositories": Action.LIST_REPOS,
    "RepositoryService.DeleteRepository": Action.DELETE_REPO,
    "BranchService.CreateBranch": Action.WRITE_REPO,
    "BranchService.CreateBranch.source": Action.READ_REPO,
    "BranchService.GetBranch": Action.READ_REPO,
    "BranchService.ListBranches": Action.READ_REPO,
    "BranchService.DeleteBranch": Action.WRITE_REPO,
    "TagService.CreateTag": Action.WRITE_REPO,
    "TagService.CreateTag.source": Action.READ_REPO,
    "TagService.GetTag": Action.READ_REPO,
    "TagService.ListTags": Action.READ_REPO,
    "TagService.DeleteTag": Action.WRITE_REPO,
    "CommitService.CreateCommit": Action.WRITE_REPO,
    "CommitService.GetCommit": Action.READ_REPO,
    "CommitService.ListCommits": Action.READ_REPO,
    "CommitService.DiffRefs": Action.READ_REPO,
    "CommitService.DiffUncommitted": Action.READ_REPO,
    # The stream itself asks for nothing; each operation on it is decided by itself.
    "EntryService.Operate.lookup": Action.READ_REPO,
    "EntryService.Operate.stage": Action.WRITE_REPO,
    "EntryService.Operate.stage.if_match": Action.READ_REPO,
    "EntryService.Operate.unstage": Action.WRITE_REPO,
    "EntryService.ListEntries": Action.READ_REPO,
    "EntryService.UnstageEntries": Action.WRITE_REPO,  # for each path by itself
    "UploadService.CreateUpload": Action.WRITE_REPO,
    "UploadService.GetUpload": Action.READ_REPO,
    "UploadService.RecordUploadPart": Action.WRITE_REPO,
    "UploadService.ListUploadParts": Action.READ_REPO,
    "UploadService.ListUploads": Action.READ_REPO,
    "UploadService.BeginCompleteUpload": Action.WRITE_REPO,
    "UploadService.FinishCompleteUpload": Action.WRITE_REPO,
    "UploadService.FinishCompleteUpload.if_match": Action.READ_REPO,
    "UploadService.ReopenUpload": Action.WRITE_REPO,
    "UploadService.AbortUpload": Action.WRITE_REPO,
}

_AUTH: dict[str, Action | None] = {
    # Public, because nobody can be known before them: the first two serve an installation without
    # users (SetUp asks for the installation's secret instead), the third is how one becomes known.
    "SessionService.GetSetupState": None,
    "SessionService.SetUp": None,
    "SessionService.LogIn": None,
    # Public to services, because it *is* the authorisation; mTLS says who is a service.
    "AuthorizationService.Operate.authorize_key": None,
    "AuthorizationService.Operate.authorize_token": None,
    "SessionService.GetCaller": Action.READ_USERS,
    "UserService.CreateUser": Action.WRITE_USERS,
    "UserService.GetUser": Action.READ_USERS,
    "UserService.ListUsers": Action.READ_USERS,
    "UserService.UpdateUserRoles": Action.WRITE_USERS,
    "UserService.DeleteUser": Action.WRITE_USERS,
    "UserService.CreateCredential": Action.MANAGE_CREDENTIALS,
    "UserService.ListCredentials": Action.MANAGE_CREDENTIALS,
    "UserService.DeleteCredential": Action.MANAGE_CREDENTIALS,
}

ACTIONS: Mapping[str, Action | None] = MappingProxyType(
    {f"tarn.graveler.v1.{name}": action for name, action in _GRAVELER.items()}
    | {f"tarn.auth.v1.{name}": action for name, action in _AUTH.items()}
)
"""Full rpc name (`tarn.auth.v1.UserService.GetUser`) or operation of a stream
(`tarn.graveler.v1.EntryService.Operate.lookup`) → action; None is public. What is absent is denied.
"""

REPOSITORIES = "repository/*"
"""The resource of ListRepos."""

USERS = "user/*"
"""The resource of listing users."""


def action_of(operation: str) -> Action | None:
    """The action that an operation needs; None when it is public.

    Raises:
        TarnError: DENIED for an operation that the table does not hold.
    """
    try:
        return ACTIONS[operation]
    except KeyError:
        text = f"operation {operation!r} has no action, so nobody may do it"
        raise TarnError(Kind.DENIED, Reason.ACCESS_DENIED, text, operation=operation) from None


def _segment(name: str) -> str:
    # A name with a slash would become a resource below another one.
    if "/" in name or not name:
        text = f"{name!r} is no name of a resource"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, name=name)
    return name


def repository_resource(repository: str) -> str:
    """A repository; raises `TarnError` INVALID for a name with a slash, as all of these do."""
    return f"repository/{_segment(repository)}"


def branch_resource(repository: str, branch: str) -> str:
    """A branch."""
    return f"repository/{_segment(repository)}/branch/{_segment(branch)}"


def object_resource(repository: str, branch: str, path: str) -> str:
    """A path of a branch, to be written; the path may hold anything."""
    return f"repository/{_segment(repository)}/branch/{_segment(branch)}/object/{path}"


def ref_resource(repository: str, ref: str) -> str:
    """A ref, to be read."""
    return f"repository/{_segment(repository)}/ref/{_segment(ref)}"


def ref_object_resource(repository: str, ref: str, path: str) -> str:
    """A path of a ref, to be read; of a listing, its prefix."""
    return f"repository/{_segment(repository)}/ref/{_segment(ref)}/object/{path}"


def tag_resource(repository: str, tag: str) -> str:
    """A tag."""
    return f"repository/{_segment(repository)}/tag/{_segment(tag)}"


def user_resource(user_id: str) -> str:
    """A user, its roles and its key pairs."""
    return f"user/{_segment(user_id)}"
