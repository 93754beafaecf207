"""The grammar of refs."""

import pytest

from tarn.core.errors import Kind, TarnError
from tarn.core.moments import Back
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


def test_a_moment_follows_a_branch_and_comes_before_the_steps() -> None:
    parsed = parse_ref("v1.0@{2}~3^2")
    assert (parsed.base, parsed.moment, parsed.committed) == ("v1.0", Back(2), True)
    assert parsed.steps == (Step(False, 3), Step(True, 2))
    assert parse_ref("main").moment is None
    assert parse_ref("main@~1").moment is None
    assert parse_ref("main@{0}").committed, "never the uncommitted changes"


@pytest.mark.parametrize(
    "text",
    [
        *("main@{}", "main@{ }", "main@{-1}", "main@{u}", "main@{1", "main@1}", "@{1}", "{1}"),
        *("main@{1}@{2}", "main@@{1}", "main@{1}@", "main~1@{1}", "main@{1}x", "main@{{1}}"),
        *("main@{1000000}", "main@{1 day}", "main@{ago}", "main@{1  day ago}", "main@{1 day.ago}"),
        *("main@{one day ago}", "main@{1 month ago}", "main@{1000000 days ago}", "main@{now}"),
        "main@{2026-11-01T00:00:00+01:00/x}",
        "main@{" + "0" * 65 + "}",
        "0" * 64 + "@{0}",
        "x" * 129 + "@{0}",
    ],
)
def test_an_invalid_moment_is_refused(text: str) -> None:
    with pytest.raises(TarnError, match="ref") as caught:
        parse_ref(text)
    assert caught.value.kind is Kind.INVALID


def test_the_refusal_of_a_moment_says_which_ones_there_are() -> None:
    with pytest.raises(
        TarnError, match=r"main@\{yesterday\}.*@\{2\}.*@\{2026-11-01\}.*@\{1 day ago\}"
    ):
        parse_ref("main@{yesterday}")
    with pytest.raises(TarnError, match="only branches have a reflog"):
        parse_ref("0" * 64 + "@{0}")


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
