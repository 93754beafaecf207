"""Names: which are accepted and which are refused; and the address of a block."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tarn.core.errors import Kind, Reason, TarnError
from tarn.core.ids import (
    PATH_BYTES_MAX,
    parse_branch_id,
    parse_new_branch_id,
    parse_new_tag_id,
    parse_path,
    parse_repository_id,
    parse_tag_id,
    parse_user_id,
    physical_path,
)


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (parse_repository_id, "abc"),
        (parse_repository_id, "0-a" + "b" * 60),
        (parse_branch_id, "_"),
        (parse_branch_id, "v1.0-rc_2"),
        (parse_branch_id, "b" * 128),
        (parse_branch_id, "a" * 63),
        (parse_branch_id, "A" * 64),
        (parse_branch_id, "main..dev"),
        (parse_tag_id, "v1...v2"),
        (parse_new_branch_id, "a" * 63),
        (parse_new_branch_id, "a" * 65),
        (parse_new_branch_id, "g" * 64),
        (parse_new_branch_id, "deadbeef"),
        (parse_new_tag_id, "v1.0.2"),
        (parse_tag_id, "v1"),
        (parse_user_id, "ann@example.org"),
        (parse_user_id, "u" * 128),
        (parse_path, "a"),
        (parse_path, "../ü\x00/ /"),
        (parse_path, "x" * PATH_BYTES_MAX),
    ],
)
def test_a_valid_name_is_parsed_unchanged(parse: Callable[[str], str], name: str) -> None:
    assert parse(name) == name


@pytest.mark.parametrize(
    ("parse", "name"),
    [
        (parse_repository_id, "ab"),
        (parse_repository_id, "-ab"),
        (parse_repository_id, "a" * 64),
        (parse_repository_id, "Abc"),
        (parse_repository_id, "abc\n"),
        (parse_branch_id, ""),
        (parse_branch_id, ".b"),
        (parse_branch_id, "b" * 129),
        (parse_branch_id, "a/b"),
        (parse_branch_id, "main~1"),
        (parse_branch_id, "main@"),
        (parse_branch_id, "0123456789abcdef" * 4),
        (parse_tag_id, "f" * 64),
        (parse_new_branch_id, "A" * 64),
        (parse_new_branch_id, "0123456789abcdeF" * 4),
        (parse_new_branch_id, "main..dev"),
        (parse_new_branch_id, "a/b"),
        (parse_new_tag_id, "F" * 64),
        (parse_new_tag_id, "v1.."),
        (parse_new_tag_id, "v1...v2"),
        (parse_new_tag_id, ""),
        (parse_user_id, "@ann"),
        (parse_user_id, "u" * 129),
        (parse_path, ""),
        (parse_path, "\udc80"),
    ],
)
def test_an_invalid_name_is_refused(parse: Callable[[str], str], name: str) -> None:
    with pytest.raises(TarnError) as raised:
        parse(name)
    assert (raised.value.kind, raised.value.reason) == (Kind.INVALID, Reason.INVALID_ARGUMENT)
    assert len(raised.value.message) < 300


def test_a_path_is_measured_in_bytes() -> None:
    for path in ("x" * (PATH_BYTES_MAX + 1), "ü" * (PATH_BYTES_MAX // 2) + "x"):
        with pytest.raises(TarnError) as raised:
            parse_path(path)
        assert raised.value.reason is Reason.KEY_TOO_LONG
    assert parse_path("ü" * (PATH_BYTES_MAX // 2))


def test_a_refusal_shows_the_beginning_of_a_long_name() -> None:
    with pytest.raises(TarnError, match="y" * 80 + "…") as raised:
        parse_branch_id("y" * 200)
    assert "y" * 81 not in raised.value.message
    with pytest.raises(TarnError, match=f"'{'/' * 80}'"):
        parse_branch_id("/" * 80)


def test_a_block_lies_in_the_folder_of_its_hour() -> None:
    hour = 3_600_000
    last = (495_000 * hour - 1).to_bytes(6, "big") + bytes(10)
    first = (495_000 * hour).to_bytes(6, "big") + bytes(10)
    assert physical_path(last) == f"data/2026062023/{last.hex()}"
    assert physical_path(first) == f"data/2026062100/{first.hex()}"
