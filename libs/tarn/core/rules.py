"""The rules of a repository: protected branches, hidden branches, and read-only. Decisions only.

A *protection* blocks kinds of changes of the branches that match its pattern, except for the users and roles that
it names. A change must pass every protection that matches its branch. A *read-only* repository blocks every change
but that of its rules, for all users. A *hidden* branch is omitted from listings; it is read and written as before.
The default branch is never hidden, whatever the patterns say.

The limits keep a record below `SETTINGS_BYTES_MAX` (docs/user/rules.md). A decision costs a dictionary look-up once
a branch was judged before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tarn.core.access.policy import Grant, Role
from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.glob import check_glob, match_glob
from tarn.core.retention import KEEP_EVERYTHING, Retention
from tarn.core.review_rule import ExemptUser, ReviewRule

__all__ = [
    "NO_RULES",
    "SETTINGS_BYTES_MAX",
    "ExemptUser",
    "Protection",
    "Rules",
    "Settings",
    "check_metadata",
    "check_rules",
]

PATTERN_BYTES_MAX = 256
PROTECTIONS_MAX = 100
HIDDEN_MAX = 100
EXEMPT_USERS_MAX = 100
METADATA_MAX = 100
METADATA_NAME_BYTES_MAX = 256
METADATA_BYTES_MAX = 16 * 1024
SETTINGS_BYTES_MAX = 64 * 1024
"""Greatest size of the record of rules and metadata; every replica reads it every few seconds."""

_JUDGED_MAX = 1024

_REVIEWED = frozenset(PROTECTABLE) - {ChangeKind.DELETE}
"""What a protection with a review rule blocks at least: every way around a pull request."""

_WORDS: Mapping[ChangeKind, tuple[str, str]] = {
    ChangeKind.WRITE: ("direct writes", "write to another branch and merge it"),
    ChangeKind.COMMIT: ("direct commits", "commit to another branch and merge it"),
    ChangeKind.MERGE: ("merges", "merge into another branch"),
    ChangeKind.DELETE: ("deletion", "keep it"),
    ChangeKind.FORCE: ("resets and moves of its head", "revert commits instead"),
}


@dataclass(frozen=True, slots=True)
class Protection:
    """Blocks kinds of changes of the branches that match `pattern` (`tarn.core.glob`).

    Attributes:
        review: what pull requests need before they are merged, although the protection blocks merges; None: they need
            what other merges need. Invariant: with it, all kinds of changes but perhaps the deletion are blocked.
        unknown_blocked: names of kinds of changes that only newer replicas know. They block nothing here.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    pattern: str
    blocked: frozenset[ChangeKind]
    exempt_users: tuple[ExemptUser, ...] = ()
    exempt_roles: frozenset[str] = frozenset()
    review: ReviewRule | None = None
    unknown_blocked: frozenset[str] = frozenset()
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)

    def binds(self, kind: ChangeKind, caller: Grant) -> bool:
        """Whether it blocks a kind of change for a caller."""
        if kind not in self.blocked or not self.exempt_roles.isdisjoint(caller.roles):
            return False
        # A grant without a uid comes from an auth that does not tell it: no user is exempt.
        uid = caller.user_uid
        return not uid or all(each.user_uid != uid for each in self.exempt_users)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of a repository.

    Attributes:
        hidden: patterns of the branches that listings omit.
        is_read_only: nothing but the rules can be changed.
    """

    protections: tuple[Protection, ...] = ()
    hidden: tuple[str, ...] = ()
    is_read_only: bool = False
    _judged: dict[str, tuple[Protection, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def require(self, repository_id: str, branch_id: str, kind: ChangeKind, caller: Grant) -> None:
        """Refuses a change that a rule blocks.

        Args:
            repository_id: for the text of the error.
            branch_id: the branch to be changed; ignored by kinds that are not about a branch.
            kind: kind of the change.
            caller: the grant of the caller, whom a protection may exempt.

        Raises:
            TarnError: DENIED, REPOSITORY_READ_ONLY or BRANCH_PROTECTED.
        """
        if kind is ChangeKind.ALWAYS:
            return
        self._require_writable(repository_id)
        if not self.protections or kind is ChangeKind.OTHER:
            return
        for protection in self._matching(branch_id):
            if protection.binds(kind, caller):
                raise _protected(repository_id, branch_id, kind, protection, caller)

    def require_pull_merge(
        self, repository_id: str, branch_id: str, caller: Grant
    ) -> list[tuple[str, ReviewRule]]:
        """Returns what the merge of a pull request into a branch needs: patterns of protections and their rules.

        Raises:
            TarnError: DENIED, REPOSITORY_READ_ONLY; BRANCH_PROTECTED: a protection without a review rule blocks merges.
        """
        self._require_writable(repository_id)
        wanted = []
        for protection in self._matching(branch_id):
            if not protection.binds(ChangeKind.MERGE, caller):
                continue
            if protection.review is None:
                raise _protected(repository_id, branch_id, ChangeKind.MERGE, protection, caller)
            wanted.append((protection.pattern, protection.review))
        return wanted

    def _require_writable(self, repository_id: str) -> None:
        if self.is_read_only:
            text = (
                f"repository {repository_id} is read-only: nothing but its rules can be changed; ask one of its "
                "administrators to make it writable"
            )
            raise TarnError(
                Kind.DENIED, Reason.REPOSITORY_READ_ONLY, text, repository=repository_id
            )

    def _matching(self, branch_id: str) -> tuple[Protection, ...]:
        found = self._judged.get(branch_id)
        if found is None:
            name = pa.array([branch_id], pa.string())
            found = tuple(each for each in self.protections if match_glob(name, each.pattern)[0])
            if len(self._judged) >= _JUDGED_MAX:
                self._judged.clear()
            self._judged[branch_id] = found
        return found

    def are_hidden(self, branch_ids: Sequence[str], default_branch_id: str) -> list[bool]:
        """Returns for each branch whether listings omit it. The default branch is never hidden."""
        names = pa.array(branch_ids, pa.string())
        hidden = np.zeros(len(branch_ids), np.bool_)
        for pattern in self.hidden:
            hidden |= match_glob(names, pattern)
        pairs = zip(branch_ids, hidden.tolist(), strict=True)
        return [is_hidden and name != default_branch_id for name, is_hidden in pairs]


NO_RULES = Rules()
"""The rules of a repository that has none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The record of a repository's rules and metadata.

    Attributes:
        metadata: sorted by name.
        retention: which commits keep their objects.
        change_id: 16 random bytes, unique to the change that made this version; empty if there was none.
        unknown_fields: fields of the record that only newer replicas know (`tarn.kv.unknown_fields`).
    """

    rules: Rules = NO_RULES
    metadata: tuple[tuple[str, str], ...] = ()
    change_id: bytes = b""
    change_time_us: int = 0
    retention: Retention = KEEP_EVERYTHING
    unknown_fields: bytes = field(default=b"", compare=False, repr=False)


def _protected(
    repository_id: str, branch_id: str, kind: ChangeKind, protection: Protection, caller: Grant
) -> TarnError:
    what, remedy = _WORDS[kind]
    if protection.review is not None and kind is not ChangeKind.DELETE:
        remedy = "open a pull request (`tarn pr create`)"
    text = (
        f"branch {repository_id}/{branch_id} is protected against {what} by the rule {protection.pattern!r}; "
        f"{remedy}, or ask an administrator to exempt {caller.user_id} or to change the rule"
    )
    return TarnError(
        Kind.DENIED,
        Reason.BRANCH_PROTECTED,
        text,
        repository=repository_id,
        branch=branch_id,
        ref=branch_id,
        rule=protection.pattern,
        change=kind.value,
        user_id=caller.user_id,
    )


def _invalid(text: str, field_name: str) -> TarnError:
    return TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field=field_name)


def _check_count(what: str, count: int, most: int) -> None:
    if count > most:
        raise _invalid(f"{count} {what}; at most {most} are allowed", what)


def _check_pattern(pattern: str) -> None:
    if len(pattern.encode()) > PATTERN_BYTES_MAX:
        text = f"the pattern {pattern[:80]!r} is longer than {PATTERN_BYTES_MAX} bytes"
        raise _invalid(text, "pattern")
    check_glob(pattern)


def check_rules(rules: Rules) -> None:
    """Checks new rules.

    Raises:
        TarnError: INVALID_ARGUMENT: an invalid or repeated pattern, a protection that blocks nothing, or too many
            patterns, protections or exempt users. ROLE_NOT_FOUND: an exempt role does not exist.
    """
    _check_count("protections", len(rules.protections), PROTECTIONS_MAX)
    _check_count("hidden patterns", len(rules.hidden), HIDDEN_MAX)
    for pattern in (*rules.hidden, *(each.pattern for each in rules.protections)):
        _check_pattern(pattern)
    patterns = [each.pattern for each in rules.protections]
    if len(set(patterns)) < len(patterns):
        repeated = next(each for each in patterns if patterns.count(each) > 1)
        text = f"two protections have the pattern {repeated!r}; merge them into one"
        raise _invalid(text, "pattern")
    for each in rules.protections:
        _check_protection(each)


def _check_protection(protection: Protection) -> None:
    if not protection.blocked or not protection.blocked.issubset(PROTECTABLE):
        text = f"the protection {protection.pattern!r} must block at least one of {', '.join(PROTECTABLE)}"
        raise _invalid(text, "blocked")
    if (review := protection.review) is not None:
        review.check()
        if not _REVIEWED.issubset(protection.blocked):
            text = (
                f"the protection {protection.pattern!r} wants reviews, so it must block "
                f"{', '.join(sorted(_REVIEWED))}: only pull requests are merged into its branches"
            )
            raise _invalid(text, "blocked")
    _check_count("exempt users of one protection", len(protection.exempt_users), EXEMPT_USERS_MAX)
    known = {role.value for role in Role}
    if unknown := sorted(protection.exempt_roles - known):
        text = f"role {unknown[0][:80]!r} does not exist; the roles are {', '.join(Role)}"
        raise TarnError(Kind.NOT_FOUND, Reason.ROLE_NOT_FOUND, text, role=unknown[0][:80])


def check_metadata(metadata: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Returns metadata sorted by name, after checking them.

    Raises:
        TarnError: INVALID_ARGUMENT: too many names, or an invalid one. METADATA_TOO_LARGE.
    """
    _check_count("names of metadata", len(metadata), METADATA_MAX)
    pairs = tuple(sorted(metadata.items()))
    for name, _ in pairs:
        if not 1 <= len(name.encode()) <= METADATA_NAME_BYTES_MAX:
            text = f"the metadata name {name[:80]!r} must have 1 to {METADATA_NAME_BYTES_MAX} bytes"
            raise _invalid(text, "metadata")
    size = sum(len(name.encode()) + len(value.encode()) for name, value in pairs)
    if size > METADATA_BYTES_MAX:
        text = f"the metadata of a repository have at most {METADATA_BYTES_MAX} bytes, not {size}"
        raise TarnError(Kind.INVALID, Reason.METADATA_TOO_LARGE, text)
    return pairs
