"""Review rules in records and dumps keep what they say."""

from __future__ import annotations

from tarn.core.change_kind import PROTECTABLE
from tarn.core.dump import from_line, to_line
from tarn.core.review_rule import ExemptUser, OwnerRule, ReviewRule, StaleApprovals
from tarn.core.rules import Protection, Rules, Settings
from tarn.kv.rules_records import decode_settings, encode_settings
from tarn_proto.store.v1 import rules_pb2 as pb

RULE = ReviewRule(
    2,
    author_counts=True,
    stale=StaleApprovals.DISMISS,
    covers_destination=True,
    owners=(OwnerRule("raw/", (ExemptUser("ann", b"a" * 16), ExemptUser("ben", b"b" * 16))),),
)
SETTINGS = Settings(Rules((Protection("main", frozenset(PROTECTABLE), review=RULE),)))


def test_a_review_rule_survives_its_record_and_a_dump() -> None:
    assert decode_settings(encode_settings(SETTINGS)) == SETTINGS
    assert from_line(to_line(SETTINGS)) == SETTINGS


def test_a_way_to_treat_stale_approvals_of_the_next_release_is_strict_here_and_stays() -> None:
    protection = pb.ProtectionRecord(pattern="main", review=pb.ReviewRuleRecord(stale="new"))
    settings = decode_settings(pb.SettingsRecord(protections=[protection]).SerializeToString())
    (found,) = settings.rules.protections
    assert found.review is not None
    assert found.review.stale is StaleApprovals.DISMISS
    back = pb.SettingsRecord.FromString(encode_settings(settings))
    assert back.protections[0].review.stale == "new"
