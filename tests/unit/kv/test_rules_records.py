"""The record of a repository's rules and metadata."""

import pytest

from tarn.core.change_kind import PROTECTABLE, ChangeKind
from tarn.core.errors import Kind, TarnError
from tarn.core.rules import ExemptUser, Protection, Rules, Settings
from tarn.kv.rules_records import decode_settings, encode_settings
from tarn_proto.store.v1 import rules_pb2 as pb

FULL = Settings(
    Rules(
        (
            Protection("main", frozenset(PROTECTABLE), (ExemptUser("ann", b"u" * 16),)),
            Protection("r*", frozenset({ChangeKind.FORCE}), (), frozenset({"Admin"})),
        ),
        ("tmp-*",),
        is_read_only=True,
    ),
    (("a", "1"), ("b", "")),
    b"c" * 16,
    7,
)


@pytest.mark.parametrize("settings", [Settings(), FULL])
def test_settings_survive_the_store(settings: Settings) -> None:
    assert decode_settings(encode_settings(settings)) == settings


def test_a_damaged_record_is_refused() -> None:
    with pytest.raises(TarnError) as raised:
        decode_settings(b"\xff")
    assert raised.value.kind is Kind.CORRUPT


@pytest.mark.parametrize(
    "text", ["no JSON", '{"branches": [{"match": "\\ud800", "keep_days": 1}]}']
)
def test_damaged_retention_rules_are_damage_and_no_mistake_of_the_caller(text: str) -> None:
    record = pb.SettingsRecord(retention=text)
    with pytest.raises(TarnError) as raised:
        decode_settings(record.SerializeToString())
    assert raised.value.kind is Kind.CORRUPT
    raised.value.message.encode()


def test_a_kind_that_this_version_does_not_know_blocks_nothing() -> None:
    record = pb.SettingsRecord(
        protections=[pb.ProtectionRecord(pattern="main", blocked=["write", "later"])]
    )
    (found,) = decode_settings(record.SerializeToString()).rules.protections
    assert found.blocked == {ChangeKind.WRITE}
