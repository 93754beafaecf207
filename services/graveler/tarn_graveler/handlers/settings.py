"""SettingsService: the rules of a repository, its metadata and its default branch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tarn.core.change_kind import ChangeKind
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import parse_branch_id
from tarn.core.levels import Feature
from tarn.core.retention import parse_retention, retention_to_json
from tarn.core.review_rule import ExemptUser, OwnerRule, ReviewRule, StaleApprovals
from tarn.core.rules import Protection, Rules, Settings, check_metadata, check_rules
from tarn.gate.access import Access
from tarn.gate.permits import RepositoryPermit
from tarn.rpc.wire.call import Call
from tarn_graveler.assembly import Graveler
from tarn_graveler.branch.default_branch import DefaultBranch
from tarn_graveler.handlers.requests import require_retention
from tarn_graveler.records.branches import BranchName
from tarn_graveler.records.settings import etag_of
from tarn_proto.graveler.v1 import settings_service_pb2 as pb

__all__ = ["SettingsHandler"]


_KINDS = {
    pb.CHANGE_KIND_WRITE: ChangeKind.WRITE,
    pb.CHANGE_KIND_COMMIT: ChangeKind.COMMIT,
    pb.CHANGE_KIND_MERGE: ChangeKind.MERGE,
    pb.CHANGE_KIND_DELETE: ChangeKind.DELETE,
    pb.CHANGE_KIND_FORCE: ChangeKind.FORCE,
}
_NEW_USERS_MAX = 100
"""Each takes a request to auth."""

_STALE = {
    pb.STALE_APPROVALS_UNSPECIFIED: StaleApprovals.IGNORE,
    pb.STALE_APPROVALS_KEEP: StaleApprovals.KEEP,
    pb.STALE_APPROVALS_IGNORE: StaleApprovals.IGNORE,
    pb.STALE_APPROVALS_DISMISS: StaleApprovals.DISMISS,
}
_STALE_NUMBERS = {stale: number for number, stale in _STALE.items()}

_Named = dict[tuple[str, str | None, str], bytes]
"""Uids of users whom rules name, by the pattern of the protection, the prefix that they own (None: exempt), and the
user."""

_KIND_NUMBERS = {kind: number for number, kind in _KINDS.items()}


class SettingsHandler:
    """Answers `tarn.graveler.v1.SettingsService`."""

    def __init__(self, graveler: Graveler, access: Access) -> None:
        self._access = access
        self._settings = graveler.settings
        self._features = graveler.features
        self._default_branch = DefaultBranch(graveler.repositories, graveler.branches)
        self._repositories = graveler.repositories

    async def GetSettings(
        self, request: pb.GetSettingsRequest, permit: RepositoryPermit
    ) -> pb.GetSettingsResponse:
        """Returns rules, metadata and default branch, as they are now."""
        repository = permit.repository
        found = await self._settings.read(repository)
        current = await self._repositories.read(repository.repository_id)
        return pb.GetSettingsResponse(
            protections=map(_protection_message, found.rules.protections),
            hidden_patterns=found.rules.hidden,
            read_only=found.rules.is_read_only,
            metadata=dict(found.metadata),
            etag=etag_of(repository, found),
            default_branch_id=current.default_branch,
        )

    async def SetRules(
        self, request: pb.SetRulesRequest, permit: RepositoryPermit
    ) -> pb.SetRulesResponse:
        """Replaces all protections and all hidden patterns."""
        repository = permit.repository
        _require_etag(request.if_match)
        wanted = _rules(request)
        check_rules(wanted)
        if any(each.review is not None for each in wanted.protections):
            self._features.require(Feature.PULL_REQUESTS)
        present = (await self._settings.read(repository)).rules
        uids = await self._uids_of_new(permit.call, _named(present), wanted)

        def decide(now: Settings) -> Settings:
            known = _named(now.rules)
            protections = tuple(_with_uids(each, known, uids) for each in wanted.protections)
            rules = Rules(protections, wanted.hidden, now.rules.is_read_only)
            return replace(now, rules=rules)

        return pb.SetRulesResponse(
            etag=await self._settings.change(repository, request.if_match, decide)
        )

    async def _uids_of_new(self, call: Call, known: _Named, wanted: Rules) -> dict[str, bytes]:
        """Returns the uids of the users that a protection of `wanted` names for the first time.

        Raises:
            TarnError: USER_NOT_FOUND; DENIED if the caller may not read a user.
        """
        new = {place[-1] for place in _named(wanted) if place not in known}
        if len(new) > _NEW_USERS_MAX:
            text = f"{len(new)} users are named for the first time; at most {_NEW_USERS_MAX} in one request"
            raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="exempt_user_ids")
        return {user_id: await self._access.user_uid(call, user_id) for user_id in sorted(new)}

    async def SetReadOnly(
        self, request: pb.SetReadOnlyRequest, permit: RepositoryPermit
    ) -> pb.SetReadOnlyResponse:
        """Makes the repository read-only, or writable again."""
        repository = permit.repository

        def decide(now: Settings) -> Settings:
            return replace(now, rules=replace(now.rules, is_read_only=request.read_only))

        return pb.SetReadOnlyResponse(
            etag=await self._settings.change(repository, request.if_match, decide)
        )

    async def GetRetention(
        self, request: pb.GetRetentionRequest, permit: RepositoryPermit
    ) -> pb.GetRetentionResponse:
        """Returns the retention rules, as they are now."""
        repository = permit.repository
        found = await self._settings.read(repository)
        return pb.GetRetentionResponse(
            rules_json=retention_to_json(found.retention), etag=etag_of(repository, found)
        )

    async def SetRetention(
        self, request: pb.SetRetentionRequest, permit: RepositoryPermit
    ) -> pb.SetRetentionResponse:
        """Replaces the retention rules. An older replica would lose them, and would not see which commits expired."""
        repository = permit.repository
        _require_etag(request.if_match)
        retention = parse_retention(request.rules_json)
        require_retention(self._features, retention)
        etag = await self._settings.change(
            repository, request.if_match, lambda now: replace(now, retention=retention)
        )
        return pb.SetRetentionResponse(etag=etag)

    async def SetMetadata(
        self, request: pb.SetMetadataRequest, permit: RepositoryPermit
    ) -> pb.SetMetadataResponse:
        """Replaces all metadata."""
        repository = permit.repository
        _require_etag(request.if_match)
        metadata = check_metadata(request.metadata)
        etag = await self._settings.change(
            repository, request.if_match, lambda now: replace(now, metadata=metadata)
        )
        return pb.SetMetadataResponse(etag=etag)

    async def SetDefaultBranch(
        self, request: pb.SetDefaultBranchRequest, permit: RepositoryPermit
    ) -> pb.SetDefaultBranchResponse:
        """Makes an existing branch the default branch."""
        branch_id = parse_branch_id(request.branch_id)
        repository = permit.repository
        former = await self._default_branch.set(
            BranchName(repository, branch_id), request.expected_branch_id
        )
        return pb.SetDefaultBranchResponse(former_branch_id=former)


def _require_etag(etag: str) -> None:
    if not etag:
        text = "if_match is missing: read the settings, and send the ETag that they have"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="if_match")


def _rules(request: pb.SetRulesRequest) -> Rules:
    """Returns the rules of a request, whose users have no uids yet."""
    protections = tuple(
        Protection(
            each.pattern,
            frozenset(_kind(kind) for kind in each.blocked),
            tuple(ExemptUser(user_id, b"") for user_id in dict.fromkeys(each.exempt_user_ids)),
            frozenset(each.exempt_roles),
            _review(each.review) if each.HasField("review") else None,
        )
        for each in request.protections
    )
    return Rules(protections, tuple(dict.fromkeys(request.hidden_patterns)))


def _kind(number: pb.ChangeKind) -> ChangeKind:
    found = _KINDS.get(number)
    if found is None:
        text = f"{number} is not a kind of change that a protection can block"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="blocked")
    return found


def _named(rules: Rules) -> _Named:
    named: _Named = {}
    for each in rules.protections:
        for user in each.exempt_users:
            named[each.pattern, None, user.user_id] = user.user_uid
        for owned in each.review.owners if each.review is not None else ():
            for user in owned.owners:
                named[each.pattern, owned.prefix, user.user_id] = user.user_uid
    return named


def _with_uids(protection: Protection, known: _Named, new: dict[str, bytes]) -> Protection:
    """Returns a protection with the uids of the users whom it names.

    A user whom the protection of the same pattern names already, in the same place, keeps the uid that it had then:
    otherwise an unrelated change of the rules would mean a later user of the same name.
    """

    def found(prefix: str | None, users: Iterable[ExemptUser]) -> tuple[ExemptUser, ...]:
        return tuple(
            _with_uid(each.user_id, known.get((protection.pattern, prefix, each.user_id)), new)
            for each in users
        )

    review = protection.review
    if review is not None:
        owners = tuple(
            replace(each, owners=found(each.prefix, each.owners)) for each in review.owners
        )
        review = replace(review, owners=owners)
    return replace(protection, exempt_users=found(None, protection.exempt_users), review=review)


def _with_uid(user_id: str, known: bytes | None, new: dict[str, bytes]) -> ExemptUser:
    uid = known or new.get(user_id)
    if uid is None:  # named when the rules were read, not any more
        text = f"a rule named user {user_id}, and does not any more; read the settings again"
        raise TarnError(Kind.CONFLICT, Reason.SETTINGS_CHANGED, text)
    return ExemptUser(user_id, uid)


def _review(sent: pb.ReviewRule) -> ReviewRule:
    """Returns the review rule of a request, whose owners have no uids yet."""
    stale = _STALE.get(sent.stale)
    if stale is None:
        text = f"{sent.stale} is not a way to treat stale approvals"
        raise TarnError(Kind.INVALID, Reason.INVALID_ARGUMENT, text, field="stale")
    owners = tuple(
        OwnerRule(
            each.prefix,
            tuple(ExemptUser(user_id, b"") for user_id in dict.fromkeys(each.user_ids)),
        )
        for each in sent.owners
    )
    return ReviewRule(
        sent.approval_count, sent.author_counts, stale, sent.covers_destination, owners
    )


def _review_message(rule: ReviewRule) -> pb.ReviewRule:
    return pb.ReviewRule(
        approval_count=rule.approval_count,
        author_counts=rule.author_counts,
        stale=_STALE_NUMBERS[rule.stale],
        covers_destination=rule.covers_destination,
        owners=[
            pb.OwnerRule(prefix=each.prefix, user_ids=[user.user_id for user in each.owners])
            for each in rule.owners
        ],
    )


def _protection_message(protection: Protection) -> pb.Protection:
    return pb.Protection(
        pattern=protection.pattern,
        blocked=_numbers(protection.blocked),
        exempt_user_ids=[each.user_id for each in protection.exempt_users],
        exempt_roles=sorted(protection.exempt_roles),
        review=None if protection.review is None else _review_message(protection.review),
    )


def _numbers(kinds: Iterable[ChangeKind]) -> list[pb.ChangeKind]:
    return sorted(_KIND_NUMBERS[kind] for kind in kinds)
