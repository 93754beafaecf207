"""The ranges that scans of a Cassandra partition read; the rest is in the contract of the port."""

from __future__ import annotations

import pytest

from tarn.kv.cassandra.rows.scans import _beside_companions
from tarn.kv.port import COMPANION_KEYS, PAST_COMPANIONS


@pytest.mark.parametrize(
    ("start", "end", "ranges"),
    [
        (b"", None, [(b"", COMPANION_KEYS), (PAST_COMPANIONS, None)]),
        (b"a", b"z", [(b"a", COMPANION_KEYS), (PAST_COMPANIONS, b"z")]),
        (b"a", COMPANION_KEYS, [(b"a", COMPANION_KEYS)]),
        (b"a", COMPANION_KEYS + b"x", [(b"a", COMPANION_KEYS)]),
        (COMPANION_KEYS + b"x", b"z", [(PAST_COMPANIONS, b"z")]),
        (COMPANION_KEYS, PAST_COMPANIONS, []),
        (PAST_COMPANIONS, None, [(PAST_COMPANIONS, None)]),
        (b"a", b"b", [(b"a", b"b")]),
        (b"key/", b"key0", [(b"key/", b"key0")]),
    ],
)
def test_no_scan_reads_the_range_of_companions(
    start: bytes, end: bytes | None, ranges: list[tuple[bytes, bytes | None]]
) -> None:
    """Those that were removed have left Cassandra tombstones there."""
    assert _beside_companions(start, end) == ranges
