"""Texts of other users show what they are, and drive nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.printable import printable

HOSTILE = "a\nFAKE\r\x1b[2J\x1b]0;t\x07\x9b31m\x7f\u202egpj\u2028\u2066\ud800[red]:smile:\x00"
SHOWN = (
    "a\\nFAKE\\r\\x1b[2J\\x1b]0;t\\x07\\x9b31m\\x7f\\u202egpj\\u2028\\u2066\\ud800[red]:smile:\\x00"
)


def test_every_dangerous_character_is_shown_as_an_escape() -> None:
    assert printable(HOSTILE) == SHOWN
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x061C, *range(0x202A, 0x202F), 0xDC80, 0xFEFF):
        assert printable(chr(code)).isascii(), hex(code)
        assert printable(chr(code)).isprintable(), hex(code)


@given(st.text(st.characters(max_codepoint=0x80), max_size=4))
def test_plain_text_is_not_looked_at_character_by_character(text: str) -> None:
    assert printable(text) == "".join(printable(f"ä{char}")[1:] for char in text)


@pytest.mark.parametrize("text", ["raw/2026/ä.csv", "日本語", "a b", "👩\u200d🚀", "C:\\x", "%2e"])
def test_other_text_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
