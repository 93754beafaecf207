"""Requests are read as the general libraries read them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn_api.errors import ApiError
from tarn_api.requests import query_fields

_PIECES = st.sampled_from(
    ["a", "b=", "=", "&", "+", "%", "%2F", "%c3%bc", "%ff", "%zz", "\x7f", ";"]
)


@given(st.lists(_PIECES, max_size=20).map("".join))
def test_a_query_is_read_as_the_standard_library_reads_it(query: str) -> None:
    try:
        expected = parse_qsl(query, keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        with pytest.raises(ApiError, match="query"):
            query_fields(query.encode())
    else:
        assert query_fields(query.encode()) == expected


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_every_name_and_value_of_a_query_arrives(fields: list[tuple[str, str]]) -> None:
    assert query_fields(urlencode(fields).encode()) == fields
