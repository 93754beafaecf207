"""The framing decoder: any split of the input gives the same output, and a truncated input never ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn_gateway.http import BodyMalformedError
from tarn_gateway.http.chunked import EVENTS_MAX, ChunkedDecoder, ChunkHead


def run(
    decoder: ChunkedDecoder, data: bytes, cuts: list[int]
) -> tuple[bytes, list[ChunkHead], bytes]:
    """Feeds `data` split at `cuts`; returns payload, heads and the bytes after the end."""
    payload, heads, rest = bytearray(), [], bytearray()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    for start, end in pairwise(edges):
        piece = memoryview(data)[start:end]
        events, used = decoder.feed(piece)
        for event in events:
            if isinstance(event, ChunkHead):
                heads.append(event)
            else:
                payload += event
        rest += piece[used:]
    return bytes(payload), heads, bytes(rest)


chunks = st.lists(st.binary(min_size=1, max_size=40), max_size=6)
cuts = st.lists(st.integers(0, 10_000), max_size=12)
trailers = st.lists(st.sampled_from([b"a:1", b"x-amz-checksum-crc32:AAAA", b"b: 2"]), max_size=3)


def framed(parts: list[bytes], lines: list[bytes]) -> bytes:
    body = b"".join(b"%x;e=%d\r\n%b\r\n" % (len(part), i, part) for i, part in enumerate(parts))
    return body + b"0\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@given(chunks, trailers, cuts, st.binary(max_size=5))
def test_any_cut_of_the_input_gives_the_same(
    parts: list[bytes], lines: list[bytes], where: list[int], behind: bytes
) -> None:
    decoder = ChunkedDecoder()
    payload, heads, rest = run(decoder, framed(parts, lines) + behind, where)
    assert payload == b"".join(parts)
    assert [head.size for head in heads] == [*map(len, parts), 0]
    assert [head.extension for head in heads[:-1]] == [b"e=%d" % i for i in range(len(parts))]
    assert decoder.trailers == lines
    assert decoder.done
    assert rest == behind


@given(chunks, trailers, cuts, st.integers(1, 10_000))
def test_truncated_input_never_ends(
    parts: list[bytes], lines: list[bytes], where: list[int], drop: int
) -> None:
    data = framed(parts, lines)
    decoder = ChunkedDecoder()
    run(decoder, data[: len(data) - 1 - drop % len(data)], where)
    assert not decoder.done


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n",
        b"x\r\n",
        b"-1\r\n",
        b" 1\r\na\r\n",
        b"0x1\r\na\r\n",
        b"1 \r\na\r\n",
        b"1\na\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n0\r\n\r\n",
        b"11111111111111111\r\n",
        b"1;" + b"e" * 1100 + b"\r\n",
        b"1;" + b"e" * 2000,
        b"0\r\n" + (b"t:" + b"v" * 1000 + b"\r\n") * 9,
        b"FFFFFFFFFFFFFFFF\r\n",
    ],
)
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_broken_framing_is_refused(data: bytes, step: int) -> None:
    with pytest.raises(BodyMalformedError):
        run(ChunkedDecoder(), data, list(range(0, len(data), step)))


def test_an_empty_line_before_the_last_trailer_is_passed_over_when_one_is_awaited() -> None:
    decoder = ChunkedDecoder(last_trailer=b"sig")
    run(decoder, b"0\r\na:1\n\r\nSig:2\r\n\r\n", [])
    assert decoder.done
    assert decoder.trailers == [b"a:1", b"Sig:2"]


def test_endless_empty_lines_are_refused_where_a_last_trailer_is_awaited() -> None:
    decoder = ChunkedDecoder(last_trailer=b"sig")
    with pytest.raises(BodyMalformedError):
        run(decoder, b"0\r\n" + b"\r\n" * 10_000, [])


def test_tiny_chunks_are_decoded_some_at_a_time() -> None:
    """A piece of 512 KiB may hold 87,000 chunks, which take a second."""
    decoder, data = ChunkedDecoder(), framed([b"x"] * 1000, [b"a:1"]) + b"behind"
    rest, payload, calls = memoryview(data), b"", 0
    while not decoder.done:
        events, used = decoder.feed(rest)
        assert 0 < len(events) <= EVENTS_MAX
        payload += b"".join(event for event in events if not isinstance(event, ChunkHead))
        rest, calls = rest[used:], calls + 1
    assert (payload, bytes(rest), decoder.trailers) == (b"x" * 1000, b"behind", [b"a:1"])
    assert calls == 2001 // EVENTS_MAX + 1
