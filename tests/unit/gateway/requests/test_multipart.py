"""Forms are split in the same way however they arrive, and what two parsers could read in two ways is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarn_gateway.http import Headers
from tarn_gateway.requests.multipart import FORM_BYTES_MAX, FormParser, boundary_of, is_form
from tarn_gateway.s3error import S3Error

B = b"xYz"


def part(name: str, value: bytes, more: str = "") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return b"--" + B + b"\r\n" + head.encode() + value + b"\r\n"


FILE = '; filename="a.txt"'
END = b"--" + B + b"--\r\n"


def parse(pieces: Sequence[bytes], boundary: bytes = B) -> tuple[dict[str, str], str | None, bytes]:
    parser = FormParser(boundary)
    file = b"".join([bytes(parser.feed(piece)) for piece in pieces])
    parser.finish()
    return parser.fields, parser.filename, file


def code(*pieces: bytes) -> str:
    with pytest.raises(S3Error) as caught:
        parse(pieces)
    return caught.value.code


FORM = part("key", b"main/a") + part("Policy", b"e30=") + part("file", b"two\r\nlines", FILE)
READ = ({"key": "main/a", "policy": "e30="}, "a.txt", b"two\r\nlines")


@pytest.mark.parametrize(
    "body",
    [
        FORM + END,
        FORM + END.rstrip(),
        b"\r\n" + FORM + END,
        b"a preamble\r\n" + FORM + END + b"an epilogue",
        FORM.replace(b"xYz\r\n", b"xYz \t\r\n") + END,
        FORM + part("submit", b"Upload") + END,
        FORM.replace(b"Content-Disposition", b"CONTENT-disposition") + END,
        FORM.replace(FILE.encode(), FILE.encode() + b"\r\nContent-Type: text/plain") + END,
    ],
)
def test_a_form_is_read_however_it_arrives(body: bytes) -> None:
    assert parse([body]) == READ
    assert parse([body[at : at + 1] for at in range(len(body))]) == READ
    for at in range(len(body)):
        assert parse([body[:at], body[at:]]) == READ


@given(
    st.binary(max_size=300),
    st.lists(st.integers(0, 600), max_size=8),
    st.sampled_from([b"x", b"-", b"--", b"\r", B, b"a" * 70]),
)
@example(b"\r\n--xY", [10], B)
@example(b"\r\n\r\n--", [], b"-")
def test_a_file_of_any_bytes_comes_out_as_it_was(
    file: bytes, cuts: list[int], boundary: bytes
) -> None:
    if b"\r\n--" + boundary in b"\r\n" + file + b"\r\n":
        file = file.replace(b"-", b"+")
    body = (part("key", b"k") + part("file", file) + END).replace(b"--" + B, b"--" + boundary)
    if body.count(b"\r\n--" + boundary) != 2 or b"\r" in boundary:
        return
    ends = sorted({min(cut, len(body)) for cut in cuts} | {0, len(body)})
    pieces = [body[a:b] for a, b in pairwise(ends)]
    assert parse(pieces, boundary) == ({"key": "k"}, None, file)


@given(st.lists(st.sampled_from([b"--xYz", b"--", b"\r\n", b"\r", b"\n", b"-", b"x", FORM, END])))
def test_any_bytes_are_a_form_or_refused_and_cuts_do_not_matter(pieces: list[bytes]) -> None:
    outcomes = []
    body = b"".join(pieces)
    for cut in ([body], pieces, [body[at : at + 1] for at in range(len(body))]):
        try:
            outcomes.append(parse(cut))
        except S3Error as error:
            outcomes.append((error.code,))  # type: ignore[arg-type]
    assert outcomes[0] == outcomes[1] == outcomes[2]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--xYz",
        FORM,
        FORM + b"--xYz",
        FORM + b"--xYz-",
        FORM.replace(b"xYz\r\n", b"xYzz\r\n", 1) + END,
        part("", b"1") + FORM + END,
        b"--xYz\r\n\r\nvalue\r\n" + FORM + END,
        b"--xYz\r\n\r\nContent-Disposition: form-data; name=key\r\n\r\nmain/a\r\n" + FORM + END,
        b"--xYz\r\nContent-Type: text/plain\r\n\r\n1\r\n" + FORM + END,
        FORM.replace(b"form-data", b"file", 1) + END,
        FORM.replace(b'name="key"', b'name="key"; name="b"') + END,
        FORM.replace(b'name="key"', b'name="key') + END,
        FORM.replace(b'name="key"', b'name="key" x') + END,
        FORM.replace(b"\r\n\r\n", b"\r\nContent-Disposition: form-data; name=b\r\n\r\n", 1) + END,
        FORM.replace(b"\r\n\r\n", b"\r\nContent-Transfer-Encoding: base64\r\n\r\n", 1) + END,
        FORM.replace(b"main/a", b"main/\xff") + END,
        b"".join(part(f"f{number}", b"1") for number in range(101)) + FORM + END,
        FORM + END + b"x" * FORM_BYTES_MAX,
        FORM + part("submit", b"x" * FORM_BYTES_MAX) + END,
    ],
)
def test_a_malformed_form_is_refused(body: bytes) -> None:
    assert code(body) == "MalformedPOSTRequest"
    assert code(*[body[at : at + 1] for at in range(len(body))]) == "MalformedPOSTRequest"


def test_there_is_one_file_and_one_field_of_a_name() -> None:
    assert code(part("key", b"k") + END) == "InvalidArgument"
    assert code(FORM + part("file", b"2") + END) == "InvalidArgument"
    assert code(part("KEY", b"k") + FORM + END) == "InvalidArgument"


def test_what_precedes_the_file_is_bounded_and_the_file_is_not() -> None:
    big = part("key", b"k" * FORM_BYTES_MAX)
    too_long = "MaxPostPreDataLengthExceededError"
    assert code(big + FORM + END) == too_long
    assert code(*[b"-" * 100] * 300) == too_long
    assert code(b"--xYz\r\n" + b"a" * 30_000) == too_long
    fits = part("x-ignore-a", b"k" * (FORM_BYTES_MAX - 600))
    assert parse([fits + FORM.replace(b"two", b"2" * 100_000) + END])[2][:3] == b"222"


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ('"a b.txt"', "a b.txt"),
        ("plain.txt", "plain.txt"),
        (r'"say \"hi\".txt"', 'say "hi".txt'),
        (r'"C:\dir\a.txt"', r"C:\dir\a.txt"),
        ('"C:\\dir\\"', "C:\\dir\\"),
        ('"a;name=b"', "a;name=b"),
        ('""', ""),
        ("\"ü.txt\"; filename*=UTF-8''u.txt", "ü.txt"),
    ],
)
def test_file_names(sent: str, name: str) -> None:
    body = part("file", b"1", f"; filename={sent}") + END
    assert parse([body])[1] == name


@pytest.mark.parametrize(
    ("value", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=utf-8; BOUNDARY="a b:c"', b"a b:c"),
        ("multipart/form-data;boundary=" + "a" * 70 + "; x=y", b"a" * 70),
        ("multipart/form-data; boundary=" + "a" * 71, b""),
        ("multipart/form-data; boundary=", b""),
        ('multipart/form-data; boundary="a "', b""),
        ("multipart/form-data; boundary=a\xff", b""),
        ("multipart/form-data", b""),
    ],
)
def test_boundaries(value: str, boundary: bytes) -> None:
    headers = Headers([("content-type", value)])
    assert is_form(headers)
    if boundary:
        assert boundary_of(headers) == boundary
    else:
        with pytest.raises(S3Error, match="MalformedPOSTRequest"):
            boundary_of(headers)


def test_other_bodies_are_no_forms() -> None:
    for value in ("", "text/plain", "multipart/mixed; boundary=a", "multipart/form-data2"):
        assert not is_form(Headers([("content-type", value)]))
