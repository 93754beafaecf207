"""Names of blocks as columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarn.block.port import BlockInfo
from tarn.collection.block_names import BlockKind, listed_of, paths_of
from tarn.core.ids import physical_path

_YEAR_10000_MS = 253_402_300_800_000


def infos(paths: list[str]) -> list[BlockInfo]:
    return [BlockInfo(path, 7 + place, 1_000 + place) for place, path in enumerate(paths)]


@given(
    st.lists(
        st.tuples(st.integers(0, _YEAR_10000_MS - 1), st.binary(min_size=10, max_size=10)),
        max_size=20,
    )
)
def test_addresses_and_paths_are_each_others_inverse(parts: list[tuple[int, bytes]]) -> None:
    addresses = [time.to_bytes(6, "big") + rest for time, rest in parts]
    paths = [physical_path(address) for address in addresses]
    listed = listed_of(BlockKind.DATA, infos(paths))
    assert [key.tobytes() for key in listed["key"]] == addresses
    assert listed["size"].tolist() == [7 + place for place in range(len(paths))]
    assert listed["mtime"].tolist() == [1_000 + place for place in range(len(paths))]
    assert paths_of(BlockKind.DATA, listed["key"]).to_pylist() == paths


@pytest.mark.parametrize("kind", [BlockKind.RANGE, BlockKind.METARANGE])
def test_ids_and_paths_are_each_others_inverse(kind: BlockKind) -> None:
    paths = [f"{kind.prefix}{bytes([n] * 32).hex()}.parquet" for n in (0, 1, 171, 255)]
    listed = listed_of(kind, infos(paths))
    assert paths_of(kind, listed["key"]).to_pylist() == paths


@pytest.mark.parametrize(
    "path",
    [
        "data/2026112304/" + "0" * 32,  # another hour than the address has
        "data/1970010100/" + "0" * 31 + "G",
        "data/1970010100/" + "0" * 31 + "A",  # upper case
        "data/1970010100/" + "0" * 31,
        "data/1970010100/" + "0" * 33,
        "data/1970010100/" + "0" * 31 + "é",
        "data/1970010100_" + "0" * 32,
        "data/9999999999/" + "f" * 32,
        "data/0000000000/" + "f" * 32,  # its address has no hour
        "atad/1970010100/" + "0" * 32,
    ],
)
def test_paths_that_tarn_does_not_make_are_left_out(path: str) -> None:
    good = physical_path(bytes(16))
    listed = listed_of(BlockKind.DATA, infos([path, good]))
    assert np.array_equal(listed["size"], [8]), "only the second one is a block"


@pytest.mark.parametrize("name", ["x" * 64, "AB" * 32, "ab" * 31, "ab" * 32 + ".tmp"])
def test_metadata_paths_that_tarn_does_not_make_are_left_out(name: str) -> None:
    path = f"_tarn/ranges/{name}.parquet"
    assert not len(listed_of(BlockKind.RANGE, infos([path])))


def test_kinds_do_not_take_each_others_paths() -> None:
    path = f"_tarn/metaranges/{'ab' * 32}.parquet"
    assert not len(listed_of(BlockKind.RANGE, infos([path])))
    assert len(listed_of(BlockKind.METARANGE, infos([path])))
