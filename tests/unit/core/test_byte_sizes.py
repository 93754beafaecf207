"""Numbers of bytes as texts."""

from __future__ import annotations

import pytest

from tarn.core.byte_sizes import shown_size


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1024.0 KiB"),
        (1 << 40, "1.0 TiB"),
        (5 << 50, "5.0 PiB"),
        (2000 << 60, "2000.0 EiB"),
    ],
)
def test_a_size_has_a_binary_unit(size_bytes: int, text: str) -> None:
    assert shown_size(size_bytes) == text
