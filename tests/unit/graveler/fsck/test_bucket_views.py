"""Bucket views under check: they are no repositories, and damaged ones are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fsck_lab import FsckLab

from tarn.core.ids import RepositoryId
from tarn.kv.records import encode_bucket_view

SALES = RepositoryId("sales")


async def test_a_view_needs_no_namespace(lab: FsckLab) -> None:
    await lab.lake.graveler.bucket_views.create(SALES, lab.lake.repository, "main")
    assert await lab.check() == []


@pytest.mark.parametrize(
    "change",
    [{"ref": "a/b"}, {"bucket_id": "other"}, {"uid": ""}, {"repository_id": "No"}],
    ids=str,
)
async def test_a_damaged_view_is_told(lab: FsckLab, change: dict[str, str]) -> None:
    made = await lab.lake.graveler.bucket_views.create(SALES, lab.lake.repository, "main")
    damaged = encode_bucket_view(replace(made, **change))  # type: ignore[arg-type]  # names of texts
    await lab.set(lab.installation.graveler, b"repos/sales", damaged)
    assert await lab.check() == [("record-damaged", "test/graveler repos/sales")]


async def test_a_creation_that_never_ended_is_told(lab: FsckLab) -> None:
    made = await lab.lake.graveler.bucket_views.create(SALES, lab.lake.repository, "main")
    pending = encode_bucket_view(replace(made, is_pending=True))
    await lab.set(lab.installation.graveler, b"repos/sales", pending)
    assert await lab.check() == [("creation-orphan", "bucket view sales")]
