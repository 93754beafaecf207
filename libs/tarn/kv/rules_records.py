"""Encodes the rules and metadata of a repository as a KV value, and decodes them (`protos/tarn_proto/store/v1`)."""

from __future__ import annotations

from tarn.core.change_kind import PROTECTABLE
from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.retention import Retention, parse_retention, retention_to_json
from tarn.core.review_rule import ExemptUser, OwnerRule, ReviewRule, StaleApprovals
from tarn.core.rules import Protection, Rules, Settings
from tarn.kv.records import parse_record
from tarn.kv.unknown_fields import unknown_of, with_unknown
from tarn_proto.store.v1 import rules_pb2 as pb

__all__ = ["decode_settings", "encode_settings"]

_STALE = {stale.value: stale for stale in StaleApprovals}
_KINDS = {kind.value: kind for kind in PROTECTABLE}


def encode_settings(settings: Settings) -> bytes:
    """Encodes rules and metadata as a KV value."""
    rules = settings.rules
    record = pb.SettingsRecord(
        protections=[_protection_to(each) for each in rules.protections],
        hidden=rules.hidden,
        is_read_only=rules.is_read_only,
        metadata=dict(settings.metadata),
        change_id=settings.change_id,
        change_time_us=settings.change_time_us,
        retention=retention_to_json(settings.retention),
    )
    return with_unknown(record, settings.unknown_fields).SerializeToString(deterministic=True)


def decode_settings(value: bytes) -> Settings:
    """Decodes rules and metadata from a KV value.

    Raises:
        TarnError: CORRUPT: the value cannot be parsed.
    """
    record = parse_record(pb.SettingsRecord(), value)
    protections = tuple(_protection_from(each) for each in record.protections)
    rules = Rules(protections, tuple(record.hidden), record.is_read_only)
    metadata = tuple(sorted(record.metadata.items()))
    return Settings(
        rules,
        metadata,
        record.change_id,
        record.change_time_us,
        _retention_from(record.retention),
        unknown_of(record),
    )


def _retention_from(text: str) -> Retention:
    try:
        return parse_retention(text)
    except TarnError as error:
        damage = f"a settings record is damaged: {error.message}"
        raise TarnError(Kind.CORRUPT, Reason.DATA_CORRUPT, damage) from error


def _protection_to(protection: Protection) -> pb.ProtectionRecord:
    record = pb.ProtectionRecord(
        pattern=protection.pattern,
        blocked=sorted({*protection.blocked, *protection.unknown_blocked}),
        exempt_users=[_exempt_to(each) for each in protection.exempt_users],
        exempt_roles=sorted(protection.exempt_roles),
    )
    if protection.review is not None:
        record.review.CopyFrom(_review_to(protection.review))
    return with_unknown(record, protection.unknown_fields)


def _review_to(rule: ReviewRule) -> pb.ReviewRuleRecord:
    record = pb.ReviewRuleRecord(
        approval_count=rule.approval_count,
        author_counts=rule.author_counts,
        stale=rule.unknown_stale or rule.stale.value,
        covers_destination=rule.covers_destination,
        owners=map(_owner_to, rule.owners),
    )
    return with_unknown(record, rule.unknown_fields)


def _owner_to(rule: OwnerRule) -> pb.OwnerRuleRecord:
    record = pb.OwnerRuleRecord(prefix=rule.prefix, users=map(_exempt_to, rule.owners))
    return with_unknown(record, rule.unknown_fields)


def _review_from(record: pb.ReviewRuleRecord) -> ReviewRule:
    stale = _STALE.get(record.stale)
    owners = tuple(
        OwnerRule(each.prefix, tuple(map(_exempt_from, each.users)), unknown_of(each))
        for each in record.owners
    )
    return ReviewRule(
        record.approval_count,
        record.author_counts,
        stale or StaleApprovals.DISMISS,
        record.covers_destination,
        owners,
        "" if stale else record.stale,
        unknown_of(record),
    )


def _exempt_from(record: pb.ExemptUserRecord) -> ExemptUser:
    return ExemptUser(record.user_id, record.user_uid, unknown_of(record))


def _exempt_to(user: ExemptUser) -> pb.ExemptUserRecord:
    record = pb.ExemptUserRecord(user_id=user.user_id, user_uid=user.user_uid)
    return with_unknown(record, user.unknown_fields)


def _protection_from(record: pb.ProtectionRecord) -> Protection:
    return Protection(
        record.pattern,
        frozenset(_KINDS[name] for name in record.blocked if name in _KINDS),
        tuple(map(_exempt_from, record.exempt_users)),
        frozenset(record.exempt_roles),
        _review_from(record.review) if record.HasField("review") else None,
        frozenset(record.blocked).difference(_KINDS),
        unknown_of(record),
    )
