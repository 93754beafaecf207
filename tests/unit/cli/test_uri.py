import pytest

from tarn.core.errors import TarnError
from tarn.core.ids import RepositoryId
from tarn_cli.exits import CliError, Exit
from tarn_cli.objects.uri import (
    parse_object,
    parse_prefix,
    parse_ref,
    parse_ref_of,
    parse_repository,
)


@pytest.mark.parametrize("scheme", ["", "tarn://", "s3://", "s3a://"])
def test_an_object_is_named_the_same_with_and_without_a_scheme(scheme: str) -> None:
    uri = parse_object(f"{scheme}lake/main/raw/a b.csv")
    assert (uri.repository, uri.ref, uri.path) == ("lake", "main", "raw/a b.csv")
    assert uri.key == "main/raw/a b.csv"
    assert str(uri) == "lake/main/raw/a b.csv"


def test_a_path_keeps_every_slash_behind_its_ref() -> None:
    assert parse_object("lake/main//a//").path == "/a//"


@pytest.mark.parametrize("text", ["lake/main~2", "lake/main^2~1", "lake/v1.0", "lake/0a1b2c"])
def test_a_ref_is_taken_as_it_is(text: str) -> None:
    assert str(parse_ref(text)) == text


@pytest.mark.parametrize("text", ["lake", "lake/", "lake/main/raw"])
def test_a_ref_needs_one_name_behind_the_repository(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_ref(text)
    assert caught.value.exit_code is Exit.USAGE


@pytest.mark.parametrize("text", ["main~2", "lake/main~2", "tarn://lake/main~2"])
def test_a_ref_of_a_known_repository_may_leave_its_name_out(text: str) -> None:
    assert parse_ref_of(text, RepositoryId("lake")) == "main~2"


@pytest.mark.parametrize("text", ["", "other/main", "lake/main/raw", "lake/", "/main"])
def test_a_ref_of_another_repository_and_what_is_no_ref_are_refused(text: str) -> None:
    with pytest.raises((CliError, TarnError)):
        parse_ref_of(text, RepositoryId("lake"))


def test_a_prefix_may_be_the_whole_ref() -> None:
    assert parse_prefix("lake/main").path == ""
    assert parse_prefix("lake/main/").path == ""


@pytest.mark.parametrize("text", ["lake/main", "lake/main/", "ftp://lake/main/a"])
def test_a_uri_without_an_object_is_refused(text: str) -> None:
    with pytest.raises(CliError) as caught:
        parse_object(text)
    assert caught.value.exit_code is Exit.USAGE


def test_a_repository_name_is_checked_before_a_request_is_sent() -> None:
    assert parse_repository("tarn://lake/") == "lake"
    with pytest.raises(TarnError):
        parse_repository("No Lake")
    with pytest.raises(CliError):
        parse_repository("lake/main")
