"""The grammar of refs."""

import pytest

from tarn.core.errors import TarnError
from tarn.core.refs import Step, is_commit_id, may_be_prefix, parse_ref


def test_a_plain_name_is_a_base_with_what_is_uncommitted() -> None:
    parsed = parse_ref("main")
    assert (parsed.base, parsed.committed, parsed.steps) == ("main", False, ())


def test_at_means_the_newest_commit() -> None:
    assert parse_ref("main@").committed


def test_steps_chain_and_default_to_one() -> None:
    parsed = parse_ref("v1.0~2^0^~")
    assert parsed.base == "v1.0"
    assert parsed.steps == (Step(False, 2), Step(True, 0), Step(True, 1), Step(False, 1))
    assert parsed.committed


@pytest.mark.parametrize(
    "text", ["", "~1", "a b", "main/x", "main@{now}", "-x", "x" * 600, "main~1x", "main@@", "a\0"]
)
def test_an_invalid_ref_is_refused(text: str) -> None:
    with pytest.raises(TarnError, match="ref"):
        parse_ref(text)


def test_commit_ids_and_prefixes_are_hex() -> None:
    assert is_commit_id("0" * 64)
    assert not is_commit_id("0" * 63)
    assert not is_commit_id("g" * 64)
    assert may_be_prefix("abcd")
    assert not may_be_prefix("abc")
    assert not may_be_prefix("main")
