"""Ranges of refs, as they are typed."""

from __future__ import annotations

import pytest

from tarn.core.ids import RepositoryId
from tarn_cli.commands.diff import _wish
from tarn_cli.exits import CliError
from tarn_cli.objects.ref_range import RefRange, parse_range, parse_range_of
from tarn_cli.objects.uri import RefUri

LAKE = RepositoryId("lake")


def of(left: str, right: str, *, from_merge_base: bool = False) -> RefRange:
    return RefRange(RefUri(LAKE, left), RefUri(LAKE, right), from_merge_base)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lake/main..fix", of("main", "fix")),
        ("tarn://lake/main..lake/fix", of("main", "fix")),
        ("lake/main...fix", of("main", "fix", from_merge_base=True)),
        ("lake/v1.0..v1.1", of("v1.0", "v1.1")),
        ("lake/v1....v2", of("v1.", "v2", from_merge_base=True)),
        ("lake/main~3...main@", of("main~3", "main@", from_merge_base=True)),
        ("lake/main", None),
        ("lake/v1.0", None),
    ],
)
def test_dots_tell_a_range(text: str, expected: RefRange | None) -> None:
    assert parse_range(text) == expected


@pytest.mark.parametrize(
    "text", ["lake/..fix", "lake/main..", "lake/main...", "..", "main..fix", "lake/a..other/b"]
)
def test_a_range_needs_two_refs_of_one_repository(text: str) -> None:
    with pytest.raises(CliError):
        parse_range(text)


def test_a_range_of_a_known_repository_needs_no_repository() -> None:
    assert parse_range_of("v1..main", LAKE) == ("v1", "main")
    assert parse_range_of("lake/v1.0..tarn://lake/main~2", LAKE) == ("v1.0", "main~2")
    assert parse_range_of("main~2", LAKE) is None
    for text in ("..main", "v1..", "v1...main", "other/v1..main"):
        with pytest.raises(CliError):
            parse_range_of(text, LAKE)


def test_two_names_are_two_refs_whatever_dots_they_have() -> None:
    wish = _wish("lake/a..b", "lake/c...d", merge_base=False, prefix="", delimiter="")
    assert (wish.before, wish.after) == (RefUri(LAKE, "a..b"), RefUri(LAKE, "c...d"))
    assert not wish.from_merge_base
