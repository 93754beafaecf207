"""What a session key may do: the statements of its user, intersected with its own (docs/design/session-keys.md).

The result is a list of plain statements, so whoever gets it decides as about any other caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tarn.core.access.actions import (
    REPOSITORIES,
    RESOURCE_CHARS_MAX,
    Action,
    session_resource,
    user_resource,
)
from tarn.core.access.policy import Binding, Statement
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import AccessKeyId, UserId, parse_repository_id
from tarn.core.refs import parse_ref

__all__ = [
    "BINDINGS_MAX",
    "DURATION_S_DEFAULT",
    "DURATION_S_MAX",
    "DURATION_S_MIN",
    "RENEWED_S_MAX",
    "SESSION_ACTIONS",
    "Permission",
    "intersect",
    "parse_binding",
    "parse_duration_s",
    "parse_permission",
    "permissions_for",
    "require_within_limits",
    "session_statements",
]

SESSION_ACTIONS: Final = (Action.LIST_REPOS, Action.READ_REPO, Action.WRITE_REPO)
"""All that a session key may do with data. Its user may do more."""

DURATION_S_DEFAULT: Final = 3_600
DURATION_S_MIN: Final = 900
DURATION_S_MAX: Final = 43_200
"""Bounds of a life, and of a renewal; those of AssumeRole."""
RENEWED_S_MAX: Final = 129_600
"""From the creation to the end of the last renewal: 36 hours."""

PERMISSIONS_MAX: Final = 16
BINDINGS_MAX: Final = 16
_ACTIONS_MAX: Final = 8
_RESOURCES_MAX: Final = 16
_CHARS_MAX: Final = 16_384
"""Of all permissions and bindings of a key together: each grant carries them."""


@dataclass(frozen=True, slots=True)
class Permission:
    """Some of the actions of a session key, on some of the resources; names and patterns as in `Statement`."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]


def session_statements(
    user_id: UserId, access_key_id: AccessKeyId, permissions: Sequence[Permission]
) -> tuple[Statement, ...]:
    """The statements of a session key itself, whatever its user may do.

    Args:
        user_id: the user for whom it acts.
        access_key_id: of the session key.
        permissions: what it may do with data; none: all of `SESSION_ACTIONS`.
    """
    data = permissions or (Permission(SESSION_ACTIONS, (REPOSITORIES,)),)
    own = (session_resource(user_id, access_key_id),)
    return (
        Statement(True, (Action.READ_USERS.value,), (user_resource(user_id),)),
        Statement(True, (Action.MANAGE_SESSIONS.value,), own),
        *(Statement(True, each.actions, each.resources) for each in data),
    )


def intersect(first: Iterable[Statement], second: Iterable[Statement]) -> tuple[Statement, ...]:
    """Statements that allow exactly what both lists allow, and deny what one of them denies."""
    first, second = tuple(first), tuple(second)
    denied = [each for each in (*first, *second) if not each.allow]
    allowed = [
        Statement(True, actions, resources)
        for one in first
        for other in second
        if one.allow and other.allow
        if (actions := _meet(one.actions, other.actions))
        if (resources := _meet(one.resources, other.resources))
    ]
    return (*denied, *allowed)


def _meet(first: Iterable[str], second: Sequence[str]) -> tuple[str, ...]:
    """Patterns that match what a pattern of each side matches."""
    found = (_narrower(one, other) for one in first for other in second)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def _narrower(one: str, other: str) -> str | None:
    """The pattern that matches what both match: one of them; None if nothing does."""
    for wide, narrow in ((one, other), (other, one)):
        if wide == narrow or (wide.endswith("*") and narrow.startswith(wide[:-1])):
            return narrow
    return None


def permissions_for(
    places: Iterable[tuple[str, str, str]], *, read_only: bool
) -> tuple[Permission, ...]:
    """The permissions of a key for some places only, as commands and STS make them.

    Args:
        places: repository, ref and prefix of paths; an empty ref for all of the repository, an empty prefix for all of
            the ref with its commits. None: everywhere.
        read_only: without writes.
    """
    data = SESSION_ACTIONS[:-1] if read_only else SESSION_ACTIONS
    places = tuple(places)
    if not places:
        return (Permission(data, (REPOSITORIES,)),) if read_only else ()
    made = [Permission((Action.LIST_REPOS,), (REPOSITORIES,))]
    for repository, ref, prefix in places:
        whole = f"repository/{repository}"
        if not ref:
            made.append(Permission(data[1:], (whole, f"{whole}/*")))
            continue
        # The record of the repository, without which no request about it is possible, tells the names of its refs.
        made.append(Permission((Action.READ_REPO,), (whole,)))
        refs = [f"{whole}/{kind}/{ref}" for kind in ("ref", "branch")]
        resources = tuple(f"{each}/object/{prefix}*" for each in refs)
        made.append(Permission(data[1:], resources if prefix else (*refs, *resources)))
    return tuple(made)


def parse_permission(actions: Sequence[str], resources: Sequence[str]) -> Permission:
    """Parses one permission of a session key.

    Raises:
        TarnError: INVALID: an action that no session key may do, a resource that is none of data, too many or too long
            ones, a `*` before the end.
    """
    if not 1 <= len(actions) <= _ACTIONS_MAX or not 1 <= len(resources) <= _RESOURCES_MAX:
        rule = f"has 1 to {_ACTIONS_MAX} actions and 1 to {_RESOURCES_MAX} resources"
        raise _invalid("permissions", f"a permission {rule}")
    for action in actions:
        if action not in SESSION_ACTIONS:
            text = f"{action[:80]!r} is no action of session keys; these are {', '.join(SESSION_ACTIONS)}"
            raise _invalid("permissions", text)
    for resource in resources:
        if not resource.startswith("repository/") or len(resource) > RESOURCE_CHARS_MAX:
            text = (
                f"{resource[:80]!r} is no resource of session keys: it begins with 'repository/' and has at most "
                f"{RESOURCE_CHARS_MAX} characters"
            )
            raise _invalid("permissions", text)
    found = Permission(tuple(actions), tuple(resources))
    Statement(
        True, found.actions, found.resources
    )  # raises for a pattern with a '*' before its end
    return found


def parse_binding(bucket: str, repository: str, ref: str) -> Binding:
    """Parses one binding.

    Raises:
        TarnError: INVALID: a name that no bucket, repository or ref can have.
    """
    parse_ref(ref)
    return Binding(parse_repository_id(bucket), parse_repository_id(repository), ref)


def require_within_limits(permissions: Sequence[Permission], bindings: Sequence[Binding]) -> None:
    """Checks the limits of one key that are about several of its parts.

    Raises:
        TarnError: INVALID: too many, or too long together; two bindings of one bucket.
    """
    if len(permissions) > PERMISSIONS_MAX or len(bindings) > BINDINGS_MAX:
        text = (
            f"a session key has at most {PERMISSIONS_MAX} permissions and {BINDINGS_MAX} bindings"
        )
        raise _invalid("permissions", text)
    if len({each.bucket for each in bindings}) < len(bindings):
        raise _invalid("bindings", "a session key has at most one binding of a bucket")
    texts = [text for each in permissions for text in (*each.actions, *each.resources)]
    texts += [text for each in bindings for text in (each.bucket, each.repository, each.ref)]
    if sum(map(len, texts)) > _CHARS_MAX:
        text = f"the permissions and bindings of a session key have at most {_CHARS_MAX} characters together"
        raise _invalid("permissions", text)


def parse_duration_s(value: int) -> int:
    """Parses the life of a session key in seconds; 0 is the default.

    Raises:
        TarnError: INVALID: out of bounds.
    """
    seconds = value or DURATION_S_DEFAULT
    if not DURATION_S_MIN <= seconds <= DURATION_S_MAX:
        text = f"a session key lives {DURATION_S_MIN} to {DURATION_S_MAX} seconds, not {seconds}"
        raise _invalid("duration_s", text)
    return seconds


def _invalid(field: str, text: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field)
