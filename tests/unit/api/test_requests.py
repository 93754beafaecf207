"""Requests are read as the general libraries read them."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import Headers

from tarn_api.errors import ApiError
from tarn_api.requests import HeaderIndex, Routes, query_fields
from tarn_rest.operations import OPERATIONS

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


_NAMES = st.sampled_from(["accept", "cookie", "host", "range"])


@given(st.lists(st.tuples(_NAMES, st.text("ab\xfc"))), _NAMES, st.booleans())
def test_headers_are_those_of_starlette(
    pairs: list[tuple[str, str]], name: str, upper: bool
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
    found, expected = HeaderIndex(raw), Headers(raw=raw)
    assert set(found) == set(expected)
    asked = name.upper() if upper else name
    assert found.get(asked) == expected.get(asked)
    assert found.get(asked, "none") == expected.get(asked, "none")
    assert (asked in found) == (asked in expected)
    assert found.getlist(asked) == expected.getlist(asked)
    assert found.items() == expected.items()
    if asked in expected:
        assert found[asked] == expected[asked]
    else:
        with pytest.raises(KeyError):
            found[asked]


def test_a_path_is_found_again_for_each_method_and_only_short_ones_are_kept() -> None:
    routes = Routes(OPERATIONS)
    for _ in range(2):
        for method, expected in (("GET", "getRepository"), ("DELETE", "deleteRepository")):
            operation, values = routes.find(method, b"repositories/lake")
            assert (operation.id, values) == (expected, {"repository": "lake"})
        with pytest.raises(ApiError, match="takes"):
            routes.find("PATCH", b"repositories/lake")
    long = "a" * 5000
    assert routes.find("GET", f"repositories/{long}".encode())[1] == {"repository": long}
    assert routes._kept.cache_info().currsize == 2
