"""A body that arrived with its head reads as any other."""

from __future__ import annotations

import pytest

from tarn_gateway.http.body import BodyReader, WholeBody

BODIES = pytest.mark.parametrize("whole", [b"", b"abc"])


def both(whole: bytes) -> tuple[BodyReader, BodyReader]:
    return WholeBody(whole), BodyReader(len(whole), whole)


@BODIES
async def test_a_body_that_came_whole_reads_like_a_streamed_one(whole: bytes) -> None:
    for limit in (0, 2, 3, 9):
        one, other = both(whole)
        assert (one.length, one.received, one.complete) == (other.length, other.received, True)
        assert other.complete
        assert one.left_at_most(limit) == other.left_at_most(limit)
        assert await one.read_all(limit) == await other.read_all(limit)
        assert await one.read() == await other.read()
    one, other = both(whole)
    assert [bytes(each) async for each in one] == [bytes(each) async for each in other]


@BODIES
async def test_nothing_is_read_after_it_was_released(whole: bytes) -> None:
    for end in (BodyReader.release, BodyReader.drop):
        for body in both(whole):
            assert not getattr(body, end.__name__)()
            assert await body.read() == b""
