"""Settings of a repository: metadata, protected branches, and what a collection may take.

Tarn keeps them in one record with one ETag, so a change of one of them is a change of all: each is made on the record
that was just read, and again if another one came between.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
from starlette.responses import Response

from tarn.core.access.actions import Action, repository_resource
from tarn.core.collection import LIMITS
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id
from tarn.core.retention import BranchRule, Retention, parse_retention, retention_to_json
from tarn_api.context import Context
from tarn_api.errors import ApiError
from tarn_proto.graveler.v1 import settings_service_pb2 as pb
from tarn_rest import operations as op
from tarn_rest import schemas

__all__ = [
    "create_branch_protection_rule_preflight",
    "delete_gc_rules",
    "delete_repository_metadata",
    "get_branch_protection_rules",
    "get_garbage_collection_config",
    "get_gc_rules",
    "get_repository_metadata",
    "set_branch_protection_rules",
    "set_garbage_collection_rules_preflight",
    "set_gc_rules",
    "set_repository_metadata",
]

_TRIES: Final = 5
_EVERY_BRANCH: Final = "*"
_WILD: Final = frozenset("*?\\")
"""Characters that no name of a branch has in a pattern."""
_SHOWN: Final = frozenset({pb.CHANGE_KIND_WRITE, pb.CHANGE_KIND_COMMIT})
"""What a protection blocks that this interface shows."""
_BLOCKED: Final = (pb.CHANGE_KIND_WRITE, pb.CHANGE_KIND_COMMIT, pb.CHANGE_KIND_FORCE)
"""What a protection blocks that this interface makes: all but merges, and the deletion of the branch."""
_NOT_IN_PATTERNS: Final = frozenset("[]{}")


async def get_repository_metadata(
    context: Context, at: op.GetRepositoryMetadata
) -> schemas.RepositoryMetadata:
    """Returns the metadata of a repository."""
    settings = await context.graveler.get_settings(context.read(), at.repository)
    return dict(settings.metadata)


async def set_repository_metadata(
    context: Context, at: op.SetRepositoryMetadata, body: schemas.RepositoryMetadataSet
) -> None:
    """Adds metadata, or replaces their values; other names stay."""
    await _change_metadata(context, at.repository, lambda now: {**now, **body.metadata})


async def delete_repository_metadata(
    context: Context, at: op.DeleteRepositoryMetadata, body: schemas.RepositoryMetadataKeys
) -> None:
    """Removes metadata; names that are not there are no error."""
    gone = frozenset(body.keys)

    def decide(now: dict[str, str]) -> dict[str, str]:
        return {name: value for name, value in now.items() if name not in gone}

    await _change_metadata(context, at.repository, decide)


async def get_branch_protection_rules(
    context: Context, at: op.GetBranchProtectionRules
) -> Response:
    """Returns the patterns of the branches that take neither writes nor commits. Other protections are not shown."""
    settings = await context.graveler.get_settings(context.read(), at.repository)
    shown = [
        schemas.BranchProtectionRule(pattern=each.pattern)
        for each in settings.protections
        if _is_shown(each)
    ]
    return Response(
        msgspec.json.encode(shown),
        headers={"ETag": settings.etag},  # without quotes, as clients send it back
        media_type="application/json",
    )


async def set_branch_protection_rules(
    context: Context,
    at: op.SetBranchProtectionRules,
    body: list[schemas.BranchProtectionRule],
) -> None:
    """Replaces the protections that are shown.

    A protection whose pattern stays, stays as it is, with its exempt users and roles. What this interface does not show
    is kept: protections against other changes, also those of a pattern that goes.

    `If-Match` without a value says that nothing is protected yet.
    """
    patterns = list(dict.fromkeys(each.pattern for each in body))
    for pattern in patterns:
        if not _NOT_IN_PATTERNS.isdisjoint(pattern):
            text = f"pattern {pattern[:80]!r}: Tarn's patterns have * and ?, and neither sets nor alternatives"
            raise ApiError(400, text, reason="INVALID_ARGUMENT")
    expected = None if at.if_match is None else at.if_match.strip().strip('"')
    call = context.change()

    async def attempt() -> None:
        settings = await context.graveler.get_settings(call, at.repository)
        is_expected = expected in (None, "*", settings.etag)
        if not is_expected and (expected or any(map(_is_shown, settings.protections))):
            raise ApiError(412, "Precondition failed", reason=Reason.SETTINGS_CHANGED.value)
        await context.graveler.set_rules(
            call,
            at.repository,
            protections=_protections(settings.protections, patterns),
            hidden_patterns=settings.hidden_patterns,
            if_match=settings.etag,
        )

    await _changed(at.repository, attempt)


async def create_branch_protection_rule_preflight(
    context: Context, at: op.CreateBranchProtectionRulePreflight
) -> None:
    """Tells whether the caller may set protections. Changes nothing."""
    await _preflight(context, at.repository, Action.WRITE_RULES)


async def get_gc_rules(context: Context, at: op.GetGCRules) -> schemas.GarbageCollectionRules:
    """Returns how many days branches keep their commits. 404: for ever."""
    found = await context.graveler.get_retention(context.read(), at.repository)
    retention = parse_retention(found.rules_json)
    if not retention.expires_commits:
        text = f"repository {at.repository} has no rules: every commit keeps its objects"
        raise ApiError(404, text, reason="NOT_FOUND")
    rules = _gc_rules(retention)
    if rules is None:
        text = (
            "the retention rules of the repository say more than this interface can show; "
            f"see `tarn retention show {at.repository}`"
        )
        raise ApiError(501, text, reason="NOT_IMPLEMENTED")
    return rules


async def set_gc_rules(
    context: Context, at: op.SetGCRules, body: schemas.GarbageCollectionRules
) -> None:
    """Replaces the retention rules of commits. Those of tags, objects and uploads stay."""
    rules, days = _branch_rules(body), body.default_retention_days
    await _change_retention(
        context, at.repository, lambda now: replace(now, branches=rules, detached_days=days)
    )


async def delete_gc_rules(context: Context, at: op.DeleteGCRules) -> None:
    """Removes the retention rules of commits: no further one expires."""
    await _change_retention(
        context, at.repository, lambda now: replace(now, branches=(), detached_days=None)
    )


async def set_garbage_collection_rules_preflight(
    context: Context, at: op.SetGarbageCollectionRulesPreflight
) -> None:
    """Tells whether the caller may set the retention rules. Changes nothing."""
    await _preflight(context, at.repository, Action.MANAGE_COLLECTION)


async def get_garbage_collection_config(
    context: Context, at: op.GetGarbageCollectionConfig
) -> schemas.GarbageCollectionConfig:
    """Returns the seconds between the end of a mark and its sweep."""
    return schemas.GarbageCollectionConfig(grace_period=LIMITS.grace_us // 1_000_000)


async def _preflight(context: Context, repository: str, action: Action) -> None:
    await context.graveler.get_settings(context.read(), repository)  # or it does not exist
    context.require(action, repository_resource(repository))


async def _changed(repository: str, attempt: Callable[[], Awaitable[None]]) -> None:
    """Changes the settings of a repository, again while others change them at the same time.

    Args:
        repository: the repository.
        attempt: reads the settings, and changes them if they are still those.
    """
    for _ in range(_TRIES):
        try:
            return await attempt()
        except TarnError as error:
            if error.reason is not Reason.SETTINGS_CHANGED:
                raise
    text = f"others change the settings of {repository} all the time; nothing was done, try again"
    raise TarnError(Kind.UNAVAILABLE, Reason.UNAVAILABLE, text)


async def _change_metadata(
    context: Context, repository: str, decide: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    call = context.change()

    async def attempt() -> None:
        settings = await context.graveler.get_settings(call, repository)
        wanted = decide(dict(settings.metadata))
        await context.graveler.set_metadata(call, repository, wanted, if_match=settings.etag)

    await _changed(repository, attempt)


async def _change_retention(
    context: Context, repository: str, decide: Callable[[Retention], Retention]
) -> None:
    call = context.change()

    async def attempt() -> None:
        found = await context.graveler.get_retention(call, repository)
        wanted = retention_to_json(decide(parse_retention(found.rules_json)))
        await context.graveler.set_retention(call, repository, wanted, if_match=found.etag)

    await _changed(repository, attempt)


def _is_shown(protection: pb.Protection) -> bool:
    return _SHOWN.issubset(protection.blocked)


def _protections(present: Sequence[pb.Protection], patterns: list[str]) -> list[pb.Protection]:
    """Returns the present protections without what is shown and not wanted, and with the new ones."""
    wanted = set(patterns)
    kept: dict[str, pb.Protection] = {}
    for each in present:
        if _is_shown(each) and each.pattern not in wanted:
            if each.HasField("review"):
                text = (
                    f"the protection {each.pattern!r} asks for reviews of pull requests, which this interface cannot "
                    "show; remove it with `tarn repo unprotect`"
                )
                raise ApiError(400, text, reason="INVALID_ARGUMENT")
            others = sorted(set(each.blocked) - set(_BLOCKED))  # not of this interface
            each = pb.Protection(  # noqa: PLW2901 - the same one, with fewer kinds
                pattern=each.pattern,
                blocked=others,
                exempt_user_ids=each.exempt_user_ids,
                exempt_roles=each.exempt_roles,
            )
        if each.blocked:
            kept[each.pattern] = each
    for pattern in patterns:
        protection = kept.get(pattern, pb.Protection(pattern=pattern))
        if not _is_shown(protection):
            # One pattern has one protection. Whoever was exempt from the other kinds is not exempt from these.
            kinds = sorted({*protection.blocked, *_BLOCKED})
            kept[pattern] = pb.Protection(pattern=pattern, blocked=kinds)
    return list(kept.values())


def _branch_rules(body: schemas.GarbageCollectionRules) -> tuple[BranchRule, ...]:
    """Returns the rules of branches that keep what lakeFS's rules keep.

    A commit that any rule of a branch keeps is kept. So the default rule does not hold for the branches that keep their
    commits for a shorter time.

    Raises:
        ApiError: 400.
    """
    default = body.default_retention_days
    days = {each.branch_id: each.retention_days for each in body.branches}
    if len(days) < len(body.branches):
        raise ApiError(400, "branches: a branch has two rules", reason="INVALID_ARGUMENT")
    for branch_id in days:
        parse_branch_id(branch_id)  # no pattern
    shorter = tuple(branch_id for branch_id, kept in days.items() if kept < default)
    named = (BranchRule(branch_id, kept) for branch_id, kept in days.items())
    return *named, BranchRule(_EVERY_BRANCH, default, exceptions=shorter)


def _gc_rules(retention: Retention) -> schemas.GarbageCollectionRules | None:
    """Returns the retention of commits in lakeFS's form; None if it has none."""
    named = {each.match: each for each in retention.branches}
    default = named.pop(_EVERY_BRANCH, BranchRule(_EVERY_BRANCH))
    branches = [
        schemas.GarbageCollectionRule(branch_id=match, retention_days=rule.keep_days)
        for match, rule in named.items()
        if rule.keep_days is not None
        and (match in default.exceptions or rule.keep_days >= (default.keep_days or 0))
        and not rule.exceptions
        and not set(match) & _WILD
    ]
    is_simple = (
        default.keep_days is not None
        and default.keep_days == retention.detached_days
        and len(branches) + 1 == len(retention.branches)
        and named.keys() >= set(default.exceptions)  # a branch without a rule keeps all
        and all(each.keep_commits == 1 for each in retention.branches)
    )
    if not is_simple or default.keep_days is None:
        return None
    return schemas.GarbageCollectionRules(
        default_retention_days=default.keep_days, branches=branches
    )
