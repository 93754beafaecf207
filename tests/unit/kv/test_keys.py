"""The parts of a key can be read back from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.core.ids import UploadId
from tarn.kv.keys import RepositoryKeys, path_key, path_of, paths_of

PATHS = st.one_of(
    st.text("\nkey/é", max_size=8), st.sampled_from(["\nkey/", "a\nkey/b", "\n", "key/"])
)


@given(st.lists(PATHS, max_size=6))
def test_paths_decoded_together_are_those_decoded_one_by_one(paths: list[str]) -> None:
    keys = [path_key(path) for path in paths]
    assert paths_of(keys) == [path_of(key) for key in keys] == paths


@given(st.integers(min_value=0))
def test_the_day_of_a_row_is_the_one_it_was_made_of(day: int) -> None:
    assert RepositoryKeys.day_of(RepositoryKeys.upload_day(day)) == day


@pytest.mark.parametrize("name", ["", "x", "-1", "+1", " 1", "1_0", "1/2", "\u0661"])
def test_a_row_that_names_no_day_has_none(name: str) -> None:
    assert RepositoryKeys.day_of(RepositoryKeys.UPLOAD_DAYS + name.encode()) is None


@given(PATHS)
def test_the_upload_of_a_row_of_the_index_is_the_one_it_was_made_of(path: str) -> None:
    key = RepositoryKeys.open_upload("main", path, UploadId("0" * 32))
    assert key.startswith(RepositoryKeys.OPEN_UPLOADS)
    assert RepositoryKeys.upload_of(key) == "0" * 32
