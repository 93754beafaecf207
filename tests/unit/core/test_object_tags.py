"""Which texts are keys and values of tags."""

from __future__ import annotations

import pytest

from tarn.core.object_tags import is_reserved, is_tag_key, is_tag_value

GOOD = ["a", "A z0", "+-=._:/@", "ключ", "中文", "é", "½", "\u00a0", "\u3000", "\U00020000"]
BAD = [",", "a;b", "a\tb", "a\nb", "\x00", "\x7f", "\u200b", "e\u0301", "\U0001f600", "\ud800", "€"]


@pytest.mark.parametrize("text", GOOD)
def test_letters_numbers_spaces_and_some_signs_are_allowed(text: str) -> None:
    assert is_tag_key(text)
    assert is_tag_value(text)


@pytest.mark.parametrize("text", BAD)
def test_all_other_characters_are_refused(text: str) -> None:
    assert not is_tag_key(text)
    assert not is_tag_value(text)


@pytest.mark.parametrize("letter", ["a", "中"])
def test_lengths_are_limited(letter: str) -> None:
    assert is_tag_key(letter * 128)
    assert not is_tag_key(letter * 129)
    assert not is_tag_key("")
    assert is_tag_value("")
    assert is_tag_value(letter * 256)
    assert not is_tag_value(letter * 257)


def test_a_letter_beyond_the_basic_plane_counts_twice() -> None:
    assert is_tag_key("\U00020000" * 64)
    assert not is_tag_key("\U00020000" * 64 + "a")
    assert is_tag_value("\U00020000" * 128)
    assert not is_tag_value("\U00020000" * 128 + "a")


def test_keys_of_s3_itself_are_reserved() -> None:
    assert [is_reserved(key) for key in ("aws:", "AWS:x", "Aws:cost")] == [True] * 3
    assert not any(is_reserved(key) for key in ("aws", "aw", "xaws:a", "awss:", ""))
