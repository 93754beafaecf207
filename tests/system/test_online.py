"""Online deletion on a real Tarn with a short delay (docs/design/online-deletion.md); of a Spark job: `test_spark`."""

from __future__ import annotations

from pathlib import Path

import pytest
from eager_tarn import fsck
from online_tarn import online_tarn, until_judged


@pytest.mark.parametrize("form", ["single", "separate"])
def test_what_was_replaced_before_a_commit_goes(tmp_path: Path, form: str) -> None:
    with online_tarn(tmp_path, form) as tarn:
        lake = tarn.new_repository()
        s3 = tarn.s3()
        for body in (b"first", b"second" * 50_000, b"last"):
            s3.put_object(Bucket=lake, Key="main/a", Body=body)
        s3.put_object(Bucket=lake, Key="main/gone", Body=b"gone")
        s3.delete_object(Bucket=lake, Key="main/gone")
        s3.put_object(Bucket=lake, Key="main/old", Body=b"renamed")
        s3.copy_object(Bucket=lake, Key="main/new", CopySource=f"{lake}/main/old")
        s3.delete_object(Bucket=lake, Key="main/old")
        found = until_judged(tarn)
        assert (found["deleted"], found["copied"]) == (3, 1)
        tarn.ok("commit", f"{lake}/main", "-m", "what is left")
        assert fsck(tarn) == []
        bodies = [
            s3.get_object(Bucket=lake, Key=f"main/{key}")["Body"].read() for key in ("a", "new")
        ]
        assert bodies == [b"last", b"renamed"]
        s3.close()
