"""Records partitioned on disk."""

from pathlib import Path

import numpy as np
import pytest

from tarn.collection import spill as spill_module
from tarn.collection.block_names import BlockKind
from tarn.collection.spill import PARTITIONS, Spill
from tarn.core.errors import Kind, TarnError

DTYPE = BlockKind.DATA.listed_dtype


def records(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    made = np.zeros(count, DTYPE)
    made["key"] = rng.integers(0, 256, (count, 16))
    made["size"] = np.arange(count)
    return made


@pytest.mark.parametrize("buffer", [1, 100, 1 << 16], ids=["each", "some", "none"])
def test_each_record_is_in_one_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buffer: int
) -> None:
    monkeypatch.setattr(spill_module, "_BUFFER_RECORDS", buffer)
    spill = Spill(tmp_path / "side", DTYPE)
    added = [records(count, count) for count in (0, 1, 99, 250, 3)]
    for some in added:
        spill.add(some)
    assert spill.count == 353
    found = [spill.partition(number) for number in range(PARTITIONS)]
    for number, rows in enumerate(found):
        assert (rows["key"][:, -1] % PARTITIONS == number).all()
    assert sorted(row.tobytes() for rows in found for row in rows) == sorted(
        row.tobytes() for rows in added for row in rows
    )
    assert (tmp_path / "side").exists() == (buffer < 353)


def test_records_may_be_added_after_a_read(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "side", DTYPE)
    spill.add(records(5, 1))
    assert sum(len(spill.partition(number)) for number in range(PARTITIONS)) == 5
    spill.add(records(4, 2))
    assert sum(len(spill.partition(number)) for number in range(PARTITIONS)) == 9


def test_a_folder_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "_BUFFER_RECORDS", 1)
    (tmp_path / "file").write_bytes(b"")
    spill = Spill(tmp_path / "file" / "side", DTYPE)
    with pytest.raises(TarnError, match="temporary files") as raised:
        spill.add(records(2, 1))
    assert raised.value.kind is Kind.EXHAUSTED
