"""Multipart uploads with blocks in a folder; `test_s3_blocks` runs the same cases with blocks in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest
from multipart_cases import CASES, SMALL_PARTS, an_object_of_ten_thousand_parts
from running_tarn import Place, RunningTarn, launch, set_up, stop, wait_until_up


@pytest.mark.on_cassandra("three", long=True)
@pytest.mark.parametrize("case", CASES)
def test_uploads_with_blocks_in_a_folder(tarn: RunningTarn, place: Place, case: str) -> None:
    CASES[case](tarn, place)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ten_thousand_parts_become_a_file(tmp_path: Path) -> None:
    options = ("--port", "0", "--rpc-port", "0", "--workers", "2")
    path = {"PYTHONPATH": str(SMALL_PARTS)}
    supervisor = launch(tmp_path / "data", *options, environment=path)
    tarn = RunningTarn("single", tmp_path / "data", tmp_path / "credentials", supervisor)
    try:
        wait_until_up(tarn)
        set_up(tarn)
        an_object_of_ten_thousand_parts(tarn, Place(tarn.new_repository(), "main/"))
    finally:
        stop(tarn)
