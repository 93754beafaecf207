"""Keys of staged rows and the paths in them."""

from hypothesis import given
from hypothesis import strategies as st

from tarn.kv.keys import path_key, path_of, paths_of

PATHS = st.one_of(
    st.text("\nkey/é", max_size=8), st.sampled_from(["\nkey/", "a\nkey/b", "\n", "key/"])
)


@given(st.lists(PATHS, max_size=6))
def test_paths_decoded_together_are_those_decoded_one_by_one(paths: list[str]) -> None:
    keys = [path_key(path) for path in paths]
    assert paths_of(keys) == [path_of(key) for key in keys] == paths
