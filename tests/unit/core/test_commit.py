"""Commits: canonical bytes, ids and the object in the bucket."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.commit import (
    AUTHOR_TIME,
    Commit,
    author_time_us,
    canonical_bytes,
    commit_id_of,
    from_json,
    to_json,
    with_author_time,
)
from tarn.core.errors import Kind, TarnError
from tarn.core.ids import CommitId, MetarangeId

PARENT = CommitId("11" * 32)
COMMIT = Commit(
    parents=(PARENT, CommitId("22" * 32)),
    metarange_id=MetarangeId("33" * 32),
    committer="ada",
    message="Add märz\n",
    create_time_us=1_790_000_000_000_000,
    generation=7,
    metadata=(("job", "42"), ("tool", "spark")),
)


def commits() -> st.SearchStrategy[Commit]:
    text = st.text(st.characters(codec="utf-8"), max_size=8)
    ids = st.sampled_from(["11" * 32, "22" * 32, "33" * 32])
    return st.builds(
        Commit,
        parents=st.lists(ids, max_size=2).map(tuple),
        metarange_id=ids,
        committer=text,
        message=text,
        create_time_us=st.integers(-(1 << 63), (1 << 63) - 1),
        generation=st.integers(0, 1 << 40),
        metadata=st.dictionaries(text, text, max_size=3).map(lambda d: tuple(sorted(d.items()))),
    )


def test_the_canonical_bytes_are_golden() -> None:
    assert canonical_bytes(COMMIT).hex() == (
        "7461726e20636f6d6d69740a01000000020000004000000031313131313131313131313131313131"
        "31313131313131313131313131313131313131313131313131313131313131313131313131313131"
        "31313131313131314000000032323232323232323232323232323232323232323232323232323232"
        "32323232323232323232323232323232323232323232323232323232323232323232323240000000"
        "33333333333333333333333333333333333333333333333333333333333333333333333333333333"
        "333333333333333333333333333333333333333333333333030000006164610a000000416464206d"
        "c3a4727a0a00e025dafe5b0600070000000000000002000000030000006a6f620200000034320400"
        "0000746f6f6c05000000737061726b"
    )


def test_the_id_is_golden() -> None:
    assert (
        commit_id_of(COMMIT) == "7da4c73d17ca9be4a1f47bda720c0edbded46258916fffe8a1988149fb75b170"
    )


def test_the_object_is_golden() -> None:
    assert json.loads(to_json(COMMIT)) == {
        "version": 1,
        "commit_id": commit_id_of(COMMIT),
        "parents": ["11" * 32, "22" * 32],
        "metarange_id": "33" * 32,
        "committer": "ada",
        "message": "Add märz\n",
        "create_time_us": 1_790_000_000_000_000,
        "generation": 7,
        "metadata": {"job": "42", "tool": "spark"},
    }


@given(commits())
def test_an_object_gives_its_commit_back(commit: Commit) -> None:
    assert from_json(to_json(commit)) == commit


@given(commits(), commits())
def test_other_commits_have_other_ids(one: Commit, other: Commit) -> None:
    assert (commit_id_of(one) == commit_id_of(other)) == (one == other)


@pytest.mark.parametrize(
    "change",
    [
        {"parents": ()},
        {"parents": (PARENT,)},
        {"metarange_id": "44" * 32},
        {"committer": "adaA"},
        {"message": "dd märz\n"},
        {"create_time_us": 0},
        {"generation": 8},
        {"metadata": ()},
        {"metadata": (("job", "42t"), ("ool", "spark"))},
    ],
)
def test_every_field_is_in_the_id(change: dict[str, object]) -> None:
    changed = replace(COMMIT, **change)  # type: ignore[arg-type]  # any field
    assert commit_id_of(changed) != commit_id_of(COMMIT)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda fields: fields.pop("message"), "cannot be read"),
        (lambda fields: fields.update(message=1), "cannot be read"),
        (lambda fields: fields.update(generation="7"), "cannot be read"),
        (lambda fields: fields.update(generation=-1), "cannot be read"),
        (lambda fields: fields.update(metadata=[]), "cannot be read"),
        (lambda fields: fields.update(metadata={"a": 1}), "cannot be read"),
        (lambda fields: fields.update(parents=[1]), "cannot be read"),
        (lambda fields: fields.update(parents="11"), "cannot be read"),
        (lambda fields: fields.update(parents=["1"]), "not an id"),
        (lambda fields: fields.update(metarange_id="../" * 21 + "a"), "not an id"),
        (lambda fields: fields.update(create_time_us=True), "cannot be read"),
        (lambda fields: fields.update(message="\ud800"), "cannot be read"),
        (lambda fields: fields.update(metadata={"\ud800": "1"}), "cannot be read"),
        (lambda fields: fields.update(version=2), "version 2"),
        (lambda fields: fields.update(message="other"), "hashes to"),
        (lambda fields: fields.update(commit_id="\ud800"), "hashes to"),
    ],
)
def test_a_damaged_object_is_refused(damage: object, match: str) -> None:
    fields = json.loads(to_json(COMMIT))
    assert callable(damage)
    damage(fields)
    with pytest.raises(TarnError, match=match) as caught:
        from_json(json.dumps(fields).encode())
    assert caught.value.kind is Kind.CORRUPT
    caught.value.message.encode()  # the text goes into logs and answers


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"null"])
def test_bytes_that_are_not_a_commit_object_are_refused(data: bytes) -> None:
    with pytest.raises(TarnError, match="cannot be read"):
        from_json(data)


def test_a_later_version_is_not_guessed_at() -> None:
    with pytest.raises(TarnError, match="version 2"):
        canonical_bytes(replace(COMMIT, version=2))


def test_a_commit_object_that_nests_without_end_is_damaged() -> None:
    with pytest.raises(TarnError) as caught:
        from_json(b"[" * 100_000)
    assert caught.value.kind is Kind.CORRUPT


def test_an_object_is_the_commit_whatever_order_its_metadata_is_in() -> None:
    fields = json.loads(to_json(COMMIT))
    fields["metadata"] = dict(reversed(fields["metadata"].items()))
    assert from_json(json.dumps(fields).encode()) == COMMIT


def test_an_object_can_be_read_by_people() -> None:
    assert "Add märz".encode() in to_json(COMMIT)


@given(st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999))
def test_the_time_of_the_author_is_a_part_of_the_metadata(time_us: int) -> None:
    made = replace(COMMIT, metadata=with_author_time(COMMIT.metadata, time_us))
    assert author_time_us(made) == time_us
    assert author_time_us(from_json(to_json(made))) == time_us
    assert commit_id_of(made) != commit_id_of(COMMIT)


@pytest.mark.parametrize(
    "value", ["", "yesterday", "3", "2026-11-01", "1 day ago", "2026-11-01T12:30Z"]
)
def test_metadata_that_tarn_did_not_write_are_no_time_of_the_author(value: str) -> None:
    assert author_time_us(replace(COMMIT, metadata=((AUTHOR_TIME, value),))) is None
    assert author_time_us(COMMIT) is None
