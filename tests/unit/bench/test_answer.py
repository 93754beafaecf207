"""The end of an answer is found however its bytes arrive."""

import pytest
from bench.load.answer import Answer

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX: y\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n3;x=1\r\n ab\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(("raw", "body"), [(PLAIN, b"hello"), (CHUNKED, b"hello ab")])
@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_an_answer_is_complete_with_its_last_byte(raw: bytes, body: bytes, step: int) -> None:
    answer = Answer(keep=True)
    pieces = [raw[at : at + step] for at in range(0, len(raw), step)]
    assert [answer.feed(piece) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (answer.status, bytes(answer.body)) == (200, body)


def test_the_answer_to_head_has_no_body() -> None:
    assert Answer(is_head=True).feed(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")


def test_204_has_no_body() -> None:
    assert Answer().feed(b"HTTP/1.1 204 No Content\r\nX: y\r\n\r\n")


def test_the_body_of_a_failure_is_kept() -> None:
    answer = Answer()
    assert answer.feed(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 4\r\n\r\nslow")
    assert (answer.status, bytes(answer.body)) == (503, b"slow")


def test_a_body_can_be_skipped() -> None:
    answer = Answer()
    assert not answer.feed(PLAIN[:-5])
    assert answer.may_skip
    assert not answer.skip(4)
    assert answer.skip(1)


def test_bytes_behind_the_end_are_an_error() -> None:
    with pytest.raises(ValueError, match="behind the end"):
        Answer().feed(PLAIN + b"x")


def test_bytes_that_are_not_http_are_an_error() -> None:
    with pytest.raises(ValueError, match="no HTTP answer"):
        Answer().feed(b"SSH-2.0-x\r\n\r\n")
