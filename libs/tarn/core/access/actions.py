"""Actions, and the names of the resources on which they are allowed or denied.

Each operation declares its action where it is defined: S3 operations in the table
`tarn_gateway.operations.table`, rpcs in options of the protos (`tarn.rpc.rules`). An operation without a
declaration cannot be called: the router does not find it, and a service with such an rpc does not start (OWASP
API5; lakeFS GHSA-h238-5mwf-8xw8 was a route missing from the list).

Resources are paths of names:

    repository/*                                     all repositories, for listing them
    repository/<repository>
    repository/<repository>/branch/<branch>[/object/<path>]
    repository/<repository>/ref/<ref>[/object/<path>]
    repository/<repository>/tag/<tag>
    bucket/<bucket>                                  a bucket view
    user/*                                           all users, for listing them
    user/<user>
    user/<user>/session/*                            all session keys of a user, for creating and listing them
    user/<user>/session/<access key id>
    compactor/*                                      all compactors
    audit/*                                          the audit log
    quota/*                                          the limits of all repositories and users
    quota/repository/<repository>
    quota/user/<user>

A write names a branch; a read names the ref as the client spelled it. A commit has many spellings (`main`,
`main~0`, its id), so a *deny* of one ref hides nothing. To limit reads, allow them per repository or ref, and
deny them per repository.
"""

from __future__ import annotations

import enum
import re
from typing import Final

from tarn.core.errors import Kind, Reason, TarnError

__all__ = [
    "AUDIT",
    "QUOTAS",
    "RESOURCE_CHARS_MAX",
    "REPOSITORIES",
    "USERS",
    "Action",
    "branches_resource",
    "bucket_resource",
    "object_resource",
    "parse_action",
    "parse_resource",
    "ref_object_resource",
    "repository_resource",
    "session_resource",
    "user_resource",
]


class Action(enum.StrEnum):
    """An action that a statement allows or denies. The first names come from a draft (docs/design/departures.md)."""

    CREATE_REPO = "CreateRepo"
    DELETE_REPO = "DeleteRepo"
    LIST_REPOS = "ListRepos"
    READ_REPO = "ReadRepo"
    """Objects, listings, commits, branches and tags of a repository."""
    WRITE_BUCKETS = "WriteBuckets"
    """Bucket views: which repository and ref a bucket name shows. A view grants nothing that it shows."""
    WRITE_REPO = "WriteRepo"
    """Objects and uploads of a branch, and the branches, tags and commits themselves."""
    COMPACT_REPO = "CompactRepo"
    """Compactions of branches. They change no content, so they need no WriteRepo."""
    WRITE_RULES = "WriteRules"
    """Protected and hidden branches, read-only, the default branch and the CORS rules of a repository."""
    ATTACH_NAMESPACE = "AttachNamespace"
    """Making a repository over an existing storage namespace: restore and recovery (docs/design/dump.md)."""
    MANAGE_COMPACTION = "ManageCompaction"
    """The state of compactors (with the names and row counts of all branches), and pauses of compactors."""
    MANAGE_COLLECTION = "ManageCollection"
    """Garbage collections: their runs, holds, and the addresses of all blocks in use (docs/design/collection.md)."""
    ERASE_DATA = "EraseData"
    """Deletion of data that collections keep: repositories with data, objects out of all history
    (docs/design/erase.md)."""
    READ_QUOTAS = "ReadQuotas"
    WRITE_QUOTAS = "WriteQuotas"
    """Limits of repositories and users (docs/design/quotas.md)."""
    REPORT_REQUESTS = "ReportRequests"
    """The counts of requests of a process: what services tell, not users (docs/operate/usage.md)."""
    READ_AUDIT = "ReadAudit"
    """The audit log (docs/operate/audit.md), which tells what every user did."""
    READ_USERS = "ReadUsers"
    WRITE_USERS = "WriteUsers"
    MANAGE_CREDENTIALS = "ManageCredentials"
    """Key pairs of the user that is the resource; the built-in roles allow users to manage their own."""
    MANAGE_SESSIONS = "ManageSessions"
    """Session keys (docs/design/session-keys.md); the built-in roles allow users to manage their own."""


AUDIT = "audit/*"
"""The resource of reading the audit log."""

REPOSITORIES = "repository/*"
"""The resource of ListRepos."""

QUOTAS = "quota/*"
"""The resource of listing quotas."""

USERS = "user/*"
"""The resource of listing users."""


RESOURCE_CHARS_MAX: Final = 1_600
"""A path has at most 1,024 bytes, and names before it."""

_NAMED: Final = re.compile(
    r"repository/[^/]+(/(branch|ref)/[^/]+(/object/.*)?|/tag/[^/]+)?"
    r"|bucket/[^/]+|user/[^/]+(/session/[^/]+)?|(compactor|audit)/\*|quota/(\*|(repository|user)/[^/]+)",
    re.DOTALL,
)


def parse_action(name: str) -> Action:
    """Parses the name of an action; raises `TarnError` INVALID, which lists them."""
    if name not in set(Action):
        text = f"action {name[:80]!r} does not exist; the actions are {', '.join(Action)}"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="action")
    return Action(name)


def parse_resource(name: str) -> str:
    """Parses the name of a resource, in one of the forms that the head of this module lists.

    Raises:
        TarnError: INVALID: it has another form, or more than `RESOURCE_CHARS_MAX` characters.
    """
    if len(name) > RESOURCE_CHARS_MAX or not _NAMED.fullmatch(name):
        text = (
            f"resource {name[:80]!r} has no known form, such as repository/lake, "
            "repository/lake/branch/main/object/a/b, repository/lake/ref/main, user/ada"
        )
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="resource")
    return name


def _segment(name: str) -> str:
    # A name with a slash would become a resource below another one.
    if "/" in name or not name:
        text = f"{name!r} is not a resource name: it is empty or contains a slash"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, name=name)
    return name


def repository_resource(repository: str) -> str:
    """A repository. Like all functions here, raises `TarnError` INVALID for a name with a slash."""
    return f"repository/{_segment(repository)}"


def bucket_resource(bucket: str) -> str:
    """A bucket view, or the name of one."""
    return f"bucket/{_segment(bucket)}"


def branches_resource(repository: str) -> str:
    """The beginning of the names of a repository's branches and of all paths that may be written in them."""
    return f"repository/{_segment(repository)}/branch/"


def object_resource(repository: str, branch: str, path: str) -> str:
    """A path of a branch, to be written; the path may contain any character."""
    return f"repository/{_segment(repository)}/branch/{_segment(branch)}/object/{path}"


def ref_object_resource(repository: str, ref: str, path: str) -> str:
    """A path of a ref, to be read; for a listing, its prefix."""
    return f"repository/{_segment(repository)}/ref/{_segment(ref)}/object/{path}"


def user_resource(user_id: str) -> str:
    """A user, its roles and its key pairs."""
    return f"user/{_segment(user_id)}"


def session_resource(user_id: str, access_key_id: str) -> str:
    """A session key of a user; `*` for all of them."""
    return f"{user_resource(user_id)}/session/{_segment(access_key_id)}"
