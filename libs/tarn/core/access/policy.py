"""Policies: statements, the decision over them, and the built-in roles.

The default is deny, and a deny overrides every allow. Patterns have one wildcard, a `*` at the end. A set of
statements is compiled once into exact names and prefixes per action, so a decision takes a few set look-ups and
`str.startswith` calls, whatever the number of statements.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tarn.core.access.actions import Action, session_resource, user_resource
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import UserId

__all__ = [
    "Binding",
    "Grant",
    "Policy",
    "Role",
    "Statement",
    "compile_policy",
    "decide",
    "parse_roles",
    "statements_by_role",
    "statements_of",
]

_POLICIES_CACHED = 1024


@dataclass(frozen=True, slots=True)
class Statement:
    """One rule of a policy.

    Attributes:
        allow: True to allow, False to deny.
        actions: names of `Action`, or prefixes of them followed by `*`.
        resources: names as in `tarn.core.access.actions`, or prefixes of them followed by `*`.

    Raises:
        TarnError: INVALID: a pattern has a `*` that is not its last character. Read literally, it would
            silently match nothing, which would make a deny ineffective.
    """

    allow: bool
    actions: tuple[str, ...]
    resources: tuple[str, ...]

    def __post_init__(self) -> None:
        for pattern in self.actions + self.resources:
            if "*" in pattern[:-1]:
                text = f"pattern {pattern!r} has a '*' before its end; only the last character may be one"
                raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, pattern=pattern)


class _Patterns:
    """A set of patterns, prepared for many look-ups."""

    __slots__ = ("_names", "_prefixes", "is_any")

    def __init__(self, patterns: Iterable[str]) -> None:
        patterns = frozenset(patterns)
        self._names = frozenset(p for p in patterns if not p.endswith("*"))
        self._prefixes = tuple(sorted(p[:-1] for p in patterns if p.endswith("*")))
        self.is_any = bool(patterns)

    def match(self, name: str) -> bool:
        return name in self._names or name.startswith(self._prefixes)

    def meet(self, prefix: str) -> bool:
        """Whether a name that begins with the prefix can match."""
        return (
            self.cover(prefix)
            or any(name.startswith(prefix) for name in self._names)
            or any(each.startswith(prefix) for each in self._prefixes)
        )

    def cover(self, prefix: str) -> bool:
        """Whether one pattern matches every name that begins with the prefix."""
        return prefix.startswith(self._prefixes)


class Policy:
    """Compiled statements. Immutable."""

    __slots__ = ("_rules", "statements")

    def __init__(self, statements: Iterable[Statement]) -> None:
        self.statements = tuple(statements)
        self._rules = {
            action: (self._resources(action, allow=False), self._resources(action, allow=True))
            for action in Action
        }

    def allows(self, action: Action, resource: str) -> bool:
        """Whether a statement allows the action on the resource and no statement denies it."""
        denied, allowed = self._rules[action]
        return allowed.match(resource) and not (denied.is_any and denied.match(resource))

    def deciding(self, action: Action, resource: str) -> tuple[Statement, ...]:
        """Returns the statements that decide about the action on the resource: those that deny it, or else those that
        allow it; none if it is denied because no statement allows it. For people; `allows` is what is enforced."""
        found = [
            each
            for each in self.statements
            if _Patterns(each.actions).match(action) and _Patterns(each.resources).match(resource)
        ]
        return tuple(each for each in found if not each.allow) or tuple(found)

    def may_allow(self, action: Action, prefix: str) -> bool:
        """Whether the action may be allowed on any resource whose name begins with the prefix. A denial of each
        single one of them is not found; a denial of them all is."""
        denied, allowed = self._rules[action]
        return allowed.meet(prefix) and not denied.cover(prefix)

    def allows_all(self, action: Action, prefix: str) -> bool:
        """Whether the action is certainly allowed on every resource whose name begins with the prefix: one pattern
        allows them all, and none that denies can match one of them."""
        denied, allowed = self._rules[action]
        return allowed.cover(prefix) and not denied.meet(prefix)

    def _resources(self, action: Action, *, allow: bool) -> _Patterns:
        return _Patterns(
            resource
            for statement in self.statements
            if statement.allow is allow and _Patterns(statement.actions).match(action)
            for resource in statement.resources
        )


@lru_cache(_POLICIES_CACHED)
def compile_policy(statements: tuple[Statement, ...]) -> Policy:
    """The policy of these statements. Caches the last thousand policies."""
    return Policy(statements)


def decide(statements: tuple[Statement, ...], action: Action, resource: str) -> bool:
    """`Policy.allows` for statements that may not be compiled yet."""
    return compile_policy(statements).allows(action, resource)


@dataclass(frozen=True, slots=True)
class Binding:
    """What a bucket name means to the holder of a session key.

    Attributes:
        bucket: the name.
        repository: the repository that it shows.
        ref: the ref that it shows; each key is a path of it.
    """

    bucket: str
    repository: str
    ref: str


@dataclass(frozen=True, slots=True)
class Grant:
    """The permissions of one caller, valid for `ttl_ms` from the moment the grant was requested.

    Attributes:
        user_id: the caller.
        policy: the compiled statements of the caller's roles.
        caller_token: passed on to other services, which decide again; a secret.
        user_uid: 16 bytes, unique to this life of the user.
        roles: the caller's roles.
        bindings: of a session key: what bucket names mean to its holder.
        session_key_id: access key id of the session key for which it is; empty for a key pair.
    """

    user_id: UserId
    policy: Policy
    caller_token: str = field(repr=False)
    ttl_ms: int
    user_uid: bytes = b""
    roles: tuple[str, ...] = ()
    bindings: tuple[Binding, ...] = ()
    session_key_id: str = ""

    def allows(self, action: Action, resource: str) -> bool:
        """Whether the caller may do the action on the resource."""
        return self.policy.allows(action, resource)

    def require(self, action: Action, resource: str) -> None:
        """Raises `TarnError` DENIED, ACCESS_DENIED unless the caller may do the action on the resource."""
        if not self.policy.allows(action, resource):
            raise self._denial(action, resource)

    def require_any(self, action: Action, prefix: str) -> None:
        """Raises as `require` if the caller may do the action on no resource whose name begins with the prefix
        (`Policy.may_allow`): a first check of a request whose body names the resources."""
        if not self.policy.may_allow(action, prefix):
            raise self._denial(action, f"{prefix}*")

    def _denial(self, action: Action, resource: str) -> TarnError:
        text = f"user {self.user_id} may not {action} on {resource}"
        return TarnError(
            Kind.DENIED,
            Reason.ACCESS_DENIED,
            text,
            user_id=self.user_id,
            action=action.value,
            resource=resource,
        )


class Role(enum.StrEnum):
    """The built-in roles (services/auth/README.md)."""

    ADMIN = "Admin"
    DEVELOPER = "Developer"
    ANALYST = "Analyst"


def parse_roles(names: Iterable[str]) -> tuple[Role, ...]:
    """Parses role names; returns roles without repetitions, in the order of `Role`. No name: no role.

    Raises:
        TarnError: NOT_FOUND, ROLE_NOT_FOUND: a name is unknown.
    """
    wanted = set(names)
    known = {role.value for role in Role}
    if unknown := sorted(wanted - known):
        text = f"role {unknown[0][:80]!r} does not exist; the roles are {', '.join(Role)}"
        raise TarnError(Kind.NOT_FOUND, Reason.ROLE_NOT_FOUND, text, role=unknown[0][:80])
    return tuple(role for role in Role if role.value in wanted)


_READ = (Action.LIST_REPOS.value, Action.READ_REPO.value)
_OWN = (Action.READ_USERS.value, Action.MANAGE_CREDENTIALS.value)


def statements_of(roles: Iterable[Role], user_id: UserId) -> tuple[Statement, ...]:
    """The statements of a user's roles. Every user may read their own record and manage their own keys."""
    return tuple(statement for _, statement in statements_by_role(roles, user_id))


def statements_by_role(
    roles: Iterable[Role], user_id: UserId
) -> tuple[tuple[Role | None, Statement], ...]:
    """As `statements_of`, each with its role; None if every user has it."""
    sessions = Statement(True, (Action.MANAGE_SESSIONS.value,), (session_resource(user_id, "*"),))
    own = Statement(True, _OWN, (user_resource(user_id),))
    statements: list[tuple[Role | None, Statement]] = [(None, own), (None, sessions)]
    for role in roles:
        match role:
            case Role.ADMIN:
                statements.append((role, Statement(True, ("*",), ("*",))))
            case Role.DEVELOPER:
                actions = (*_READ, Action.WRITE_REPO.value, Action.COMPACT_REPO.value)
                statements.append((role, Statement(True, actions, ("repository/*",))))
            case Role.ANALYST:
                statements.append((role, Statement(True, _READ, ("repository/*",))))
    return tuple(statements)
