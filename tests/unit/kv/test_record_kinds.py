"""The table of records: every layout of a key is in it, and every row of a journaled partition is of one kind."""

from __future__ import annotations

import pytest
from layouts import NO_RECORDS, names_of_layouts

from tarn.core.branch import Token, TokenKind
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import BranchId, RepositoryId, TokenId
from tarn.kv.auth_records import Credential, encode_credential
from tarn.kv.fence import fence_partition
from tarn.kv.keys import AuthKeys, InstallationKeys, RepositoryKeys
from tarn.kv.record_kinds import KINDS, Place, kind_of, place_of
from tarn_proto.store.v1 import auth_pb2

KEYS = InstallationKeys("tarn")
LAKE = KEYS.of_repository(RepositoryId("la-ke"), "0" * 8)


def test_the_table_has_every_layout_once() -> None:
    rows = [layout for kind in KINDS for layout in kind.layouts]
    assert len(rows) == len(set(rows))
    assert not set(rows) & NO_RECORDS
    assert set(rows) | NO_RECORDS == names_of_layouts()


def test_what_leaves_no_event_has_a_reason_or_a_place_of_its_own() -> None:
    for kind in KINDS:
        assert kind.why_not or kind.place, f"{kind.layouts} is neither journaled nor left out"
        assert bool(kind.begins) is bool(kind.place), kind.layouts


def test_each_key_of_a_place_is_of_one_kind() -> None:
    for kind in KINDS:
        if kind.place is not None:
            key = kind.begins + b"x" if kind.begins.endswith(b"/") else kind.begins
            assert kind_of(kind.place, key) is kind


def test_a_row_that_no_kind_covers_is_refused() -> None:
    """Also one that only begins like a record of one key."""
    for place, key in ((Place.REFS, b"new/x"), (Place.REFS, b"settings2"), (Place.AUTH, b"users")):
        with pytest.raises(TarnError) as caught:
            kind_of(place, key)
        assert caught.value.kind is Kind.INTERNAL


def test_each_partition_is_told_from_the_others_by_its_name() -> None:
    token = Token(TokenId("t"), TokenKind.CONDITIONAL, 4, 0)
    assert place_of("tarn", KEYS.graveler.name) is Place.GRAVELER
    assert place_of("tarn", AuthKeys("tarn").partition.name) is Place.AUTH
    assert place_of("tarn", LAKE.refs.name) is Place.REFS
    assert place_of("tarn", LAKE.commits.name) is Place.COMMITS
    assert place_of("tarn", LAKE.pulls.name) is Place.PULLS
    assert place_of("tarn", LAKE.reflog.name) is Place.REFLOG
    others = [
        KEYS.cleanup,
        KEYS.reads,
        KEYS.drops(7),
        KEYS.registrations(7),
        fence_partition("tarn"),
        LAKE.changed,
        LAKE.reflog_expiry(BranchId("main")),
        LAKE.uploads(7),
        LAKE.tasks(7),
        LAKE.branch_look(BranchId("commits")),
        *(LAKE.token(BranchId(name), token) for name in ("main", "commits", "a/commits", "pulls")),
    ]
    assert {place_of("tarn", each.name) for each in others} == {None}
    assert place_of("tarn", "tarn2/auth") is None, "of another installation"


def test_the_event_of_a_key_pair_has_no_secret() -> None:
    stored = encode_credential(
        Credential(
            access_key_id="AKIA",  # type: ignore[arg-type]
            user_id="ann",  # type: ignore[arg-type]
            user_uid=b"u" * 16,
            description="laptop",
            create_time_us=5,
            sealed_secret=b"sealed-secret",
            encryption_key_id="key-1",
        )
    )
    newer = auth_pb2.CredentialRecord.FromString(stored)
    assert newer.sealed_secret
    unknown = b"\xfa\x01\x06secret"  # a field that only a later release knows
    payload = kind_of(Place.AUTH, AuthKeys.credential("AKIA")).told(stored + unknown)
    told = auth_pb2.CredentialRecord.FromString(payload)
    assert (told.access_key_id, told.user_id, told.description) == ("AKIA", "ann", "laptop")
    assert b"secret" not in payload
    assert b"key-1" not in payload


def test_the_prefixes_are_those_of_the_layouts() -> None:
    assert kind_of(Place.PULLS, RepositoryKeys.pull_event(3, 1)).layouts == (
        "RepositoryKeys.pull_event",
    )
